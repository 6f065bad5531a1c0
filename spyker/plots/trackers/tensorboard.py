"""TensorBoard: a folder with event files. Steps are updates, and relative times are the run's own seconds.

What an earlier run of the same name has left there goes; event files of others stay. A server that went on from a
checkpoint has fewer updates than before: TensorBoard is told to forget what came after.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spyker.errors import TrackerError
from spyker.plots.trackers.rows import MetricRow
from spyker.plots.trackers.tracker import RunDescription, RunLog, Tracker, final_numbers

SUFFIX = ".spyker"


class TensorBoard(Tracker):
    """``tensorboard=DIR``."""

    name, module, meaning = "tensorboard", "tensorboard", "DIR"

    def prepare(self) -> None:
        """Make the folder."""
        try:
            Path(self.place).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrackerError(
                f"{self.place} cannot be made ({error.strerror})", "Name a folder that can be written"
            ) from None

    def open(self, about: RunDescription) -> RunLog:
        """A folder for a run, below."""
        folder = Path(self.place, about.name)
        for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        return TensorBoardRun(folder, about)


class TensorBoardRun(RunLog):
    """The event file of a run."""

    def __init__(self, folder: Path, about: RunDescription) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._session = Event, Summary, SessionLog
        self._began, self._last = about.began, MetricRow(0, 0.0, {})
        self._file = EventFileWriter(str(folder), filename_suffix=SUFFIX)
        settings = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in about.settings.items()
            if value is not None
        }
        hparams = hparams_pb(settings, trial_id=about.name, start_time_secs=about.began)
        self._add(self._last, summary=Summary.FromString(hparams.SerializeToString()))

    def write(self, row: MetricRow) -> None:
        """Scalars, to be seen at once."""
        if row.updates < self._last.updates:
            self._add(row, session_log=self._session(status=self._session.START))
        self._last = row
        self._scalars(row)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """When targets were reached."""
        with contextlib.closing(self._file):
            if found := final_numbers(summary):
                self._scalars(self._last._replace(numbers=found))

    def _scalars(self, row: MetricRow) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.numbers.items()]
        self._add(row, summary=self._summary(value=values))

    def _add(self, row: MetricRow, **what: Any) -> None:
        self._file.add_event(self._event(wall_time=self._began + row.t, step=row.updates, **what))
        self._file.flush()
