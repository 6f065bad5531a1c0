"""Plots of runs: score over time, score over updates, bytes over time."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text

from spyker.errors import UsageError
from spyker.plots.figures import caption, describe_lines, lines, resample
from spyker.plots.run_groups import RunGroups
from spyker.plots.styles import line_styles
from spyker.untrusted_text import file_stem, printable

ABBREVIATIONS = ("auc", "iou", "mae", "map", "mape", "mse", "rmse")  # metrics
LEGEND_INSIDE = 6  # maximum number of lines for a legend inside the axes


class NotebookFigure(Figure):
    """A figure that is displayed in notebooks independently of Matplotlib's backend. Its texts are not formulas."""

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure. Names of a record may contain dollar signs and control characters."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
            text.set_text(printable(text.get_text()))
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def plot_all(shown: RunGroups, folder: Path) -> list[Path]:
    """Write all plots of these runs into a folder and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(shown.first.metric)
    names = [f"{stem}-time.png", f"{stem}-updates.png", "bytes.png"]
    for what, name in zip(("time", "updates", "bytes"), names, strict=True):
        save(plot(shown, what), folder / name)
    for other in shown.others:
        stem = name = file_stem(other.replace("_", "-"))
        while f"{name}-time.png" in names:  # of another metric
            name = f"{stem}-{len(names)}"
        names.append(f"{name}-time.png")
        save(plot(shown.of(other)), folder / names[-1])
    return [folder / name for name in names]


def plot(shown: RunGroups, what: str = "time") -> NotebookFigure:
    """Draw the score over ``time`` or ``updates``, or the sent ``bytes`` over time."""
    metric, figure = shown.first.metric, NotebookFigure(figsize=(7.2, 4.5), layout="constrained")
    every = [c for seeds in shown.lines.values() for c in seeds]
    seconds = "virtual time (s)" if all(c.virtual for c in every) else "time (s)"
    axes, explanation = figure.add_subplot(), describe_lines(shown.lines, shown.targets)
    if what == "time":
        lines(axes, shown.lines, "time", seconds, metric, shown.targets)
        title = f"{metric} over time"
    elif what == "updates":
        lines(axes, shown.lines, "updates", "client updates applied", metric, shown.targets)
        title = f"{metric} over client updates"
    elif what == "bytes":
        traffic(axes, shown, seconds)
        title, explanation = "communication", "Lines: bytes sent so far, mean over seeds."
    else:
        raise ValueError(f"against: {what!r} is not allowed. Choose time, updates or bytes")
    if what != "bytes" and every[0].higher_is_better and max(max(c.best) for c in every) <= 1:
        axes.set_ylim(min(0, *(min(c.worst) for c in every)), 1.02)
    if what != "bytes" and not every[0].higher_is_better:
        axes.set_ylabel(f"{metric} (less is better)")
    axes.set_title(heading(title), loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(shown.lines) > LEGEND_INSIDE:
        figure.set_figwidth(9.6)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    else:
        axes.legend(frameon=False, fontsize=9)
    warning = f" {shown.warning[0].upper()}{shown.warning[1:]}." if shown.warning else ""
    caption(figure, f"{shown.about}. {explanation}{warning}")
    return figure


def heading(title: str) -> str:
    """Return a title with its first letter in upper case, or its first word if that is an abbreviation."""
    first, blank, rest = title.partition(" ")
    return f"{first.upper()}{blank}{rest}" if first in ABBREVIATIONS else title[0].upper() + title[1:]


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's suffix; raise a ``UsageError`` if that is not possible."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        problem = f"cannot write {path} ({error.strerror})"
        raise UsageError("path", problem, "Choose a file in an existing folder that is writable") from None


def traffic(axes: Axes, shown: RunGroups, xlabel: str) -> None:
    """Draw the bytes sent so far."""
    for (label, seeds), style in zip(shown.lines.items(), line_styles(list(shown.lines), 1.4), strict=True):
        grid, sent = resample(seeds, "time", "bytes")
        axes.plot(grid, sent.mean(0) / 1e6, label=label, **style)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("sent over all links (MB)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
