"""The error for a record that cannot be written."""

from __future__ import annotations

from pathlib import Path

from spyker.errors import RecordWriteError


def record_write_error(folder: Path, error: OSError) -> RecordWriteError:
    """Return the error for a record that cannot be written."""
    return RecordWriteError(
        f"{folder}: cannot write run record ({error.strerror}); the facts so far are readable. "
        "Free disk space, or choose another --out"
    )
