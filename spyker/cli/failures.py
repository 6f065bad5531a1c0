"""The errors that commands end with, which are said in one line. Any other is a fault of ours, and has a traceback."""

from __future__ import annotations

from spyker.config.sections import ScenarioError
from spyker.experiments.errors import RunFailedError
from spyker.net.errors import DeploymentError, MustNotGoOnError
from spyker.records import RecordError
from spyker.sim.nonfinite_model import DivergedError
from spyker.sim.record_failure import RecordLostError
from spyker.tasks.checked_task import TaskFailedError
from spyker.tasks.data.dataset import DataError

BAD = (ScenarioError, RecordError)
"""What was asked for makes no sense, and nothing was changed."""
FAILURES = (DataError, DivergedError, TaskFailedError, DeploymentError, RecordLostError, RunFailedError)
"""It began, and could not be done."""
FINAL = MustNotGoOnError  # one of those, after which another start changes nothing
