"""Tuned: every algorithm with the best of eight settings, found on MNIST images for validation.

``tuning`` is the search, ``tuned`` its result on test images, ``tuned-cifar10`` and ``tuned-wikitext2`` the same
settings on data that they were not tuned for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from spyker.config.presets import PRESETS
from spyker.plots.figures import describe_lines, lines
from spyker.plots.samples import SeedSample
from spyker_lab.paper.claims import NOT_REACHED, truth
from spyker_lab.paper.item import ALGORITHM_TITLES, NOT_IN_PAPER, Item, Results, Section, Settings, Table
from spyker_lab.paper.items.accuracy import CIFAR10_LEAST, common_levels, first_of, level_head, not_behind
from spyker_lab.print_figures import BARS, bars, legend, panels

TARGETS = (0.9, 0.95)
TUNING_TARGET = 0.8  # reached early, so that a search is cheap
# Eight combinations per algorithm, the same budget for all. The paper's value, if it is one of them, comes first and
# therefore wins a tie.
GRIDS: dict[str, dict[str, Sequence[object]]] = {
    "spyker": {"training.rate": (0.1, 0.3), "spyker.client-rate": (0.6, 0.3), "spyker.h-inter": (5.0, 1.0)},
    "sync-spyker": {"training.rate": (0.1, 0.3), "spyker.client-rate": (0.6, 0.3), "spyker.h-intra": (100.0, 25.0)},
    "fedasync": {
        "training.rate": (0.1, 0.3),
        "fedasync.client-rate": (0.6, 0.3),
        "fedasync.staleness-exponent": (0.5, 0.25),
    },
    "hierfavg": {"training.rate": (0.1, 0.2, 0.3, 0.5), "hierfavg.edge-rounds": (1, 4)},
    "fedavg": {"training.rate": (0.1, 0.2, 0.3, 0.5), "fedavg.fraction": (1.0, 0.5)},
}


def combinations(algorithm: str) -> dict[str, dict[str, object]]:
    """Return the eight settings of an algorithm by name."""
    grid = GRIDS[algorithm]
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return {name(ALGORITHM_TITLES[algorithm], point): point for point in points}


def name(title: str, point: Settings) -> str:
    """Return the name of a run, made from its settings."""
    return f"{title}, " + ", ".join(f"{key.partition('.')[2]} = {value}" for key, value in point.items())


def tell_tuning(results: Results) -> Section:
    """Return the section of the search; the best setting of each algorithm is marked."""
    rows, best, winners = [], {}, {}
    for algorithm, title in ALGORITHM_TITLES.items():
        found = {label: results.time_to(label, TUNING_TARGET) for label in combinations(algorithm)}
        winners[title] = winner = min(found, key=lambda label: at_least(found[label], results.settings[label]))
        best[title] = found[winner]
        for label in found:
            mark = "**best**" if label == winner else ""
            rows.append([label, found[label].text(".3g", " s"), results.final(label).text(".3g"), mark])
    figure, (axes,) = panels(1)
    bars(axes, ["best of eight"], {title: [found] for title, found in best.items()}, {}, "virtual time to 80 % (s)")
    legend(axes, above=True)
    caption = f"Time to 80 % on held-back training images with each algorithm's best settings. {BARS}"
    heads = ["", "time to 80 %", "accuracy when stopped", ""]
    return Section([], [Table("", heads, rows)], figure, caption, {}, beside_preset(winners))


def at_least(times: SeedSample, settings: Settings) -> float:
    """Return the mean of times; a run that did not reach the target counts with its duration, a lower bound."""
    duration = float(str(settings["duration"]))
    return sum(duration if n is None else n for n in times.numbers) / max(1, len(times.numbers))


def beside_preset(winners: dict[str, str]) -> str:
    """Compare the preset, which comes from a quick search with two seeds, with the result of this search."""
    other = []
    for algorithm, title in ALGORITHM_TITLES.items():
        preset = name(title, PRESETS["tuned"][algorithm])
        if winners[title] != preset:
            other.append(f"“{preset}” instead of “{winners[title]}”")
    if not other:
        return "The preset `tuned` has these best settings."
    return f"The preset `tuned` is from another search, and has {'; '.join(other)}."


def tell_tuned(targets: Sequence[float], results: Results, least: float | None = None) -> Section:
    """Return the section: both presets side by side."""
    metric = next((c.metric for label in results.labels for c in results.curves(label) if c is not None), "score")
    levels = common_levels(results, least)
    level = {label: results.to_level(label, levels) for label in results.labels}
    rows = []
    for label in results.labels:
        cells = [label, level[label].text(".3g", " s"), *results.times(label, targets)]
        rows.append([*cells, results.final(label).text(".4g")])
    heads = ["", level_head(levels, least), *results.heads(targets), f"final {metric}"]
    tuned = {title: level[f"{title}, tuned"] for title in ALGORITHM_TITLES.values()}
    claims = [
        truth(
            "Spyker is the fastest of all five, when every algorithm is tuned",
            first_of(tuned, "Spyker"),
            not_behind(tuned, "Spyker", ahead=False),
            undecided=NOT_REACHED if least is None else f"nobody reached {least:g}",
        )
    ]
    figure, (left, right) = panels(2)
    for axes, ending in ((left, ""), (right, ", tuned")):
        curves = {title: results.curves(title + ending) for title in ALGORITHM_TITLES.values()}
        lines(axes, curves, "time", "virtual time (s)", metric, targets)
        axes.set_title("preset tuned" if ending else "preset paper", fontsize=9, loc="left")
    legend(left)
    drawn = {label: results.curves(label) for label in results.labels}
    caption = f"The five algorithms with the paper's parameters and with tuned ones. {describe_lines(drawn, targets)}"
    return Section(claims, [Table("", heads, rows)], figure, caption, {})


def both_presets() -> dict[str, Settings]:
    """Return every algorithm with the paper's settings, then tuned."""
    plain: dict[str, Settings] = {title: {"algorithm": a} for a, title in ALGORITHM_TITLES.items()}
    tuned = {f"{title}, tuned": {"algorithm": a, **PRESETS["tuned"][a]} for a, title in ALGORITHM_TITLES.items()}
    return plain | tuned


TUNING = Item(
    name="tuning",
    paper=NOT_IN_PAPER,
    shows="The search for each algorithm's best settings, on held-back MNIST images",
    task="mnist",
    runs={
        label: {**point, "algorithm": algorithm, "evaluation.stop-at": TUNING_TARGET, "evaluation.interval": 0.25}
        for algorithm in ALGORITHM_TITLES
        for label, point in combinations(algorithm).items()
    },
    tell=tell_tuning,
    minutes={"quick": 7, "full": 1272},
    sizes={"quick": {"duration": 8.0}, "full": {"duration": 60.0}},
    validation=True,
)
TUNED = Item(
    name="tuned",
    paper=NOT_IN_PAPER,
    shows="Time to 90 % and 95 % of all five on MNIST's test images, with the paper's parameters and tuned",
    task="mnist",
    runs=both_presets(),
    tell=partial(tell_tuned, TARGETS),
    minutes={"quick": 4, "full": 979},
    sizes={"quick": {"duration": 8.0}, "full": {"duration": 120.0}},
)
TUNED_CIFAR10 = Item(
    name="tuned-cifar10",
    paper=NOT_IN_PAPER,
    shows="The settings tuned on MNIST, on CIFAR-10",
    task="cifar10",
    runs=both_presets(),
    tell=partial(tell_tuned, (), least=CIFAR10_LEAST),
    minutes={"quick": 2, "full": 4969},
    sizes={"quick": {"duration": 8.0}, "full": {"duration": 120.0}},
)
TUNED_WIKITEXT2 = Item(
    name="tuned-wikitext2",
    paper=NOT_IN_PAPER,
    shows="The settings tuned on MNIST, on WikiText-2",
    task="wikitext2",
    runs=both_presets(),
    tell=partial(tell_tuned, ()),
    minutes={"quick": 2, "full": 1875},
    sizes={"quick": {"duration": 10.0}, "full": {"duration": 120.0}},
)
