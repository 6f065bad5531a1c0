"""What came of a run, for people who work in Python: DataFrames, plots, and a line that says it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spyker import records
from spyker.plots.curves import Curve, curve, other_curves, targets
from spyker.plots.run_groups import RunGroups, together
from spyker.plots.table import rows
from spyker.protocol.facts import KINDS
from spyker.records import Evaluated
from spyker.records.model_files import read_model
from spyker.records.run_warnings import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series
    from torch import Tensor


class TargetReached(NamedTuple):
    """When a target was reached: in virtual seconds, and after how many client updates."""

    time: float
    updates: int


class Run:
    """A run: what it was, what happened in it, and what came of it, read from its record.

    The DataFrames have one row per fact, in the order of time, with its fields as columns; they need pandas. What was
    read once is kept: load the record anew to see more of a run that goes on.
    """

    def __init__(self, folder: str | Path) -> None:
        self.record = records.RunRecord(Path(folder))

    @property
    def folder(self) -> Path:
        """Where the record is."""
        return self.record.folder

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario with everything resolved, as it stands in ``scenario.toml``."""
        return self.record.scenario

    @property
    def summary(self) -> dict[str, Any] | None:
        """The totals; none if the run was killed, or goes on still."""
        return self.record.summary

    @property
    def warnings(self) -> list[RunWarning]:
        """Why the run learnt less than it should have, if it did; each with a kind, a message and a remedy."""
        return [RunWarning(**each) for each in (self.summary or {}).get("warnings", ())]

    def facts(self, *kinds: str | type[records.Fact]) -> Iterator[records.RecordedFact[Any]]:
        """All facts in their order, each with its time, or those of some kinds, such as ``"update"``."""
        wanted = {kind if isinstance(kind, str) else kind.kind for kind in kinds}
        classes = [KINDS[name] for name in wanted if name in KINDS]
        found = self.record.facts(*(classes if len(classes) == len(wanted) else ()))
        return (stated for stated in found if not wanted or stated.fact.kind in wanted)

    @cached_property
    def curve(self) -> DataFrame:
        """The evaluations, indexed by time: ``updates`` and ``bytes`` so far, and the scores of the servers' models.

        ``mean``, ``worst`` and ``best`` are of the servers; ``averaged`` is the score of the mean of their weights.
        """
        frame = self.evaluations.set_index("t")
        return frame[["updates", "bytes", "mean", "worst", "best", "averaged"]]

    @cached_property
    def evaluations(self) -> DataFrame:
        """The evaluations, with a column for every server's score, named ``server 0`` and so on."""
        flat = []
        for row in map(as_row, self.facts(Evaluated)):
            servers = row.pop("servers")
            flat.append(row | {f"server {i}": score for i, score in enumerate(servers)})
        return as_frame(flat)

    @cached_property
    def metrics(self) -> DataFrame:
        """What evaluations measured, indexed by time: a column for each metric, the mean of the servers."""
        frame = self.curve[["mean"]].rename(columns={"mean": self.record.start.metric})
        for name, other in other_curves(self.record).items():
            frame[name] = as_series(other)
        return frame

    @cached_property
    def reports(self) -> DataFrame:
        """What clients reported with their updates: a column for each thing that they measured."""
        rows = [as_row(stated) for stated in self.facts("report")]
        return as_frame([{k: v for k, v in row.items() if k != "metrics"} | row["metrics"] for row in rows])

    @cached_property
    def updates(self) -> DataFrame:
        """The clients' updates, when they became part of a server's model; without those that a restart made void."""
        return as_frame([as_row(stated) for stated in self.record.updates()])

    @cached_property
    def merges(self) -> DataFrame:
        """The models of other servers that servers merged."""
        return self.frame("merge")

    def frame(self, kind: str) -> DataFrame:
        """All facts of any other kind, such as ``round`` or ``sync``."""
        return as_frame([as_row(stated) for stated in self.facts(kind)])

    @cached_property
    def points(self) -> Curve:
        """The evaluations as plain lists, without pandas."""
        return curve(self.record)

    @property
    def finished(self) -> bool:
        """Whether the run got to its end."""
        return bool((self.summary or {}).get("finished"))

    @property
    def targets(self) -> Sequence[float]:
        """The scores that the scenario wants to be reached."""
        return targets([self.record])

    def reached(self, target: float) -> TargetReached | None:
        """When the mean of the servers first was as good as ``target``, if ever."""
        hit = self.points.reached(target)
        return TargetReached(*hit) if hit else None

    def state_dict(self, server: int | None = None) -> dict[str, Tensor]:
        """The model that the run left, as PyTorch knows it: the mean of its servers', or that of one server."""
        import torch  # only now: it takes a second to import

        return {name: torch.from_numpy(part) for name, part in read_model(self.folder, server).parts.items()}

    def plot(self, path: str | Path | None = None, *, against: str = "time", metric: str | None = None) -> Figure:
        """Draw the score against ``time`` or ``updates``, or the ``bytes`` sent; write it to ``path`` as well.

        ``metric`` is something else that was measured or reported, such as ``"training loss"``.
        """
        shown = together([self.record])
        return plotted(shown if metric is None else shown.of(metric), path, against)

    def __repr__(self) -> str:
        name = f"{self.scenario['algorithm']} on {self.scenario['task']['name']}"
        try:
            points = self.points
        except records.RecordError:
            return f"<Run: {name}, nothing to see yet ({self.folder})>"
        end = "" if self.finished else ", stopped early"
        return (
            f"<Run: {name}, {points.metric} {points.mean[-1]:.3f} after {points.time[-1]:g} s and "
            f"{points.updates[-1]:,} updates{end} ({self.folder})>"
        )

    def _repr_html_(self) -> str:
        return as_html(*rows(together([self.record])))


def as_row(stated: records.RecordedFact[Any]) -> dict[str, Any]:
    """A fact and when it was stated, by field."""
    queue = {} if stated.queue is None else {"queue": stated.queue}
    return {"t": stated.t, **records.fields(stated.fact), **queue}


def as_frame(facts: list[dict[str, Any]]) -> DataFrame:
    """Facts as a DataFrame."""
    try:
        import pandas as pd  # an extra
    except ImportError:
        raise ImportError("DataFrames need pandas. Install it: pip install 'spyker-fl[pandas]'") from None
    return pd.DataFrame(facts)


def as_series(curve: Curve) -> Series[float]:
    """The means of a curve by time."""
    import pandas as pd  # which was imported for the frame already

    return pd.Series(curve.mean, curve.time)


def as_html(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table for a notebook."""
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in cells) for cells in body]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def plotted(shown: RunGroups, path: str | Path | None, against: str) -> Figure:
    """Draw runs and, if a path is given, write the picture there."""
    from spyker.plots.run_plots import plot, save  # only now: Matplotlib takes a second to import

    figure = plot(shown, against)
    if path is not None:
        save(figure, Path(path))
    return figure
