"""What to say when the disk takes no more of a record."""

from __future__ import annotations

from pathlib import Path


class RecordLostError(RuntimeError):
    """The disk takes no more of a record; says which and why."""


def lost(folder: Path, error: OSError) -> RecordLostError:
    """What to say when a record cannot be written any more."""
    return RecordLostError(
        f"{folder} takes no more of the run ({error.strerror}); what facts.jsonl holds can be read. "
        "Make room, or choose another --out"
    )
