"""The errors that commands end with, which are said in one line. Any other is a fault of ours, and has a traceback."""

from __future__ import annotations

from spyker.errors import (
    DataError,
    DeploymentError,
    DivergenceError,
    FencedError,
    RecordWriteError,
    RunFailedError,
    TaskError,
    UsageError,
)
from spyker.records import RecordError

BAD = (UsageError, RecordError)
"""What was asked for makes no sense, and nothing was changed."""
FAILURES = (DataError, DivergenceError, TaskError, DeploymentError, RecordWriteError, RunFailedError)
"""It began, and could not be done."""
FINAL = FencedError  # one of those, after which another start changes nothing
