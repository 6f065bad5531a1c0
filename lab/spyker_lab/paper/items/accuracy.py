"""Accuracy, or perplexity, against time and against updates: five algorithms on three datasets."""

from __future__ import annotations

from collections.abc import Sequence

from spyker.plots.figures import describe_lines, lines
from spyker.plots.samples import SeedSample, sample
from spyker_lab.paper.claims import NOT_REACHED, truth
from spyker_lab.paper.comparisons import all_true, is_less, ratio
from spyker_lab.paper.item import ALGORITHM_TITLES, Item, Results, Section, Table
from spyker_lab.print_figures import legend, panels

RUNS = {title: {"algorithm": name} for name, title in ALGORITHM_TITLES.items()}
SPYKER, BASELINES = "Spyker", ("FedAsync", "HierFAVG", "FedAvg")


CIFAR10_LEAST = 0.3  # accuracy; ten classes and a few updates give 0.2, whatever the algorithm


def common_levels(results: Results, least: float | None = None) -> SeedSample:
    """Return for each seed the best score that all algorithms reached, at most the target, to compare them there.

    An accuracy below ``least`` is too close to chance for a comparison: an algorithm that does not reach it counts as
    later than one that does. So does one that diverged.
    """
    goals = [float(str(s["evaluation.stop-at"])) for s in results.settings.values() if "evaluation.stop-at" in s]
    levels: list[float | None] = []
    for curves in zip(*(results.curves(label) for label in results.labels), strict=True):
        known = [c for c in curves if c is not None]
        best = [(max if c.higher_is_better else min)(c.mean) for c in known]
        worst_of_best = min if known and known[0].higher_is_better else max
        level = worst_of_best([*best, *goals]) if known else None
        levels.append(level if level is None or least is None else max(level, least))
    return sample(levels)


def level_head(levels: SeedSample, least: float | None) -> str:
    """Return the heading of a column of times to :func:`common_levels`."""
    enough = "" if least is None else f", {least:g} or more"
    return f"time to the level all reach{enough} ({levels.text('.3g')})"


def first_of(samples: dict[str, SeedSample], label: str) -> list[bool | None]:
    """Return for each seed whether ``label`` is faster than all others."""
    others = [s.ranges for name, s in samples.items() if name != label]
    rows = zip(samples[label].ranges, *others, strict=True)
    return [all_true(is_less(mine, theirs) for theirs in row) for mine, *row in rows]


def last_of(samples: dict[str, SeedSample], label: str) -> list[bool | None]:
    """Return for each seed whether ``label`` is slower than all others."""
    others = [s.ranges for name, s in samples.items() if name != label]
    rows = zip(samples[label].ranges, *others, strict=True)
    return [all_true(is_less(theirs, mine) for theirs in row) for mine, *row in rows]


def not_behind(samples: dict[str, SeedSample], label: str, *, ahead: bool) -> str:
    """Return the algorithms that on average are no slower than ``label``; with ``ahead``, no faster."""
    mine, found = samples[label].mean_range, []
    for name, theirs in samples.items():
        pair = (theirs.mean_range, mine) if ahead else (mine, theirs.mean_range)
        if name != label and is_less(*pair) is False:
            found.append(name)
    return f"{' and '.join(found)}: no {'earlier' if ahead else 'later'}" if found else "the seeds differ"


def tell(targets: Sequence[float], name: str, results: Results, least: float | None = None) -> Section:
    """Return the section of one dataset. Algorithms are compared at the first target, or at the best common level."""
    metric = next((c.metric for label in results.labels for c in results.curves(label) if c is not None), "score")
    levels = sample([targets[0]] * len(results.curves(SPYKER))) if targets else common_levels(results, least)
    time = {label: results.to_level(label, levels) for label in results.labels}
    updates = {label: results.to_level(label, levels, updates=True) for label in results.labels}
    figure, (left, right) = panels(2)
    curves = {label: results.curves(label) for label in results.labels}
    lines(left, curves, "time", "virtual time (s)", metric, targets)
    lines(right, curves, "updates", "client updates", metric, targets)
    legend(left)
    by_level = [] if targets else [level_head(levels, least)]
    heads = [
        "",
        *by_level,
        *results.heads(targets),
        "updates to it" if by_level else f"updates to {targets[0]:.0%}",
        f"final {metric}",
    ]
    rows = []
    for label in results.labels:
        cells = [label, *([] if targets else [time[label].text(".3g", " s")]), *results.times(label, targets)]
        cells.append(updates[label].text(",.0f"))
        rows.append([*cells, results.final(label).text(".4g")])
    compared = {label: time[label] for label in (SPYKER, *BASELINES)}
    more_updates = ratio(updates[SPYKER], updates["FedAsync"])
    undecided = NOT_REACHED if least is None else f"nobody reached {least:g}"
    claims = [
        truth(
            f"Spyker converges faster in time than {', '.join(BASELINES[:-1])} and {BASELINES[-1]}",
            first_of(compared, SPYKER),
            not_behind(compared, SPYKER, ahead=False),
            undecided=undecided,
        ),
        truth(
            "FedAvg is the slowest in time",
            last_of(time, "FedAvg"),
            not_behind(time, "FedAvg", ahead=True),
            undecided=undecided,
        ),
        truth(
            "Spyker needs no more client updates than the others (at most 1.25 × FedAsync's)",
            more_updates.at_most(1.25),
            "a Spyker update reaches one of four models, a FedAsync update the only one",
            more_updates,
            undecided,
        ),
    ]
    caption = f"{name}: {metric} against time and against client updates. {describe_lines(curves, targets)}"
    return Section(claims, [Table("", heads, rows)], figure, caption, {})


MNIST = Item(
    name="mnist",
    paper="Figs. 5 and 6",
    shows="Accuracy of five algorithms on MNIST against time and client updates",
    task="mnist",
    runs=RUNS,
    tell=lambda results: tell((0.9, 0.95), "MNIST", results),
    minutes={"quick": 2, "standard": 5, "full": 489},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
)
CIFAR10 = Item(
    name="cifar10",
    paper="Figs. 7 and 8",
    shows="Accuracy of five algorithms on CIFAR-10 against time and client updates",
    task="cifar10",
    runs=RUNS,
    tell=lambda results: tell((), "CIFAR-10", results, CIFAR10_LEAST),
    minutes={"quick": 1, "standard": 30, "full": 2485},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
)
WIKITEXT2 = Item(
    name="wikitext2",
    paper="Figs. 3 and 4",
    shows="Perplexity of five algorithms on WikiText-2 against time and client updates",
    task="wikitext2",
    runs=RUNS,
    tell=lambda results: tell((), "WikiText-2", results),
    minutes={"quick": 1, "standard": 8, "full": 938},
    sizes={"quick": {"duration": 10.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
)
