"""What to say when the disk takes no more of a record."""

from __future__ import annotations

from pathlib import Path

from spyker.errors import RecordWriteError


def record_write_error(folder: Path, error: OSError) -> RecordWriteError:
    """What to say when a record cannot be written any more."""
    return RecordWriteError(
        f"{folder} takes no more of the run ({error.strerror}); what facts.jsonl holds can be read. "
        "Make room, or choose another --out"
    )
