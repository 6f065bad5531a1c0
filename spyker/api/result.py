"""Results of a run: DataFrames, plots and models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spyker import records
from spyker.extras import require
from spyker.plots.curves import Curve, curve, other_curves, targets
from spyker.plots.run_groups import RunGroups, group_runs
from spyker.plots.table import rows
from spyker.protocol.facts import KINDS
from spyker.records import Evaluated, EvaluatedByClients
from spyker.records.model_files import read_model
from spyker.records.run_warnings import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series
    from torch import Tensor


class TargetReached(NamedTuple):
    """Time in virtual seconds, and number of client updates, at which a target was reached."""

    time: float
    updates: int


class Run:
    """The results of a run, read from its record.

    DataFrames have one row per fact, ordered by time, with a column per field; they need pandas. Results are cached:
    load the record again to see more of a run in progress.
    """

    def __init__(self, folder: str | Path) -> None:
        self.record = records.RunRecord(Path(folder))

    @property
    def folder(self) -> Path:
        """Folder of the record."""
        return self.record.folder

    @property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario, as in ``scenario.toml``."""
        return self.record.scenario

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of ``summary.json``; ``None`` if the run was killed or is in progress."""
        return self.record.summary

    @property
    def warnings(self) -> list[RunWarning]:
        """Warnings about the run's learning, each with a kind, a message and a remedy."""
        return [RunWarning(**each) for each in (self.summary or {}).get("warnings", ())]

    def facts(self, *kinds: str | type[records.Fact]) -> Iterator[records.RecordedFact[Any]]:
        """Yield the facts with their times, in order.

        Args:
            kinds: kinds to include, such as ``"update"``; default: all.

        """
        wanted = {kind if isinstance(kind, str) else kind.kind for kind in kinds}
        classes = [KINDS[name] for name in wanted if name in KINDS]
        found = self.record.facts(*(classes if len(classes) == len(wanted) else ()))
        return (stated for stated in found if not wanted or stated.fact.kind in wanted)

    @cached_property
    def curve(self) -> DataFrame:
        """The evaluations, indexed by time: ``updates`` and ``bytes`` so far, and scores.

        ``mean``, ``worst`` and ``best`` are over the servers; ``averaged`` is the score of their averaged weights.
        """
        columns = ["updates", "bytes", "mean", "worst", "best", "averaged"]
        return self.evaluations.set_index("t")[columns] if len(self.evaluations) else as_frame([])

    @cached_property
    def evaluations(self) -> DataFrame:
        """The evaluations, with one column per server: ``server 0`` and so on."""
        flat = []
        for row in map(as_row, self.facts(Evaluated)):
            servers = row.pop("servers")
            flat.append(row | {f"server {i}": score for i, score in enumerate(servers)})
        return as_frame(flat)

    @cached_property
    def metrics(self) -> DataFrame:
        """The servers' mean of each metric, indexed by time."""
        frame = self.curve[["mean"]].rename(columns={"mean": self.record.start.metric})
        for name, other in other_curves(self.record).items():
            frame[name] = as_series(other)
        return frame

    @cached_property
    def client_curve(self) -> DataFrame:
        """The metric as clients evaluate it (``evaluation.by``), indexed by time.

        ``clients`` is the number of clients behind ``weighted_mean`` (by examples), ``mean`` and ``median``;
        ``worst_decile`` is the mean over the worst tenth, of ``worst_decile_clients`` clients. Each region has a
        column with its weighted mean, such as ``Paris``, and one with its number of clients, ``Paris clients``.
        """
        flat = []
        for row in map(as_row, self.facts(EvaluatedByClients)):
            regions, name = row.pop("regions"), row.pop("name")
            del row["higher_is_better"]
            for each in regions:
                row |= {each.region: each.value, f"{each.region} clients": each.clients}
            if name == self.record.start.metric:
                flat.append(row)
        return as_frame(flat).set_index("t") if flat else as_frame([])

    @cached_property
    def reports(self) -> DataFrame:
        """The metrics that clients reported with their updates, one column each."""
        rows = [as_row(stated) for stated in self.facts("report")]
        return as_frame([{k: v for k, v in row.items() if k != "metrics"} | row["metrics"] for row in rows])

    @cached_property
    def updates(self) -> DataFrame:
        """The applied client updates, without those lost in a restart."""
        return as_frame([as_row(stated) for stated in self.record.updates()])

    @cached_property
    def merges(self) -> DataFrame:
        """The merges of other servers' models."""
        return self.frame("merge")

    def frame(self, kind: str) -> DataFrame:
        """Return all facts of a kind, such as ``round`` or ``sync``."""
        return as_frame([as_row(stated) for stated in self.facts(kind)])

    @cached_property
    def points(self) -> Curve:
        """The evaluations as lists, without pandas."""
        return curve(self.record)

    @property
    def finished(self) -> bool:
        """Whether the run reached its end."""
        return bool((self.summary or {}).get("finished"))

    @property
    def targets(self) -> Sequence[float]:
        """The target scores of the scenario."""
        return targets([self.record])

    def reached(self, target: float) -> TargetReached | None:
        """Return when the servers' mean score first reached ``target``, or ``None``."""
        hit = self.points.reached(target)
        return TargetReached(*hit) if hit else None

    def state_dict(self, server: int | None = None) -> dict[str, Tensor]:
        """Return the final model as a PyTorch state dict.

        Args:
            server: the server whose model to return; ``None``: the average of all servers.

        """
        require("state_dict", "torch")
        import torch  # slow to import

        return {name: torch.from_numpy(part) for name, part in read_model(self.folder, server).parts.items()}

    def plot(self, path: str | Path | None = None, *, against: str = "time", metric: str | None = None) -> Figure:
        """Plot the score.

        Args:
            path: file to write the figure to.
            against: horizontal axis: ``time``, ``updates`` or ``bytes``.
            metric: another metric that was measured or reported, such as ``"training loss"``.

        Returns:
            The Matplotlib figure.

        """
        shown = group_runs([self.record])
        return plotted(shown if metric is None else shown.of(metric), path, against)

    def __repr__(self) -> str:
        name = f"{self.scenario['algorithm']} on {self.scenario['task']['name']}"
        try:
            points = self.points
        except records.RecordError:
            return f"<Run: {name}, no evaluations yet ({self.folder})>"
        end = "" if self.finished or not points.virtual else ", stopped early"
        return (
            f"<Run: {name}, {points.metric} {points.mean[-1]:.3f} after {points.time[-1]:g} s and "
            f"{points.updates[-1]:,} updates{end} ({self.folder})>"
        )

    def _repr_html_(self) -> str:
        return as_html(*rows(group_runs([self.record])))


def as_row(stated: records.RecordedFact[Any]) -> dict[str, Any]:
    """Return a fact and its time as a dictionary."""
    queue = {} if stated.queue is None else {"queue": stated.queue}
    return {"t": stated.t, **records.fields(stated.fact), **queue}


def as_frame(facts: list[dict[str, Any]]) -> DataFrame:
    """Return facts as a DataFrame."""
    require("a DataFrame", "pandas")
    import pandas as pd

    return pd.DataFrame(facts)


def as_series(curve: Curve) -> Series[float]:
    """Return the means of a curve, indexed by time."""
    import pandas as pd  # already imported for the DataFrame

    return pd.Series(curve.mean, curve.time)


def as_html(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return an HTML table for a notebook."""
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in cells) for cells in body]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def plotted(shown: RunGroups, path: str | Path | None, against: str) -> Figure:
    """Plot runs and, if a path is given, write the figure to it."""
    require("a plot", "matplotlib")
    from spyker.plots.run_plots import plot, save  # Matplotlib is slow to import

    figure = plot(shown, against)
    if path is not None:
        save(figure, Path(path))
    return figure
