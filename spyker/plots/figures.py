"""Parts of figures: lines with shaded variation over seeds, logarithmic axes and captions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from spyker.plots.curves import Curve
from spyker.plots.styles import line_styles

POINTS = 400
Array: TypeAlias = npt.NDArray[np.float64]


def lines(
    axes: Axes,
    curves: Mapping[str, Sequence[Curve | None]],
    x: str,
    xlabel: str,
    ylabel: str,
    targets: Sequence[float],
    special: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Draw one line per label with a shaded band, explained by :func:`describe_lines`.

    The axis is logarithmic if lower is better. ``special`` overrides the line styles of some labels.
    """
    several = seed_count(curves)
    for (label, seeds), default in zip(curves.items(), line_styles(list(curves), 1.4), strict=True):
        known = [c for c in seeds if c is not None]
        if not known:
            continue
        style = (special or {}).get(label) or default
        grid, values = resample(known, x, "mean")
        axes.plot(grid, values.mean(0), label=label, **style)
        if len(known) > 1:
            low, high = values.min(0), values.max(0)
        elif several:
            continue
        else:
            low, high = np.asarray(known[0].worst), np.asarray(known[0].best)
        axes.fill_between(grid, low, high, color=style["color"], alpha=0.15, linewidth=0)
        if len(known) == 1 and known[0].central is not None:
            axes.plot(grid, known[0].central, color=style["color"], linestyle="--", linewidth=0.9)
    for target in targets:
        axes.axhline(target, color="0.5", linewidth=0.7, linestyle=":")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_xlim(left=0)
    shown = [c for seeds in curves.values() for c in seeds if c is not None]
    if shown and not shown[0].higher_is_better:
        logarithmic(axes, np.array([score for c in shown for score in (*c.mean, *c.worst, *c.best)]))


def seed_count(curves: Mapping[str, Sequence[Curve | None]]) -> int:
    """Return the largest number of seeds per line, or 0 if it is 1."""
    most = max((len(seeds) for seeds in curves.values()), default=0)
    return most if most > 1 else 0


def describe_lines(curves: Mapping[str, Sequence[Curve | None]], targets: Sequence[float]) -> str:
    """Return a caption that explains lines, bands and target levels of :func:`lines`."""
    several = seed_count(curves)
    first = next((c for seeds in curves.values() for c in seeds if c is not None), None)
    mean, band = "mean over servers", "worst to best server"
    if first is not None and first.scored == "clients":
        mean, band = "mean of the clients' evaluations, weighted by examples", "to the mean of the worst tenth"
        if first.central is not None and not several:
            band += "; dashed: mean over servers on central test data"
    elif first is not None and first.scored == "client":
        mean, band = "mean of the clients' last reports", "worst to best client"
    elif first is not None and first.by_clients:
        mean = "mean of the clients' evaluations, weighted by examples"
    line = f"{mean} and {several} seeds" if several else mean
    band = "range over seeds" if several else band
    levels = f"target{'s' * (len(targets) > 1)} {' and '.join(f'{t:g}' for t in targets)}"
    dotted = f"; thin grey dotted: {levels}" if targets else ""  # an algorithm's own line may be dotted, too
    return f"Lines: {line}; shade: {band}{dotted}."


def resample(curves: Sequence[Curve], x: str, y: str) -> tuple[Array, Array]:
    """Return the points of one run unchanged; several runs are interpolated where all of them have evaluations."""
    if len(curves) == 1:
        return np.asarray(getattr(curves[0], x), float), np.asarray([getattr(curves[0], y)], float)
    end = min(getattr(c, x)[-1] for c in curves)
    grid = np.linspace(min(end, max(getattr(c, x)[0] for c in curves)), end, POINTS)
    return grid, np.array([np.interp(grid, getattr(c, x), getattr(c, y)) for c in curves])


def logarithmic(axes: Axes, scores: Array) -> None:
    """Set a logarithmic axis with plain tick labels if all scores are positive."""
    known = scores[np.isfinite(scores)]
    if known.size and known.min() > 0:
        axes.set_yscale("log")
        narrow = known.max() < 5 * known.min()
        axes.yaxis.set_major_locator(MaxNLocator(6) if narrow else LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def caption(figure: Figure, text: str) -> None:
    """Add a caption below a figure, so that it can be understood out of context."""
    size = 7.0
    width, height = figure.get_size_inches()
    wrapped = textwrap.wrap(text, int(width * 72 / (0.56 * size)))
    figure.set_size_inches(width, height + len(wrapped) * 1.3 * size / 72)  # the axes keep their size
    figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=size, color="0.3")
