"""Plots of runs: the score against time and against updates, and the bytes that it took."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spyker.show.curves import Curve
from spyker.show.looks import looks


class Picture(Figure):
    """A figure that shows itself in a notebook, whatever Matplotlib's backend is."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def plot_all(curves: Sequence[Curve], targets: Sequence[float], folder: Path) -> list[Path]:
    """Draw all plots of these runs into a folder and name the files."""
    metric = curves[0].metric
    folder.mkdir(parents=True, exist_ok=True)
    names = {"time": f"{metric}-time.png", "updates": f"{metric}-updates.png", "bytes": "bytes.png"}
    for what, name in names.items():
        save(plot(curves, targets, what), folder / name)
    return [folder / name for name in names.values()]


def plot(curves: Sequence[Curve], targets: Sequence[float], what: str = "time") -> Picture:
    """The score against ``time`` or ``updates``, or the ``bytes`` that were sent."""
    metric, figure = curves[0].metric, Picture(figsize=(7.2, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if what == "time":
        score(axes, curves, targets, [c.time for c in curves])
        label, title = seconds(curves), f"{metric} over time, mean of the servers"
    elif what == "updates":
        score(axes, curves, targets, [c.updates for c in curves])
        label, title = "client updates applied", f"{metric} over client updates, mean of the servers"
    elif what == "bytes":
        traffic(axes, curves)
        label, title = seconds(curves), "Communication"
    else:
        raise ValueError(f"nothing can be drawn against {what!r}. Choose time, updates or bytes")
    axes.set_xlabel(label)
    axes.set_title(title[0].upper() + title[1:], loc="left", fontsize=11)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def seconds(curves: Sequence[Curve]) -> str:
    """What an axis of time is called; that of a deployment is real."""
    return "virtual time (s)" if all(c.virtual for c in curves) else "time (s)"


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that its name says."""
    figure.savefig(path, dpi=150)


def traffic(axes: Axes, curves: Sequence[Curve]) -> None:
    """What each run has sent so far."""
    for c, look in zip(curves, looks([c.label for c in curves]), strict=True):
        axes.plot(c.time, [b / 1e6 for b in c.bytes], label=c.label, **look)
    axes.set_ylabel("sent over all links (MB)")
    axes.set_ylim(bottom=0)


def score(axes: Axes, curves: Sequence[Curve], targets: Sequence[float], xs: Sequence[Sequence[float]]) -> None:
    """Each run's mean, with the range from its worst to its best server behind it."""
    for c, x, look in zip(curves, xs, looks([c.label for c in curves]), strict=True):
        axes.plot(x, c.mean, label=c.label, **look)
        axes.fill_between(x, c.worst, c.best, color=look["color"], alpha=0.12, linewidth=0)
    for target in targets:
        axes.axhline(target, color="0.55", linewidth=0.7, linestyle=":")
    axes.set_ylabel(curves[0].metric)
    if curves[0].higher_is_better and max(max(c.best) for c in curves) <= 1:
        axes.set_ylim(0, 1.02)
