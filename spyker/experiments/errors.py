"""What can go wrong when many runs are made."""

from __future__ import annotations


class RunFailedError(RuntimeError):
    """A run could not be completed; says which and why."""
