"""Plots of runs: the score against time and against updates, and the bytes that it took."""

from __future__ import annotations

import io
import re
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spyker.plots.figures import caption, lines, meaning, on_one_grid
from spyker.plots.run_groups import RunGroups
from spyker.plots.styles import line_styles

CROWD = 6  # lines that can be named inside a figure


class NotebookFigure(Figure):
    """A figure that shows itself in a notebook, whatever Matplotlib's backend is."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def plot_all(shown: RunGroups, folder: Path) -> list[Path]:
    """Draw all plots of these runs into a folder and name the files."""
    metric = shown.first.metric
    folder.mkdir(parents=True, exist_ok=True)
    names = {"time": f"{metric}-time.png", "updates": f"{metric}-updates.png", "bytes": "bytes.png"}
    for what, name in names.items():
        save(plot(shown, what), folder / name)
    for other in shown.others:
        names[other] = f"{re.sub(r'[^A-Za-z0-9]+', '-', other).strip('-')}-time.png"
        save(plot(shown.of(other)), folder / names[other])
    return [folder / name for name in names.values()]


def plot(shown: RunGroups, what: str = "time") -> NotebookFigure:
    """The score against ``time`` or ``updates``, or the ``bytes`` that were sent."""
    metric, figure = shown.first.metric, NotebookFigure(figsize=(7.2, 4.5), layout="constrained")
    every = [c for seeds in shown.lines.values() for c in seeds]
    seconds = "virtual time (s)" if all(c.virtual for c in every) else "time (s)"
    axes, said = figure.add_subplot(), meaning(shown.lines, shown.targets)
    if what == "time":
        lines(axes, shown.lines, "time", seconds, metric, shown.targets)
        title = f"{metric} over time"
    elif what == "updates":
        lines(axes, shown.lines, "updates", "client updates applied", metric, shown.targets)
        title = f"{metric} over client updates"
    elif what == "bytes":
        traffic(axes, shown, seconds)
        title, said = "communication", "Lines: all that was sent so far; of several seeds the mean."
    else:
        raise ValueError(f"nothing can be drawn against {what!r}. Choose time, updates or bytes")
    if what != "bytes" and every[0].higher_is_better and max(max(c.best) for c in every) <= 1:
        axes.set_ylim(min(0, *(min(c.worst) for c in every)), 1.02)
    if what != "bytes" and not every[0].higher_is_better:
        axes.set_ylabel(f"{metric} (less is better)")
    axes.set_title(title[0].upper() + title[1:], loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(shown.lines) > CROWD:
        figure.set_figwidth(9.6)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    else:
        axes.legend(frameon=False, fontsize=9)
    warning = f" {shown.warning[0].upper()}{shown.warning[1:]}." if shown.warning else ""
    caption(figure, f"{shown.about}. {said}{warning}")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that its name says."""
    figure.savefig(path, dpi=150)


def traffic(axes: Axes, shown: RunGroups, xlabel: str) -> None:
    """What each line's runs have sent so far."""
    for (label, seeds), look in zip(shown.lines.items(), line_styles(list(shown.lines), 1.4), strict=True):
        grid, sent = on_one_grid(seeds, "time", "bytes")
        axes.plot(grid, sent.mean(0) / 1e6, label=label, **look)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("sent over all links (MB)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
