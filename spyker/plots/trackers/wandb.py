"""Weights & Biases. All but the project is said in its own way, such as ``WANDB_MODE=offline``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from spyker.errors import TrackerError
from spyker.plots.trackers.rows import MetricRow
from spyker.plots.trackers.tracker import RunDescription, RunLog, Tracker, final_numbers


class WandB(Tracker):
    """``wandb=PROJECT``."""

    name, module, meaning = "wandb", "wandb", "PROJECT"

    def prepare(self) -> None:
        """Who sends runs to the service needs a key."""
        import wandb

        if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.api.api_key:
            raise TrackerError("has no API key", "Run wandb login, or set WANDB_MODE=offline")

    def open(self, about: RunDescription) -> RunLog:
        """A run in the project."""
        return WandBRun(self.place, about)


class WandBRun(RunLog):
    """A run of Weights & Biases'."""

    def __init__(self, project: str, about: RunDescription) -> None:
        import wandb

        self._run = wandb.init(
            project=project,
            name=about.name,
            group=about.group,
            config={key: value for key, value in about.settings.items() if value is not None},
            reinit="create_new",  # several runs of one command, and none of the caller's own, are ended by it
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="run/seconds")

    def write(self, row: MetricRow) -> None:
        """One step of its history."""
        self._run.log(row.numbers)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """How it ended."""
        self._run.summary.update(final_numbers(summary))
        self._run.finish(exit_code=0 if summary is not None else 1)
