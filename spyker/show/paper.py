"""Figures styled for print: readable in greyscale, axes and units named, uncertainty over seeds shaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spyker.show.curves import Curve
from spyker.show.looks import looks

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
GREYS = ("0.25", "0.55", "0.75", "0.88", "0.65", "0.45")
PRINT: Any = {"font.size": 9, "pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False}
POINTS = 400
Array: TypeAlias = npt.NDArray[np.float64]


def panels(count: int, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels side by side."""
    with rc_context(PRINT):
        figure = Figure(figsize=(3.6 * count if count > 1 else 5.0, height), layout="constrained")
        axes = [figure.add_subplot(1, count, i + 1) for i in range(count)]
    for a in axes:
        a.grid(alpha=0.25, linewidth=0.5)
        a.set_axisbelow(True)
    return figure, axes


def lines(
    axes: Axes,
    curves: Mapping[str, Sequence[Curve | None]],
    x: str,
    xlabel: str,
    ylabel: str,
    targets: Sequence[float],
    special: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """One line per run: the mean over the seeds, and the range of the seeds shaded around it.

    ``special`` are the looks of some runs, instead of those of their algorithms.
    """
    for (label, seeds), usual in zip(curves.items(), looks(list(curves), 1.4), strict=True):
        known = [c for c in seeds if c is not None]
        if not known:
            continue
        end = min(getattr(c, x)[-1] for c in known)
        grid = np.linspace(0, end, POINTS)
        values = np.array([np.interp(grid, getattr(c, x), c.mean) for c in known])
        look = (special or {}).get(label) or usual
        axes.plot(grid, values.mean(0), label=label, **look)
        if len(known) > 1:
            axes.fill_between(grid, values.min(0), values.max(0), color=look["color"], alpha=0.18, linewidth=0)
    for target in targets:
        axes.axhline(target, color="0.5", linewidth=0.6, linestyle=":")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_xlim(left=0)


def steps(axes: Axes, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str) -> None:
    """One line per series of points."""
    for (label, (x, y)), look in zip(series.items(), looks(list(series), 1.1), strict=True):
        axes.plot(x, y, label=label, **look)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def bars(
    axes: Axes,
    groups: Sequence[str],
    ours: Mapping[str, Sequence[tuple[float | None, float | None]]],
    paper: Mapping[str, Sequence[float | None]],
    ylabel: str,
) -> None:
    """Grouped bars, one per series in each group, with the spread over seeds; diamonds are the paper's figures.

    A bar that is missing is a target that was not reached.
    """
    width = 0.8 / len(ours)
    for i, (label, values) in enumerate(ours.items()):
        x = np.arange(len(groups)) + (i - (len(ours) - 1) / 2) * width
        heights = [0.0 if mean is None else mean for mean, _ in values]
        look: dict[str, Any] = {
            "color": GREYS[i % len(GREYS)],
            "hatch": HATCHES[i % len(HATCHES)],
            "edgecolor": "white",
        }
        errors = [0.0 if spread is None else spread for _, spread in values]
        axes.bar(x, heights, width * 0.92, label=label, yerr=errors if any(errors) else None, **look)
        theirs = paper.get(label)
        if theirs:
            known = [(a, b) for a, b in zip(x, theirs, strict=True) if b is not None]
            marks: Any = {"marker": "D", "s": 18, "facecolor": "white", "edgecolor": "black", "zorder": 3}
            axes.scatter([a for a, _ in known], [b for _, b in known], label="paper" if i == 0 else None, **marks)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(ylabel)
    axes.grid(visible=False, axis="x")


def dots(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, tuple[Sequence[float | None], Mapping[str, Any]]],
    xlabel: str,
) -> None:
    """One line per group from the top, on which every series has a dot in the colour of its look."""
    rows = range(len(groups))
    for row in rows:
        known = [value for values, _ in series.values() if (value := values[row]) is not None]
        if known:
            axes.plot([min(known), max(known)], [row, row], color="0.85", linewidth=2.5, zorder=1)
    for label, (values, look) in series.items():
        there = [(v, row) for v, row in zip(values, rows, strict=True) if v is not None]
        marks: Any = {"s": 42, "color": look["color"], "zorder": look.get("zorder", 3), "edgecolor": "white"}
        axes.scatter([v for v, _ in there], [row for _, row in there], label=label, linewidth=0.6, **marks)
    axes.set_yticks(rows, groups)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel(xlabel)
    axes.grid(visible=False, axis="y")


def kernel_density(values: Sequence[float], grid: Array | None = None) -> tuple[Array, Array]:
    """How often values occur, smoothed by a Gaussian kernel of Silverman's width: where, and how often."""
    data = np.asarray(values, float)
    if grid is None:
        grid = np.linspace(data.min(), data.max(), POINTS)
    low, high = np.percentile(data, [25, 75])
    width = 0.9 * min(data.std(), (high - low) / 1.34 or data.std()) * data.size**-0.2 or 1.0
    heights = np.exp(-0.5 * ((grid[:, None] - data) / width) ** 2).sum(1) / (data.size * width * np.sqrt(2 * np.pi))
    return grid, heights


def density(axes: Axes, samples: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """The densities of some samples, one line each."""
    low, high = min(min(s) for s in samples.values()), max(max(s) for s in samples.values())
    margin = 0.1 * (high - low) or 1.0
    grid = np.linspace(max(0.0, low - margin), high + margin, POINTS)
    for (label, values), look in zip(samples.items(), looks(list(samples), 1.4), strict=True):
        axes.plot(*kernel_density(values, grid), label=label, **look)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("density")
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(bottom=0)


def legend(axes: Axes) -> None:
    """A legend without a frame."""
    axes.legend(frameon=False, fontsize=8)


def save_figure(figure: Figure, path: Path) -> None:
    """Write ``path``.png and ``path``.pdf; the same figure gives the same bytes."""
    with rc_context(PRINT):
        figure.savefig(path.with_suffix(".png"), dpi=200, metadata={"Software": None})
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None, "Creator": None, "Producer": None})
