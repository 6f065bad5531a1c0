"""The shared runner of the reproduction: makes the runs of some items and writes down what they say."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spyker.config.scenario import Scenario, load
from spyker.experiments.claims import table
from spyker.experiments.item import NOT_IN_PAPER, Item, Profile, Results, Section, Settings
from spyker.experiments.reading import READING
from spyker.experiments.runner import with_seeds
from spyker.learn.registry import resolve
from spyker.records import RunRecord, write_atomically
from spyker.show.paper import save_figure


@dataclass(frozen=True, slots=True)
class Plan:
    """The scenarios of an item: for every run one per seed."""

    item: Item
    settings: Mapping[str, Settings]
    scenarios: Mapping[str, Sequence[Scenario]]

    def all(self) -> Iterator[Scenario]:
        """All of them."""
        for scenarios in self.scenarios.values():
            yield from scenarios


def plan(item: Item, profile: Profile, seeds: int) -> Plan:
    """What an item wants to have run. Later layers override earlier ones."""
    settings = {}
    for label, special in item.runs.items():
        size = item.quick if profile.name == "quick" else item.full
        sizes = [profile.tasks.get(item.task, {}), profile.validation if item.validation else {}, size]
        layers: list[Settings] = [{"task.name": item.task}, READING[item.task], *sizes, special, profile.settings]
        merged = {key: value for layer in layers for key, value in layer.items()}
        if label in item.longer and "duration" not in profile.settings:
            merged["duration"] = item.longer[label] * float(str(merged["duration"]))
        settings[label] = merged
    return Plan(item, settings, {name: with_seeds(resolve(load(None, s)), seeds) for name, s in settings.items()})


def tell(
    plan: Plan, runs: Mapping[str, Sequence[RunRecord | None]], folder: Path, profile: Profile, seeds: int
) -> Section:
    """Write an item's figure, numbers and section into its folder."""
    results = Results(runs, plan.settings)
    section = plan.item.tell(results)
    section = replace(section, numbers=results.numbers)
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(section.figure, folder / "figure")
    write_atomically(folder / "numbers.csv", numbers(section))
    write_atomically(folder / "section.md", markdown(plan.item, section, profile, seeds, "figure.png"))
    return section


def numbers(section: Section) -> str:
    """Everything measured: one line per run and measure, one column per seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    seeds = max((len(s.numbers) for s in section.numbers.values()), default=0)
    writer.writerow(["run", "measure", *(f"seed {i + 1}" for i in range(seeds))])
    for (label, measure), found in section.numbers.items():
        writer.writerow([label, measure, *("" if n is None else f"{n:.6g}" for n in found.numbers)])
    return file.getvalue()


def markdown(item: Item, section: Section, profile: Profile, seeds: int, picture: str) -> str:
    """An item's section of the document."""
    parts = [
        f"## {item.name}\n",
        f"{item.shows} ({item.paper}). Profile {profile.name}, {count(seeds, 'seed')}; "
        f"`spyker reproduce {item.name} --profile {profile.name} --seeds {seeds}`.\n",
        f"![{section.caption}]({picture})\n\n{section.caption}\n",
        table(section.claims, "the paper says" if item.paper != NOT_IN_PAPER else "question"),
        *(t.markdown() for t in section.tables),
        section.notes + "\n" if section.notes else "",
    ]
    return "\n".join(part for part in parts if part)


def count(number: int, noun: str) -> str:
    """So many of something, in words that agree."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
