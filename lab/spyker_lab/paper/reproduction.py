"""The runs of the reproduction's items, and their sections of the report."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spyker.config.scenario import Scenario, load
from spyker.config.sections import show
from spyker.plots.figures import caption
from spyker.plots.run_groups import about
from spyker.plots.samples import Range
from spyker.records import RunRecord, write_atomically
from spyker.sweeps.runner import with_seeds
from spyker.tasks.registry import resolve
from spyker_lab.paper.claims import table
from spyker_lab.paper.item import NOT_IN_PAPER, Item, Profile, Results, Section, Settings
from spyker_lab.paper.paper_settings import READING
from spyker_lab.paper.speed import tokens
from spyker_lab.print_figures import save_figure


@dataclass(frozen=True, slots=True)
class ItemPlan:
    """The scenarios of an item, one per run and seed."""

    item: Item
    profile: Profile
    seeds: int
    settings: Mapping[str, Settings]
    scenarios: Mapping[str, Sequence[Scenario]]

    def all(self) -> Iterator[Scenario]:
        """Yield all scenarios."""
        for scenarios in self.scenarios.values():
            yield from scenarios


def plan(item: Item, profile: Profile, seeds: int | None = None) -> ItemPlan:
    """Return the scenarios of an item, with the profile's number of seeds unless ``seeds`` is given."""
    settings = {}
    for label, special in item.runs.items():
        sizes = [profile.tasks.get(item.task, {}), profile.validation if item.validation else {}]
        common = item.sizes.get(profile.name, {})
        layers: list[Settings] = [{"task.name": item.task}, READING[item.task], *sizes, common, special]
        merged = {key: value for layer in layers for key, value in layer.items()}
        for key, factor in item.scaled.get(label, {}).items():
            if key in merged:
                merged[key] = type(merged[key])(factor * float(str(merged[key])))  # type: ignore[call-arg]
        settings[label] = merged | dict(profile.settings)
    seeds = seeds or profile.fewer_seeds.get(item.name, profile.seeds)
    scenarios = {name: with_seeds(resolve(load(None, s)), seeds) for name, s in settings.items()}
    return ItemPlan(item, profile, seeds, settings, scenarios)


def tell(plan: ItemPlan, runs: Mapping[str, Sequence[RunRecord | None]], folder: Path) -> Section:
    """Write an item's figure, numbers and section into its folder."""
    results = Results(runs, plan.settings)
    section = plan.item.tell(results)
    section = replace(section, numbers=results.numbers, tokens=count_tokens(results))
    made = [run for seeds in runs.values() for run in seeds if run is not None]
    caption(section.figure, f"{section.caption} Runs: {about(made)}." if made else section.caption)
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(section.figure, folder / "figure")
    write_atomically(folder / "numbers.csv", numbers(section))
    write_atomically(folder / "section.md", markdown(plan, section, "figure.png"))
    return section


def count_tokens(results: Results) -> dict[tuple[str, str], tuple[int, int]]:
    """Count token arrivals and immediate exchanges in the runs of Spyker with the paper's thresholds."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for label, settings in results.settings.items():
        if settings["algorithm"] == "spyker" and not {"spyker.h-inter", "spyker.h-intra"} & settings.keys():
            uniform = {"world.uniform-latency", "world.latency-ms"} & settings.keys()
            network = "uniform latencies" if uniform else "the paper's latencies"
            found |= {(network, run.folder.name): tokens(run) for run in results.runs[label] if run is not None}
    return found


def numbers(section: Section) -> str:
    """Return all measurements as CSV: one line per run and measure, one column per seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    seeds = max((len(s.numbers) for s in section.numbers.values()), default=0)
    writer.writerow(["run", "measure", *(f"seed {i + 1}" for i in range(seeds))])
    for (label, measure), found in section.numbers.items():
        writer.writerow([label, measure, *map(cell, found.ranges)])
    return file.getvalue()


def cell(known: Range) -> str:
    """Format a number, a bound, or nothing if unknown."""
    low, high = known
    if low == high:
        return f"{low:.6g}"
    return f">{low:.6g}" if low > -math.inf else f"<{high:.6g}" if high < math.inf else ""


def markdown(plan: ItemPlan, section: Section, picture: str) -> str:
    """Return an item's section of the report."""
    item = plan.item
    parts = [
        f"## {item.name}\n",
        f"{item.shows} ({item.paper}). Profile {plan.profile.name}, {count(plan.seeds, 'seed')}; "
        f"`{command([plan], item.name)}`.\n",
        f"![{section.caption}]({picture})\n\n{section.caption}\n",
        table(section.claims, "the paper says" if item.paper != NOT_IN_PAPER else "question"),
        *(t.markdown() for t in section.tables),
        section.notes + "\n" if section.notes else "",
    ]
    return "\n".join(part for part in parts if part)


def command(plans: Sequence[ItemPlan], items: str) -> str:
    """Return the command that produces these items."""
    profile = plans[0].profile
    default = all(p.seeds == profile.fewer_seeds.get(p.item.name, profile.seeds) for p in plans)
    options = [] if default else [f"--seeds {plans[0].seeds}"]
    options += [
        f"--set {key}={value if isinstance(value, str) else show(value)}" for key, value in profile.settings.items()
    ]
    return " ".join(["spyker reproduce", items, "--profile", profile.name, *options])


def count(number: int, noun: str) -> str:
    """Return a number and a noun in singular or plural."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
