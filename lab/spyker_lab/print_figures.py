"""Figures for print: readable in greyscale, with labelled axes and units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spyker.plots.figures import POINTS, Array
from spyker.plots.samples import SeedSample
from spyker.plots.styles import STYLES, line_styles

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
GREYS = ("0.25", "0.55", "0.75", "0.88", "0.65", "0.45")
PRINT: Any = {"font.size": 9, "pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False}
BARS = "Bars: mean over seeds with standard deviation; dashed outlines: target not reached, up to the known bound."


def panels(count: int, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels side by side."""
    with rc_context(PRINT):
        figure = Figure(figsize=(3.6 * count if count > 1 else 5.0, height), layout="constrained")
        axes = [figure.add_subplot(1, count, i + 1) for i in range(count)]
    for a in axes:
        a.grid(alpha=0.25, linewidth=0.5)
        a.set_axisbelow(True)
    return figure, axes


def steps(axes: Axes, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str) -> None:
    """Draw one line per series of points."""
    for (label, (x, y)), style in zip(series.items(), line_styles(list(series), 1.1), strict=True):
        axes.plot(x, y, label=label, **style)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def bars(
    axes: Axes,
    groups: Sequence[str],
    ours: Mapping[str, Sequence[SeedSample]],
    paper: Mapping[str, Sequence[float | None]],
    ylabel: str,
) -> None:
    """Draw grouped bars, one per series and group, with error bars over seeds and the paper's numbers as diamonds.

    A value that was not measured has a labelled dashed outline up to its known bound, such as the time at which a run
    ended without reaching its target.
    """
    width = 0.8 / len(ours)
    for i, (label, samples) in enumerate(ours.items()):
        x = np.arange(len(groups)) + (i - (len(ours) - 1) / 2) * width
        fill = bar_style(label, i)
        heights = [math.nan if s.mean is None else s.mean for s in samples]
        spreads = [s.spread or 0.0 for s in samples]
        axes.bar(x, heights, width * 0.92, label=label, yerr=spreads if any(spreads) else None, **fill)
        for at, s in zip(x, samples, strict=True):
            if s.mean is None:
                draw_missing_bar(axes, at, width * 0.92, s, fill["facecolor"])
        theirs = paper.get(label)
        if theirs:
            known = [(a, b) for a, b in zip(x, theirs, strict=True) if b is not None]
            marks: Any = {"marker": "D", "s": 18, "facecolor": "white", "edgecolor": "black", "zorder": 3}
            axes.scatter([a for a, _ in known], [b for _, b in known], label="paper" if i == 0 else None, **marks)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(ylabel)
    axes.margins(y=0.12)
    axes.grid(visible=False, axis="x")


def bar_style(label: str, number: int) -> dict[str, Any]:
    """Return the fill of a bar: the colour of its algorithm or a grey, and a distinct hatch."""
    owner = label.partition(",")[0]
    number = list(STYLES).index(owner) if owner in STYLES else number
    colour = STYLES[owner][0] if owner in STYLES else GREYS[number % len(GREYS)]
    return {"facecolor": colour, "hatch": HATCHES[number % len(HATCHES)], "edgecolor": "white"}


def draw_missing_bar(axes: Axes, at: float, width: float, sample: SeedSample, colour: str) -> None:
    """Draw a labelled outline up to the known bound, in place of a bar."""
    low, high = sample.mean_range
    bound = low if math.isfinite(low) else high if math.isfinite(high) else 0.0
    if not axes.get_autoscaley_on():
        bound = min(max(bound, axes.get_ylim()[0]), axes.get_ylim()[1])
    outline: Any = {"facecolor": "none", "edgecolor": colour, "linestyle": "--", "linewidth": 0.9}
    axes.bar([at], [bound], width, **outline)
    text = "not reached" if sample.text() == "–" else sample.text(".3g").partition(" (")[0]
    side: Any = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 6.5, "color": "0.2"}
    axes.annotate(text, (at, max(bound, 0.0)), (0, 2), textcoords="offset points", **side)


def dots(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, tuple[Sequence[tuple[float, bool] | None], Mapping[str, Any]]],
    xlabel: str,
) -> None:
    """Draw one row per group, from the top, with a dot per series.

    A value is a number and whether it was measured. A bound, such as the time of a target that was not reached, is a
    hollow dot.
    """
    rows = range(len(groups))
    for row in rows:
        known = [value[0] for values, _ in series.values() if (value := values[row]) is not None]
        if known:
            axes.plot([min(known), max(known)], [row, row], color="0.85", linewidth=2.5, zorder=1)
    for label, (values, style) in series.items():
        colour, marker = style["color"], style.get("marker", "o")
        dot: Any = {"linestyle": "", "markersize": 6.5, "zorder": style.get("zorder", 3)}
        axes.plot([], [], marker=marker, color=colour, markeredgecolor="white", label=label, **dot)
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                fill, edge = (colour, "white") if value[1] else ("white", colour)
                axes.plot([value[0]], [row], marker=marker, color=fill, markeredgecolor=edge, **dot)
    axes.set_yticks(rows, groups)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel(xlabel)
    axes.grid(visible=False, axis="y")


def kernel_density(values: Sequence[float], grid: Array | None = None) -> tuple[Array, Array]:
    """Return grid and density of a Gaussian kernel estimate with Silverman's bandwidth."""
    data = np.asarray(values, float)
    if grid is None:
        grid = np.linspace(data.min(), data.max(), POINTS)
    low, high = np.percentile(data, [25, 75])
    width = 0.9 * min(data.std(), (high - low) / 1.34 or data.std()) * data.size**-0.2 or 1.0
    heights = np.exp(-0.5 * ((grid[:, None] - data) / width) ** 2).sum(1) / (data.size * width * np.sqrt(2 * np.pi))
    return grid, heights


def density(axes: Axes, samples: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """Draw the kernel density of each sample."""
    low, high = min(min(s) for s in samples.values()), max(max(s) for s in samples.values())
    margin = 0.1 * (high - low) or 1.0
    grid = np.linspace(max(0.0, low - margin), high + margin, POINTS)
    for (label, values), style in zip(samples.items(), line_styles(list(samples), 1.4), strict=True):
        axes.plot(*kernel_density(values, grid), label=label, **style)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("density")
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(bottom=0)


def legend(axes: Axes, *, above: bool = False) -> None:
    """Draw a legend without a frame, inside the axes or above them."""
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 3} if above else {}
    axes.legend(frameon=False, fontsize=8, **place)


def save_figure(figure: Figure, path: Path) -> None:
    """Write ``path``.png and ``path``.pdf; the same figure gives the same bytes."""
    with rc_context(PRINT):
        figure.savefig(path.with_suffix(".png"), dpi=200, metadata={"Software": None})
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None, "Creator": None, "Producer": None})
