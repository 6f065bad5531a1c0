"""Saves of a run, now and then, in its record."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Protocol

from spyker.config.algorithms import algorithm_code
from spyker.config.scenario import Scenario, dump
from spyker.protocol.state import ServerState
from spyker.records import FACTS, SCENARIO, SUMMARY, RecordError, RecordWriter
from spyker.records.model_files import MODEL, SERVERS
from spyker.records.resume_point import SAVE, ResumePoint, write_resume_point
from spyker.sim.record_failure import record_write_error
from spyker.tasks.registry import code_of, with_task_defaults
from spyker.tasks.task import Task
from spyker.version import __version__

CHANGES = (
    "the version of Spyker has changed",
    "the task, or code of it, has changed",
    "the algorithm's code has changed",
)


class SavePolicy(Protocol):
    """Says when to save."""

    def due(self) -> bool:
        """Whether it is time."""

    def done(self) -> None:
        """It was saved."""


class Autosave:
    """Saves in a record."""

    def __init__(self, folder: Path, scenario: Scenario, pace: SavePolicy, save: ResumePoint | None = None) -> None:
        """``save`` is what an interrupted run goes on from."""
        self.folder, self.made_by, self._pace = folder, made_by(scenario), pace
        self.save, self.saved = save, None if save is None else save.state
        self.writer: RecordWriter | None = None
        self._possible = True

    def check(self, scenario: Scenario, task: Task) -> None:
        """Refuse to go on with another run than the one that was saved."""
        assert self.save is not None
        if (self.folder / SCENARIO).read_text("utf-8") != dump(with_task_defaults(scenario, task)):
            raise RecordError(
                f"{self.folder} is the record of another scenario. To resume it, say nothing but --resume and --out"
            )
        then, now = self.save.made_by.split(" "), self.made_by.split(" ")
        changed = [what for what, a, b in zip(CHANGES, then, now, strict=False) if a != b]
        if changed:
            raise RecordError(
                f"{self.folder} cannot be resumed: {changed[0]} since the run began. Resume it with what it began "
                "with, or begin a new run in another folder (--out)"
            )

    def due(self) -> bool:
        """Whether it is time to save."""
        return self._possible and self._pace.due()

    def write(self, state: ServerState) -> None:
        """Keep a state in place of the last."""
        assert self.writer is not None
        try:
            write_resume_point(self.folder, ResumePoint(state, self.writer.flush(), self.made_by))
        except OSError as error:
            raise record_write_error(self.folder, error) from None
        self._pace.done()

    def give_up(self) -> None:
        """Try no more."""
        self._possible = False

    def take_back(self) -> None:
        """Make the record what it was when it was saved."""
        assert self.save is not None
        os.truncate(self.folder / FACTS, self.save.facts)
        for name in (SUMMARY, MODEL):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / SERVERS, ignore_errors=True)

    def end(self) -> None:
        """The run has come to its end."""
        (self.folder / SAVE).unlink(missing_ok=True)


def made_by(scenario: Scenario) -> str:
    """What a run follows from besides its scenario: the release of Spyker, and digests of task and algorithm."""
    digests = [
        hashlib.sha256(code.encode()).hexdigest()
        for code in (code_of(scenario.task), algorithm_code(scenario.algorithm))
    ]
    return " ".join([__version__, *digests])
