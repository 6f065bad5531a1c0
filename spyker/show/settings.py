"""The figure of a sweep: what came of each setting, one panel per measure.

One key with numbers gives a line with a band over the seeds, one per algorithm if those were varied, too; two keys give
a heat map; whatever else was varied, a row per combination.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from spyker.show.looks import looks
from spyker.show.numbers import Sample
from spyker.show.paper import caption
from spyker.show.plots import Picture
from spyker.show.runs import written

WIDTH, ROW = 4.2, 0.32  # inches: of a panel, and between two rows
WRAP = 28  # characters
TIGHT = 0.08  # of an axis
DECADE = 10  # numbers that span as much stand on a logarithmic axis
Points = Sequence[Mapping[str, object]]


def plot_settings(
    points: Points, titles: Sequence[str], measures: Mapping[str, Sequence[Sample]], about: str
) -> Picture:
    """Draw the measures of a sweep's combinations, which all have the same keys, and each the title of an algorithm."""
    keys = list(points[0])
    others = [key for key in keys if key != "algorithm"]
    numbers = len(others) == 1 and all(is_number(point[others[0]]) for point in points)
    height, said = 3.6, "Lines: mean over the seeds; shade: their range; ×: not reached by all of them, or diverged."
    if numbers and len(keys) < 3:
        draw = partial(along, points, titles, others[0])
    elif len(keys) == 2:
        draw = partial(heat, points, keys)
        height = max(height, 1.6 + ROW * len(distinct(points, keys[0])))
        said = "Means over the seeds; darker is larger; grey: not reached by all seeds, or diverged."
    else:
        draw = partial(rows, points, titles)
        height = 1.6 + ROW * len(points) * (1 + max(len(name(point)) for point in points) // WRAP)
        said = "Dots: mean over the seeds; lines: their range; ×: not reached by all of them, or diverged."
    figure = Picture(figsize=(max(6.4, WIDTH * len(measures)), height), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, (measure, samples) in zip(panels, measures.items(), strict=True):
        draw(axes, samples)
        axes.set_title(measure + (" (s)" if measure.startswith("time") else ""), loc="left", fontsize=10)
    if draw.func is along:
        if len(set(titles)) > 1:
            panels[-1].legend(frameon=False, fontsize=8)
    else:
        for axes in panels[1:]:  # rows have the same names in every panel
            axes.tick_params(labelleft=False)
            axes.set_ylabel("")
    caption(figure, f"{about}. {said}")
    return figure


def is_number(value: object) -> bool:
    """Whether a value has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def named(value: object) -> str:
    """A value on an axis."""
    text = " ".join(map(written, value)) if isinstance(value, list | tuple) else written(value)
    return textwrap.fill(text, WRAP)


def name(point: Mapping[str, object]) -> str:
    """A combination on an axis."""
    return ", ".join(named(v) if k == "algorithm" else f"{short(k)} = {named(v)}" for k, v in point.items())


def short(key: str) -> str:
    """A key without its section."""
    return key.rpartition(".")[2]


def distinct(points: Points, key: str) -> list[str]:
    """The values of a key, each once."""
    return list(dict.fromkeys(named(point[key]) for point in points))


def along(points: Points, titles: Sequence[str], key: str, axes: Axes, samples: Sequence[Sample]) -> None:
    """The mean against a number, and the range of the seeds as a band; one line per algorithm."""
    series: dict[str, list[tuple[float, Sample]]] = {}
    for point, title, measured in zip(points, titles, samples, strict=True):
        series.setdefault(title, []).append((float(str(point[key])), measured))
    for i, ((label, found), look) in enumerate(zip(series.items(), looks(list(series), 1.4), strict=True)):
        places = sorted(found, key=lambda place: place[0])
        there = [(x, s.mean, s.known) for x, s in places if s.mean is not None]
        at = [x for x, _, _ in there]
        axes.plot(at, [mean for _, mean, _ in there], marker="o", markersize=4, label=label, **look)
        low, high = [min(known) for _, _, known in there], [max(known) for _, _, known in there]
        axes.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
        absent = [x for x, s in places if s.mean is None]
        cross: Any = {"marker": "x", "linestyle": "", "color": look["color"], "clip_on": False}
        for x in absent:
            axes.plot([x], [0.97 - 0.05 * i], transform=axes.get_xaxis_transform(), **cross)
    values = sorted({float(str(point[key])) for point in points})
    if values[0] > 0 and values[-1] >= DECADE * values[0]:
        axes.set_xscale("log")
    scaled = np.log(values) if axes.get_xscale() == "log" else np.array(values)
    apart = np.diff(scaled, prepend=-np.inf) > TIGHT * (scaled[-1] - scaled[0])  # or else their names overlap
    axes.set_xticks(values, [f"{value:g}" if free else "" for value, free in zip(values, apart, strict=True)])
    axes.minorticks_off()
    axes.set_xlabel(key)
    axes.margins(y=0.15)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def heat(points: Points, keys: Sequence[str], axes: Axes, samples: Sequence[Sample]) -> None:
    """The means as shades, the first key from top to bottom, the second from left to right."""
    down, across = (distinct(points, key) for key in keys)
    means = np.full((len(down), len(across)), np.nan)
    axes.set_facecolor("0.85")
    for point, found in zip(points, samples, strict=True):
        place = down.index(named(point[keys[0]])), across.index(named(point[keys[1]]))
        means[place] = np.nan if found.mean is None else found.mean
    axes.imshow(means, aspect="auto", cmap="Blues")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2 if np.isfinite(means).any() else 0.0
    for point, found in zip(points, samples, strict=True):
        row, column = down.index(named(point[keys[0]])), across.index(named(point[keys[1]]))
        text = "not reached" if found.text() == "–" else found.text(".3g").replace(" (", "\n(").replace(" ±", "\n±")
        dark = found.mean is not None and found.mean > middle
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "0.15")
    axes.set_yticks(range(len(down)), down)
    axes.set_xticks(range(len(across)), across)
    axes.set_ylabel(keys[0])
    axes.set_xlabel(keys[1])


def rows(points: Points, titles: Sequence[str], axes: Axes, samples: Sequence[Sample]) -> None:
    """A row per combination, from the top: a dot for the mean, a line for the range of the seeds."""
    colours = {title: looks([title])[0]["color"] for title in titles}
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
    axes.set_yticks(range(len(points)), [textwrap.fill(name(point), WRAP, break_on_hyphens=False) for point in points])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
