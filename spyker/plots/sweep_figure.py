"""The figure of a sweep: results by setting, one panel per measure.

One numeric key is drawn as a line per algorithm with a band over seeds, two keys as a heat map, and everything else as
one row per combination.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from spyker.plots.figures import caption
from spyker.plots.run_groups import format_value
from spyker.plots.run_plots import NotebookFigure
from spyker.plots.samples import SeedSample
from spyker.plots.styles import line_styles

WIDTH, ROW = 4.2, 0.32  # inches: panel width and row height
WRAP = 28  # characters
TIGHT = 0.08  # minimum distance of tick labels, as a share of the axis
DECADE = 10  # ratio of the largest to the smallest value from which on the axis is logarithmic
BAND, BAND_GAP = 15.0, 4.0  # points: height of the band for missing values, and the gap below it
CROSS, CROSS_WORD = 8.0, 3.2  # points: width of a cross, and of a letter of its label
Points = Sequence[Mapping[str, object]]


def plot_settings(
    points: Points, titles: Sequence[str], measures: Mapping[str, Sequence[SeedSample]], about: str
) -> NotebookFigure:
    """Draw the measures of a sweep.

    Args:
        points: the combinations of settings; all have the same keys.
        titles: title of the algorithm of each combination.
        measures: one sample per combination, by name of the measure.
        about: description of the runs, for the caption.

    """
    keys = list(points[0])
    others = [key for key in keys if key != "algorithm"]
    numbers = len(others) == 1 and all(is_number(point[others[0]]) for point in points)
    several = max(len(found.numbers) for samples in measures.values() for found in samples) > 1
    missing = any(found.mean is None for samples in measures.values() for found in samples)
    absent = "not reached by all seeds, or diverged" if several else "not reached, or diverged"
    height, legend = 3.6, "Lines: mean over seeds; shades and bars: range" if several else "Dots: one run each"
    if numbers and len(keys) < 3:
        draw = partial(draw_lines, points, titles, others[0])
    elif len(keys) == 2:
        draw = partial(draw_heat_map, points, keys)
        height = max(height, 1.6 + ROW * len(distinct(points, keys[0])))
        legend = f"{'Mean over seeds ± standard deviation' if several else 'One run each'}; darker is larger"
    else:
        draw = partial(draw_rows, points, titles)
        height = 1.6 + ROW * len(points) * (1 + max(len(point_name(point)) for point in points) // WRAP)
        legend = "Dots: mean over seeds; lines: range" if several else "Dots: one run each"
    figure = NotebookFigure(figsize=(max(6.4, WIDTH * len(measures)), height), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, (measure, samples) in zip(panels, measures.items(), strict=True):
        draw(axes, samples)
        timed, banded = measure.startswith("time"), draw.func is draw_lines and missing
        title: Any = {"loc": "left", "fontsize": 10} | ({"pad": BAND + 2 * BAND_GAP} if banded else {})
        axes.set_title(measure + (" (s)" if timed else ""), **title)
        if banded and any(found.mean is None for found in samples):
            label_band(axes, "not reached" if timed else "diverged")
    if draw.func is draw_lines:
        if len(set(titles)) > 1:
            panels[-1].legend(frameon=False, fontsize=8)
    else:
        for axes in panels[1:]:  # all panels have the same rows
            axes.tick_params(labelleft=False)
            axes.set_ylabel("")
    if missing:
        legend += f"; {'grey' if draw.func is draw_heat_map else '×'}: {absent}"
    if draw.func is draw_lines and any(found.mean is None and found.known for m in measures.values() for found in m):
        legend += "; next to it: number of seeds that reached it"
    algorithm = f"{titles[0]}, " if len(set(titles)) == 1 else ""
    caption(figure, f"{algorithm}{about}. {legend}.")
    return figure


def is_number(value: object) -> bool:
    """Return whether a value can be on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def axis_text(value: object) -> str:
    """Format a value for an axis."""
    text = " ".join(map(format_value, value)) if isinstance(value, list | tuple) else format_value(value)
    return textwrap.fill(text, WRAP)


def point_name(point: Mapping[str, object]) -> str:
    """Format a combination for an axis."""
    return ", ".join(axis_text(v) if k == "algorithm" else f"{key_name(k)} = {axis_text(v)}" for k, v in point.items())


def key_name(key: str) -> str:
    """Return a key without its section."""
    return key.rpartition(".")[2]


def distinct(points: Points, key: str) -> list[str]:
    """Return the distinct values of a key, formatted."""
    return list(dict.fromkeys(axis_text(point[key]) for point in points))


def draw_lines(points: Points, titles: Sequence[str], key: str, axes: Axes, samples: Sequence[SeedSample]) -> None:
    """Draw the mean over a numeric key with the range over seeds, one line per algorithm.

    A combination without a mean is a cross in a band above the axis, and interrupts the line.
    """
    series: dict[str, list[tuple[float, SeedSample]]] = {}
    for point, title, measured in zip(points, titles, samples, strict=True):
        series.setdefault(title, []).append((float(str(point[key])), measured))
    absent: dict[float, list[tuple[SeedSample, str]]] = {}
    for (label, found), style in zip(series.items(), line_styles(list(series), 1.4), strict=True):
        places = sorted(found, key=lambda place: place[0])
        at = [x for x, _ in places]
        known = [(np.nan,) * 3 if s.mean is None else (s.mean, min(s.known), max(s.known)) for _, s in places]
        means, low, high = np.array(known).T
        axes.plot(at, means, marker="o", markersize=4, label=label, **style)
        axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
        there = np.isfinite(means)
        alone = there & (low < high) & ~np.append(there[1:], False) & ~np.append(False, there[:-1])
        for i in np.flatnonzero(alone):  # a band of a single point has no width
            reach = [[means[i] - low[i]], [high[i] - means[i]]]
            axes.errorbar([at[i]], [means[i]], reach, fmt="none", ecolor=style["color"], capsize=3, elinewidth=1)
        for x, measured in places:
            if measured.mean is None:
                absent.setdefault(x, []).append((measured, style["color"]))
    for x, crosses in absent.items():
        draw_crosses(axes, x, crosses)
    if all(measured.mean is None for measured in samples):
        axes.set_yticks([])
    values = sorted({float(str(point[key])) for point in points})
    if values[0] > 0 and values[-1] >= DECADE * values[0]:
        axes.set_xscale("log")
    scaled = np.log(values) if axes.get_xscale() == "log" else np.array(values)
    apart = np.diff(scaled, prepend=-np.inf) > TIGHT * (scaled[-1] - scaled[0])  # other labels would overlap
    axes.set_xticks(values, [f"{value:g}" if free else "" for value, free in zip(values, apart, strict=True)])
    axes.minorticks_off()
    margin = TIGHT * (scaled[-1] - scaled[0] or 1.0)  # explicit, because crosses are ignored by automatic limits
    ends = np.array([scaled[0] - margin, scaled[-1] + margin])
    axes.set_xlim(*(np.exp(ends) if axes.get_xscale() == "log" else ends))
    axes.set_xlabel(key)
    axes.margins(y=0.15)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def band_transform(axes: Axes, across: Transform, right: float = 0.0) -> Transform:
    """Return the transform to the middle of the band above the axes, shifted ``right`` by some points."""
    shift = ScaledTranslation(right / 72, (BAND_GAP + BAND / 2) / 72, axes.figure.dpi_scale_trans)
    return blended_transform_factory(across, axes.transAxes) + shift


def draw_crosses(axes: Axes, x: float, crosses: Sequence[tuple[SeedSample, str]]) -> None:
    """Draw crosses side by side in the band, in the colours of their lines, with the number of successful seeds."""
    words = [f"{len(found.known)} of {len(found.numbers)}" if found.known else "" for found, _ in crosses]
    widths = [CROSS + CROSS_WORD * len(word) for word in words]
    start = CROSS / 2 - (sum(widths) / 2 if len(crosses) > 1 else CROSS / 2)  # a single cross is centred
    for (_, colour), word, width in zip(crosses, words, widths, strict=True):
        axes.plot(
            [x], [1], marker="x", markersize=5, linestyle="", color=colour, clip_on=False,
            transform=band_transform(axes, axes.transData, start),
        )  # fmt: skip
        if word:
            place = band_transform(axes, axes.transData, start + CROSS / 2)
            axes.text(x, 1, word, transform=place, fontsize=6, color=colour, va="center")
        start += width


def label_band(axes: Axes, word: str) -> None:
    """Draw the band above the axes with a label."""
    place = band_transform(axes, axes.transAxes)
    style: Any = {"color": "0.93", "linewidth": BAND, "solid_capstyle": "butt", "clip_on": False, "zorder": 0}
    axes.plot([0, 1], [1, 1], transform=place, scalex=False, scaley=False, **style)
    axes.text(-0.015, 1, word, transform=place, fontsize=7, color="0.3", ha="right", va="center")


def draw_heat_map(points: Points, keys: Sequence[str], axes: Axes, samples: Sequence[SeedSample]) -> None:
    """Draw the means as a heat map with the first key downwards and the second to the right."""
    down, across = (distinct(points, key) for key in keys)
    means = np.full((len(down), len(across)), np.nan)
    axes.set_facecolor("0.85")
    for point, found in zip(points, samples, strict=True):
        place = down.index(axis_text(point[keys[0]])), across.index(axis_text(point[keys[1]]))
        means[place] = np.nan if found.mean is None else found.mean
    axes.imshow(means, aspect="auto", cmap="Blues")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2 if np.isfinite(means).any() else 0.0
    for point, found in zip(points, samples, strict=True):
        row, column = down.index(axis_text(point[keys[0]])), across.index(axis_text(point[keys[1]]))
        text = "not reached" if found.text() == "–" else found.text(".3g").replace(" (", "\n(").replace(" ±", "\n±")
        dark = found.mean is not None and found.mean > middle
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "0.15")
    axes.set_yticks(range(len(down)), down)
    axes.set_xticks(range(len(across)), across)
    axes.set_ylabel(keys[0])
    axes.set_xlabel(keys[1])


def draw_rows(points: Points, titles: Sequence[str], axes: Axes, samples: Sequence[SeedSample]) -> None:
    """Draw one row per combination, from the top: a dot for the mean, a line for the range over seeds."""
    colours = {title: line_styles([title])[0]["color"] for title in titles}
    for row, (title, found) in enumerate(zip(titles, samples, strict=True)):
        if found.mean is None:
            cross: Any = {
                "marker": "x",
                "color": colours[title],
                "transform": axes.get_yaxis_transform(),
                "clip_on": False,
            }
            axes.plot([0.98], [row], **cross)
        else:
            axes.plot([min(found.known), max(found.known)], [row, row], color=colours[title], alpha=0.35, linewidth=3)
            axes.plot([found.mean], [row], marker="o", markersize=5, color=colours[title])
    labels = [textwrap.fill(point_name(point), WRAP, break_on_hyphens=False) for point in points]
    axes.set_yticks(range(len(points)), labels)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
