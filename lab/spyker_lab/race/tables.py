"""The tables of the race: Markdown, and all numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.paper.item import Settings, Table
from spyker_lab.race.bars import Standing, bars, standing
from spyker_lab.race.board import Cell
from spyker_lab.race.intervals import difference, ratio
from spyker_lab.race.lineup import Race, title
from spyker_lab.race.search import best
from spyker_lab.race.spaces import STARTS
from spyker_lab.race.worlds import OURS, RaceWorld

NOT_RUN = "–"
VERDICTS = {True: "met", False: "**missed**", None: "open"}


def summary(race: Race) -> Table:
    """Return the table of the README: Stride's time and the best rivals in every world."""
    heads = ["world", title(OURS), "best of the paper's five", HierFAVGM.title, "best other rival"]
    return Table("", heads, [summary_row(world, standing(race, world)) for world in race.worlds])


def summary_row(world: RaceWorld, place: Standing | None) -> list[str]:
    """Return the row of a world."""
    if place is None:
        return [world.title, *[NOT_RUN] * 4]

    def cell(pair: tuple[str, Cell] | None, *, named: bool) -> str:
        if pair is None:
            return NOT_RUN
        name, theirs = pair
        time, factor = theirs.stays.mean().around(" s"), ratio(theirs.stays, place.ours.stays)
        return f"{name + ': ' if named else ''}{time} ({factor.mark}{factor.value:.1f} ×)"

    momentum = None if place.momentum is None else (HierFAVGM.title, place.momentum)
    return [
        world.title,
        place.ours.stays.mean().around(" s"),
        cell(place.papers, named=True),
        cell(momentum, named=False),
        cell(place.other, named=True),
    ]


def bar_table(race: Race) -> Table:
    """Return the goals and whether they are met."""
    rows = [[f"({bar.name})", bar.promise, bar.measured, VERDICTS[bar.met]] for bar in bars(race)]
    return Table("", ["", "goal", "measured", ""], rows, prose=True)


def ratio_table(race: Race) -> Table:
    """Return the ratios of Stride's time to those of rivals, and of its defaults to tuned settings, by world."""
    rows = []
    for world in race.worlds:
        place = standing(race, world)
        if place is None:
            rows.append([world.title, *[NOT_RUN] * 4])
            continue
        rival = place.rival
        cells = [place.papers and place.papers[1], place.momentum, rival and rival[1]]
        shares = [NOT_RUN if cell is None else ratio(place.ours.stays, cell.stays).between() for cell in cells]
        defaults = NOT_RUN if place.defaults is None else ratio(place.defaults.stays, place.ours.stays).between()
        rows.append([world.title, *shares[:2], shares[2] + (f", {rival[0]}" if rival else ""), defaults])
    names = ["best of the paper's five", HierFAVGM.title, "best rival of any kind"]
    heads = [f"{title(OURS)} / {name}" for name in names]
    return Table("", ["world", *heads, f"defaults / {title(OURS)}"], rows)


def world_table(race: Race, world: RaceWorld) -> Table:
    """Return all entries in one world, the fastest first."""
    found = {label: race.cell(world, label) for label, e in race.entries(world).items() if not e.to_the_end}
    ours = found.get(title(OURS))
    there = sorted(
        ((label, cell) for label, cell in found.items() if cell is not None),
        key=lambda pair: pair[1].stays.mean().value,
    )
    rows = []
    for label, cell in there:
        cells = [label, cell.stays.mean().around(" s"), cell.first.mean().around(" s")]
        cells.append(f"{sum(n is not None for n in cell.stays.numbers)} of {len(cell.seeds)}")
        if ours is None or label == title(OURS):
            cells += ["", ""]
        else:
            cells += [difference(ours.stays, cell.stays).around(" s"), ratio(ours.stays, cell.stays).between()]
        rows.append(cells)
    rows += [[label, *[NOT_RUN] * 5] for label, cell in found.items() if cell is None]
    heads = ["", "time to stay there", "first there", "seeds", f"{title(OURS)} minus this", f"{title(OURS)} / this"]
    return Table("", heads, rows)


def winners(race: Race) -> Table:
    """Return the best settings of each search, and the time of its first trial."""
    rows = []
    for (algorithm, where), chain in race.searches.items():
        name = [title(algorithm), race.course.worlds[where].title]
        if chain.result is None:
            rows.append([*name, *[NOT_RUN] * 4])
            continue
        won, first = best(chain.result), chain.result[0]
        reached = sum(trial.time is not None for trial in chain.result)
        times = [f"{trial.time:g} s" if trial.time is not None else f"> {trial.limit:g} s" for trial in (first, won)]
        rows.append([*name, *times, f"{reached} of {len(chain.result)}", setting_list(won.settings)])
    heads = ["", "searched in", "first trial", "best", "reached before the cut", "settings"]
    return Table("", heads, sorted(rows, key=lambda cells: cells[1]), prose=True)


def setting_list(settings: Settings) -> str:
    """Format settings in one line."""
    return ", ".join(f"`{key} = {value}`" for key, value in settings.items())


def starts(algorithms: Iterable[str]) -> Table:
    """Return the first trial of each search."""
    return Table("", ["", "first trial"], [[title(a), setting_list(STARTS[a])] for a in algorithms], prose=True)


def trials_csv(race: Race) -> str:
    """Return all trials of finished searches as CSV."""
    body: list[Sequence[object]] = []
    for (algorithm, where), chain in race.searches.items():
        for number, trial in enumerate(chain.result or (), 1):
            settings = " ".join(f"{key}={value}" for key, value in trial.settings.items())
            time = "" if trial.time is None else trial.time
            body.append([algorithm, where, number, f"{trial.value:.6g}", time, trial.limit, settings])
    return as_csv(["algorithm", "world", "trial", "value", "time", "limit", "settings"], body)


def times_csv(race: Race) -> str:
    """Return all runs of the race as CSV."""
    body: list[Sequence[object]] = []
    for world in race.worlds:
        for label in race.entries(world):
            cell = race.cell(world, label)
            if cell is not None:
                columns = zip(cell.seeds, cell.first.numbers, cell.stays.numbers, cell.final, strict=True)
                body += [[world.name, label, *("" if n is None else f"{n:.6g}" for n in line)] for line in columns]
    return as_csv(["world", "entry", "seed", "first", "stays", "final score"], body)


def as_csv(heads: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """Return lines as a CSV file."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([heads, *body])
    return file.getvalue()
