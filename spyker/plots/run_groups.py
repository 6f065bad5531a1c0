"""Grouping of runs into lines of a plot or table, with labels and a check that they are comparable.

Runs that differ only in their seed form one line. Its label is the algorithm and every setting that differs between
lines. Differences that make numbers incomparable, such as another task, are reported with every figure and table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from spyker.algorithms.builtin import ALGORITHMS
from spyker.plots.curves import Curve, curve, other_curves, targets
from spyker.records import RecordError, RunRecord, RunStarted
from spyker.records.client_scores import clients_per_region

Settings: TypeAlias = dict[str, object]
COMMON = ("task", "world", "training", "evaluation")  # all other sections belong to algorithms
EXPERIMENT = ("task.", "world.", "evaluation.", "training.delay-ms")  # settings that comparable runs share
LONGEST = 24  # characters of a value in a label


@dataclass(frozen=True, slots=True)
class RunGroups:
    """Runs grouped into lines."""

    lines: Mapping[str, Sequence[Curve]]
    """By label, one curve per seed."""
    targets: Sequence[float]
    about: str
    """Task, clients and seeds, in words."""
    incomparable: Sequence[str]
    """Keys of differing settings that make the runs incomparable."""
    others: Mapping[str, Mapping[str, Sequence[Curve]]] = field(default_factory=dict)
    """Lines of the further metrics that all runs have, by name."""

    def of(self, metric: str) -> RunGroups:
        """Return the same groups for another metric.

        Raises:
            RecordError: not all runs have this metric.

        """
        if metric == self.first.metric:
            return self
        if metric not in self.others:
            known = join_words([self.first.metric, *self.others])
            raise RecordError(f"metric: {metric!r} is not in all of these runs. Choose {known}")
        return replace(self, lines=self.others[metric], targets=())

    @property
    def first(self) -> Curve:
        """The first curve; all curves have the same metric."""
        return next(iter(self.lines.values()))[0]

    @property
    def warning(self) -> str:
        """A warning if the runs are not comparable, otherwise empty."""
        return f"not comparable: the runs differ in {join_words(self.incomparable)}" if self.incomparable else ""


def group_runs(runs: Sequence[RunRecord]) -> RunGroups:
    """Group runs into lines.

    Raises:
        RecordError: the runs have different metrics.

    """
    runs = list({run.folder.resolve(): run for run in runs}.values())
    metrics = {(run.start.metric, run.start.higher_is_better): run.folder for run in runs}
    if len(metrics) > 1:
        twice = len({metric for metric, _ in metrics}) < len(metrics)
        examples = join_words(
            f"{metric}{(', more is better', ', less is better')[not up] if twice else ''} ({folder})"
            for (metric, up), folder in metrics.items()
        )
        raise RecordError(f"the runs have different metrics: {examples}. Choose runs of one metric")
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
        key=lambda g: (titles.index(runs[g[0]].start.title), [sort_key(all_settings[g[0]].get(k)) for k in differing])
    )
    names = labels([runs[group[0]] for group in grouped], [all_settings[group[0]] for group in grouped], differing)
    incomparable = [key for key in differing if key.startswith(EXPERIMENT) or key == "place"]
    if len({tuple(sorted(runs[i].start.seed for i in group)) for group in grouped}) > 1:
        incomparable.append("seed")
    lines = {name: [curve(runs[i]) for i in group] for name, group in zip(names, grouped, strict=True)}
    more = [other_curves(run) for run in runs]
    common = [name for name in more[0] if all(name in each for each in more)]
    others = {
        metric: {name: [more[i][metric] for i in group] for name, group in zip(names, grouped, strict=True)}
        for metric in common
    }
    return RunGroups(lines, targets(runs), about(runs), incomparable, others)


def settings(run: RunRecord) -> Settings:
    """Return the settings of a run except its seed, by key; a value derived from other keys is ``None``."""
    return settings_of(run.start, run.scenario)


def settings_of(start: RunStarted, scenario: Mapping[str, Any]) -> Settings:
    """Return :func:`settings` from the first fact and the scenario of a run."""
    algorithm = ALGORITHMS.get(start.algorithm)
    others = {other.section for other in ALGORITHMS.values()} - ({algorithm.section} if algorithm else set())
    found: Settings = {"place": start.world, "task.name": start.task, "world.clients": start.clients}
    for key, value in flatten(scenario):
        section, dot, _ = key.partition(".")
        if (dot and section not in others) or key == "duration":
            found.setdefault(key, value)
    spread = clients_per_region(scenario)
    if spread and max(spread) - min(spread) > 1:
        found["world.clients"] = spread
    resolve = getattr(algorithm.Parameters(), "resolve", None) if algorithm else None
    if algorithm and resolve:
        derived = resolve(start.clients, sum(server.clients is not None for server in start.servers))
        for name in derived.__dataclass_fields__:
            key = f"{algorithm.section}.{name.replace('_', '-')}"
            if getattr(algorithm.Parameters(), name) is None and found.get(key) == getattr(derived, name):
                found[key] = None
    return found


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys and values of nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def differences(all_settings: Sequence[Settings]) -> list[str]:
    """Return the keys whose values differ; keys of an algorithm are compared among its own runs only."""
    found = []
    for key in dict.fromkeys(key for one in all_settings for key in one):
        section, dot, _ = key.partition(".")
        of_algorithm = dot and section not in COMMON
        asked = [one for one in all_settings if not of_algorithm or any(k.startswith(f"{section}.") for k in one)]
        if any(one.get(key) != asked[0].get(key) for one in asked):
            found.append(key)
    return found


def sort_key(value: object) -> tuple[float, str]:
    """Return a sort key: numbers by value, others as text."""
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value))


def labels(runs: Sequence[RunRecord], all_settings: Sequence[Settings], differing: Sequence[str]) -> list[str]:
    """Return unique labels: algorithm and differing settings, and the folder if these are not unique."""
    names = []
    for run, found in zip(runs, all_settings, strict=True):
        words = [word for key in differing if (word := setting_label(key, found.get(key)))]
        names.append(", ".join([run.start.title, *words]))
    tails = shortest_tails(runs)
    return [name if names.count(name) == 1 else f"{name}, {tail}" for name, tail in zip(names, tails, strict=True)]


def setting_label(key: str, value: object) -> str:
    """Return a setting as part of a label; empty if it is unset or too long."""
    if value is None:
        return ""
    text = " ".join(map(format_value, value)) if isinstance(value, list) else format_value(value)
    words = {"world.clients": f"{text} clients", "duration": f"{text} s", "task.name": text, "place": text}
    return words.get(key, f"{key.partition('.')[2]} = {text}") if len(text) <= LONGEST else ""


def format_value(value: object) -> str:
    """Return a value as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def shortest_tails(runs: Sequence[RunRecord]) -> list[str]:
    """Return the shortest distinct suffixes of the folders' paths."""
    paths = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        tails = ["/".join(path[-depth:]) for path in paths]
        if len(set(tails)) == len(tails):
            break
    return tails


def about(runs: Iterable[RunRecord]) -> str:
    """Describe task, clients and seeds of some runs."""
    starts = [run.start for run in runs]
    tasks = sorted({start.task for start in starts})
    clients = sorted({start.clients for start in starts})
    return f"{join_words(tasks)}, {join_words(map(str, clients))} clients, {format_seeds({s.seed for s in starts})}"


def format_seeds(seeds: Iterable[int]) -> str:
    """Describe seeds."""
    known = sorted(set(seeds))
    if len(known) == 1:
        return f"seed {known[0]}"
    in_a_row = len(known) > 2 and known[-1] - known[0] == len(known) - 1
    return f"seeds {known[0]} to {known[-1]}" if in_a_row else f"seeds {join_words(map(str, known))}"


def join_words(words: Iterable[str]) -> str:
    """Join words with commas and *and*."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
