"""MLflow: a tracking server, a database, or a folder that gets one. Steps are updates, times the run's own seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spyker.errors import TrackerError
from spyker.plots.trackers.rows import MetricRow
from spyker.plots.trackers.tracker import RunDescription, RunLog, Tracker, final_numbers

EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"  # MLflow's own variable
DATABASE = "mlflow.db"
MOST_PARAMETERS = 100  # in one call


class MLflow(Tracker):
    """``mlflow=URI`` or ``mlflow=DIR``."""

    name, module, meaning = "mlflow", "mlflow", "URI or DIR"

    def prepare(self) -> None:
        """Find the experiment, or make it."""
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        uri, artifacts = self.place, None
        if "://" not in self.place:
            folder = Path(self.place).resolve()
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TrackerError(
                    f"{self.place} cannot be made ({error.strerror})", "Name a folder that can be written"
                ) from None
            uri, artifacts = f"sqlite:///{folder / DATABASE}", (folder / "artifacts").as_uri()
        name = os.environ.get(EXPERIMENT) or "spyker"
        try:
            self._client = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(name)
            self._experiment = found.experiment_id if found else self._client.create_experiment(name, artifacts)
        except MlflowException as error:
            raise TrackerError(
                f"{uri} cannot be used ({str(error).splitlines()[0]})", "Name a tracking server or a folder"
            ) from None

    def open(self, about: RunDescription) -> RunLog:
        """A run in the experiment."""
        return MLflowRun(self._client, self._experiment, about)


class MLflowRun(RunLog):
    """A run of MLflow's."""

    def __init__(self, client: Any, experiment: str, about: RunDescription) -> None:
        from mlflow.entities import Param

        self._client, self._began, self._last = client, about.began, MetricRow(0, 0.0, {})
        tags = {"spyker.version": about.start.spyker, "spyker.world": about.start.world}
        run = client.create_run(
            experiment,
            start_time=self._stamp(0.0),
            tags=tags | {"spyker.group": about.group or ""},
            run_name=about.name,
        )
        self._id = run.info.run_id
        params = [Param(allowed(key), str(value)) for key, value in about.settings.items() if value is not None]
        for i in range(0, len(params), MOST_PARAMETERS):
            client.log_batch(self._id, params=params[i : i + MOST_PARAMETERS])

    def write(self, row: MetricRow) -> None:
        """Metrics."""
        from mlflow.entities import Metric

        self._last = row
        stamp = self._stamp(row.t)
        metrics = [Metric(allowed(name), value, stamp, row.updates) for name, value in row.numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """How it ended."""
        if found := final_numbers(summary):
            self.write(self._last._replace(numbers=found))
        status = "FAILED" if summary is None else "FINISHED" if summary["finished"] else "KILLED"
        self._client.set_terminated(self._id, status, self._stamp(self._last.t))

    def _stamp(self, t: float) -> int:
        return round(1000 * (self._began + t))


def allowed(name: str) -> str:
    """A name with nothing in it that MLflow refuses."""
    return re.sub(r"[^\w\-. :/]", "_", name)
