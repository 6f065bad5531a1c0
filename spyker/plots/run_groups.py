"""Runs that are looked at together: which belong to one line, what each line is called, and whether they compare.

Runs that differ in their seed alone are one line. A line is called after its algorithm and whatever else is not the
same in all of them. What makes numbers of two lines mean different things is said, beside every figure and table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from spyker.algorithms.builtin import ALGORITHMS
from spyker.plots.curves import Curve, curve, other_curves, targets
from spyker.records import RecordError, RunRecord, RunStarted

Settings: TypeAlias = dict[str, object]
COMMON = ("task", "world", "training", "evaluation")  # other sections are algorithms'
NOT_THE_ALGORITHMS = ("task.", "world.", "evaluation.", "training.delay-ms")  # who learns does not choose these
LONGEST = 24  # characters of a value, in a label


@dataclass(frozen=True, slots=True)
class RunGroups:
    """Runs as lines: by label, one curve per seed."""

    lines: Mapping[str, Sequence[Curve]]
    targets: Sequence[float]
    about: str
    """What all of them are runs of: task, clients, seeds."""
    unlike: Sequence[str]
    """The keys in which they differ though they should not, if they are to be compared."""
    others: Mapping[str, Mapping[str, Sequence[Curve]]] = field(default_factory=dict)
    """What else all of them measured, by name: the same lines."""

    def of(self, metric: str) -> RunGroups:
        """The same runs by something else that they measured."""
        if metric == self.first.metric:
            return self
        if metric not in self.others:
            known = listed([self.first.metric, *self.others])
            raise RecordError(f"{metric!r} was not measured in all of these runs. There is {known}")
        return replace(self, lines=self.others[metric], targets=())

    @property
    def first(self) -> Curve:
        """One of the curves: they have their metric in common."""
        return next(iter(self.lines.values()))[0]

    @property
    def warning(self) -> str:
        """What to keep in mind, if they cannot be compared as they stand."""
        return f"not comparable as they stand: they differ in {listed(self.unlike)}" if self.unlike else ""


def together(runs: Sequence[RunRecord]) -> RunGroups:
    """Put runs into lines. Runs with different metrics have no axis in common."""
    runs = list({run.folder.resolve(): run for run in runs}.values())
    metrics = {(run.start.metric, run.start.higher_is_better): run.folder for run in runs}
    if len(metrics) > 1:
        twice = len({metric for metric, _ in metrics}) < len(metrics)
        examples = listed(
            f"{metric}{(', more is better', ', less is better')[not up] if twice else ''} ({folder})"
            for (metric, up), folder in metrics.items()
        )
        raise RecordError(f"these runs have different metrics: {examples}. Name runs of one metric at a time")
    all_settings = [settings(run) for run in runs]
    groups: dict[str, list[int]] = {}
    for i, (run, found) in enumerate(zip(runs, all_settings, strict=True)):
        groups.setdefault(f"{run.start.title} {sorted(found.items())}", []).append(i)
    grouped: list[list[int]] = []
    for members in groups.values():
        seeds = {runs[i].start.seed for i in members}
        grouped += [members] if len(seeds) == len(members) else [[i] for i in members]
    differing = differences(all_settings)
    titles = list(dict.fromkeys(run.start.title for run in runs))
    grouped.sort(
        key=lambda g: (titles.index(runs[g[0]].start.title), [ranked(all_settings[g[0]].get(k)) for k in differing])
    )
    names = labels([runs[group[0]] for group in grouped], [all_settings[group[0]] for group in grouped], differing)
    unlike = [key for key in differing if key.startswith(NOT_THE_ALGORITHMS) or key == "place"]
    if len({tuple(sorted(runs[i].start.seed for i in group)) for group in grouped}) > 1:
        unlike.append("seed")
    lines = {name: [curve(runs[i]) for i in group] for name, group in zip(names, grouped, strict=True)}
    more = [other_curves(run) for run in runs]
    common = [name for name in more[0] if all(name in each for each in more)]
    others = {
        metric: {name: [more[i][metric] for i in group] for name, group in zip(names, grouped, strict=True)}
        for metric in common
    }
    return RunGroups(lines, targets(runs), about(runs), unlike, others)


def settings(run: RunRecord) -> Settings:
    """What a run depends on, but for its seed, by key; what follows from other keys counts as not set."""
    return settings_of(run.start, run.scenario)


def settings_of(start: RunStarted, scenario: Mapping[str, Any]) -> Settings:
    """The same, from its first fact and its scenario."""
    algorithm = ALGORITHMS.get(start.algorithm)
    others = {other.section for other in ALGORITHMS.values()} - ({algorithm.section} if algorithm else set())
    found: Settings = {"place": start.world, "task.name": start.task, "world.clients": start.clients}
    for key, value in flat(scenario):
        section, dot, _ = key.partition(".")
        if (dot and section not in others) or key == "duration":
            found.setdefault(key, value)
    spread = scenario.get("world", {}).get("clients", [])
    if spread and max(spread) - min(spread) > 1:
        found["world.clients"] = spread
    resolve = getattr(algorithm.Parameters(), "resolve", None) if algorithm else None
    if algorithm and resolve:
        usual = resolve(start.clients, sum(server.clients is not None for server in start.servers))
        for name in usual.__dataclass_fields__:
            key = f"{algorithm.section}.{name.replace('_', '-')}"
            if getattr(algorithm.Parameters(), name) is None and found.get(key) == getattr(usual, name):
                found[key] = None
    return found


def flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """The keys of a table and of those in it, with dots between them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def differences(all_settings: Sequence[Settings]) -> list[str]:
    """The keys that are not the same everywhere. Those of an algorithm's section are compared where it runs."""
    found = []
    for key in dict.fromkeys(key for one in all_settings for key in one):
        section, dot, _ = key.partition(".")
        of_algorithm = dot and section not in COMMON
        asked = [one for one in all_settings if not of_algorithm or any(k.startswith(f"{section}.") for k in one)]
        if any(one.get(key) != asked[0].get(key) for one in asked):
            found.append(key)
    return found


def ranked(value: object) -> tuple[float, str]:
    """By what values are put in order: numbers by their size, others by their letters."""
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value))


def labels(runs: Sequence[RunRecord], all_settings: Sequence[Settings], differing: Sequence[str]) -> list[str]:
    """Names that say what differs, and where that is not enough, the folder."""
    named = []
    for run, found in zip(runs, all_settings, strict=True):
        words = [word for key in differing if (word := in_words(key, found.get(key)))]
        named.append(", ".join([run.start.title, *words]))
    tails = shortest_tails(runs)
    return [name if named.count(name) == 1 else f"{name}, {tail}" for name, tail in zip(named, tails, strict=True)]


def in_words(key: str, value: object) -> str:
    """A setting as part of a label; nothing if it is too long for that, or not set."""
    if value is None:
        return ""
    text = " ".join(map(written, value)) if isinstance(value, list) else written(value)
    words = {"world.clients": f"{text} clients", "duration": f"{text} s", "task.name": text, "place": text}
    return words.get(key, f"{key.partition('.')[2]} = {text}") if len(text) <= LONGEST else ""


def written(value: object) -> str:
    """A value for people."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def shortest_tails(runs: Sequence[RunRecord]) -> list[str]:
    """The last parts of each folder's path, as many as it takes to tell them apart."""
    paths = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        tails = ["/".join(path[-depth:]) for path in paths]
        if len(set(tails)) == len(tails):
            break
    return tails


def about(runs: Iterable[RunRecord]) -> str:
    """Task, clients and seeds of some runs, in words."""
    starts = [run.start for run in runs]
    tasks = sorted({start.task for start in starts})
    clients = sorted({start.clients for start in starts})
    return f"{listed(tasks)}, {listed(map(str, clients))} clients, {seeds_in_words({s.seed for s in starts})}"


def seeds_in_words(seeds: Iterable[int]) -> str:
    """Which seeds."""
    known = sorted(set(seeds))
    if len(known) == 1:
        return f"seed {known[0]}"
    in_a_row = len(known) > 2 and known[-1] - known[0] == len(known) - 1
    return f"seeds {known[0]} to {known[-1]}" if in_a_row else f"seeds {listed(map(str, known))}"


def listed(words: Iterable[str]) -> str:
    """Words with commas and an *and*."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
