"""Errors that commands report in one line. Any other exception is a bug and prints a traceback."""

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
"""Bad input; nothing was changed."""
FAILURES = (DataError, DivergenceError, TaskError, DeploymentError, RecordWriteError, RunFailedError)
"""The command started and failed."""
FINAL = FencedError  # a restart does not help
