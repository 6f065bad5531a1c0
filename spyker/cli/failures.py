"""The errors that commands end with, which are said in one line. Any other is a fault of ours, and has a traceback."""

from __future__ import annotations

from spyker.config.sections import ScenarioError
from spyker.experiments.errors import RunFailedError
from spyker.net.errors import DeploymentError, MustNotGoOnError
from spyker.records import RecordError
from spyker.sim.diverged import DivergedError
from spyker.sim.lost import RecordLostError
from spyker.tasks.data.dataset import DataError
from spyker.tasks.guard import TaskFailedError

BAD = (ScenarioError, RecordError)
"""What was asked for makes no sense, and nothing was changed."""
FAILURES = (DataError, DivergedError, TaskFailedError, DeploymentError, RecordLostError, RunFailedError)
"""It began, and could not be done."""
FINAL = MustNotGoOnError  # one of those, after which another start changes nothing
