"""The race as a document, and the table of the README. Every number comes from the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spyker.errors import UsageError
from spyker.plots.figures import save_figure
from spyker.records import write_atomically
from spyker.version import __version__
from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.paper.item import Table
from spyker_lab.race.bars import bars
from spyker_lab.race.figure import figure
from spyker_lab.race.lineup import NEAR, Race, title
from spyker_lab.race.search import MARGIN, PENALTY, RANDOM_TRIALS
from spyker_lab.race.tables import (
    bar_table,
    ratio_table,
    starts,
    summary,
    times_csv,
    trials_csv,
    winners,
    world_table,
)
from spyker_lab.race.worlds import INTERVAL, OURS, STAY, RaceWorld

BEGIN, END = "<!-- spyker race: begin -->", "<!-- spyker race: end -->"
CAPTION = (
    "Left: accuracy, mean of the servers, mean and range over seeds. Right: when the mean of the servers reaches the "
    "target and stays, mean over seeds; who did not get there stands at the horizon."
)


def document(race: Race, picture: str) -> str:
    """The whole document."""
    left_out = {
        "in other worlds": [w for w in race.worlds if w.stage in ("others", "size") and not w.everybody],
        "on other tasks": [w for w in race.worlds if w.stage == "tasks"],
    }
    parts = [
        "# The race\n",
        f"Written by `spyker race{' --quick' if race.course.name == 'quick' else ''}`, version {__version__}. No "
        "number here is typed by hand. “–” has not been run yet.\n",
        race.course.says + "\n" if race.course.says else "",
        "## What we want, and what holds\n",
        f"Ours is {title(OURS)}. Every algorithm is tuned in the same way, unless a line says otherwise. A bar that is "
        "missed says so.\n",
        bar_table(race).markdown(),
        "World by world, with 95 % confidence intervals:\n",
        ratio_table(race).markdown(),
        f"![{CAPTION}]({picture})\n\n{CAPTION}\n",
        summary(race).markdown(),
        "± is half of a 95 % confidence interval; in brackets: how many times our time that is, as the geometric mean "
        "over seeds.\n",
        "## Rules\n",
        rules(race) + "\n",
        *(absent(race, where, worlds) for where, worlds in left_out.items()),
        "## World by world\n",
    ]
    for world in race.worlds:
        seeds = race.seeds or world.seeds
        parts += [
            f"### {world.title}\n",
            f"{world.says[0].upper()}{world.says[1:]}. Target {world.target:g}, horizon {world.horizon:g} s, {seeds} "
            f"seeds; settings from the search in “{race.course.worlds[world.takes].title}”.\n",
            world_table(race, world).markdown(),
        ]
    parts += ["## The searches\n", winners(race).markdown(), "What each search tried first:\n"]
    parts += [starts(race.algorithms).markdown(), "## The worlds as settings\n", settings_table(race).markdown()]
    return "\n".join(part for part in parts if part)


def absent(race: Race, where: str, worlds: Sequence[RaceWorld]) -> str:
    """Who was left out."""
    names = [title(a) for a in race.algorithms if any(a not in race.field(world) for world in worlds)]
    return f"Left out {where}: {', '.join(names)}.\n" if names else ""


def rules(race: Race) -> str:
    """How the race is run."""
    data = " on training images that are held back" if race.course.held_back else ""
    return "\n".join(
        f"- {rule}"
        for rule in (
            f"**Search.** Every algorithm has {race.trials} trials in each world that is searched{data}, with a seed "
            f"that the race does not use: Optuna's TPE sampler with a fixed seed, the first trial given, the next "
            f"{RANDOM_TRIALS - 1} at random. A trial is cut off {MARGIN:g} s after the best one before it. It is worth "
            f"the time at which the mean of the servers reaches the target; one that does not, the time of its cut "
            f"and {PENALTY / 100:g} s for every point that was missing. The other worlds take these settings as they "
            "are, as a user would.",
            f"**Time** is virtual, until the mean of the servers' scores reaches the target and stays: from that "
            f"evaluation on it does not fall below again within {STAY:g} s. Models are evaluated every {INTERVAL:g} s.",
            "**Horizon.** Whoever is not there by then counts as if there at the horizon, marked “>”; a ratio is then "
            "a bound, “<” or “>”, and “?” if neither got there.",
            "**Seeds** decide who has which data, how fast clients are and the first model, and are the same for all "
            "algorithms, so that differences and ratios are paired by seed. ± and brackets are 95 % confidence "
            "intervals by Student's t, for ratios on logarithms.",
            f"**Field.** In the paper's worlds everybody runs, and so in those where slow algorithms may be fast "
            f"({', '.join(w.title for w in race.worlds if w.everybody)}); elsewhere, to save time, those who took at "
            f"most {NEAR:g} times the best's time in one of the paper's, the best of its five, {HierFAVGM.title} and "
            "ours; on other tasks than MNIST ours, the best of the paper's five, of the others the best, and "
            f"{HierFAVGM.title}.",
            f"**Defaults** are {title(OURS)} with nothing set but the algorithm.",
            "**Medians** of the bars are over all worlds of the same task and size, one room included.",
        )
    )


def settings_table(race: Race) -> Table:
    """What makes each world, as keys of a scenario."""
    rows = [
        [world.title, ", ".join(f"`{key} = {value}`" for key, value in world.settings.items())] for world in race.worlds
    ]
    return Table("", ["world", "settings"], rows, prose=True)


def write_all(race: Race, folder: Path) -> Path:
    """Write document, figure and numbers into a folder; the document."""
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(figure(race), folder / "race")
    write_atomically(folder / "times.csv", times_csv(race))
    write_atomically(folder / "trials.csv", trials_csv(race))
    write_atomically(folder / "race.md", document(race, "race.png"))
    return folder / "race.md"


def fill_in(readme: Path, race: Race, picture: str, details: str) -> None:
    """Put the figure and the table between the marks of a README."""
    before, after = around(readme)
    verdicts = [bar.met for bar in bars(race)]
    text = (
        f"![{CAPTION}]({picture})\n\n{summary(race).markdown()}\nTimes are virtual seconds until the mean of the "
        "servers reaches the target and stays, ± 95 % confidence; in brackets how many times ours that is. All "
        f"algorithms had the same search for their settings. Of {len(verdicts)} bars that we set ourselves "
        f"{verdicts.count(True)} are met: [{details}]({details}) has them, the rules and all numbers, and "
        "`spyker race` makes it all.\n"
    )
    write_atomically(readme, f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def around(readme: Path) -> tuple[str, str]:
    """What stands before and after the marks of a README."""
    try:
        text = readme.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("--readme", f"{readme} cannot be read ({error})", "Name a Markdown file") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError("--readme", f"{readme} has no marks", f"Put {BEGIN} and {END} where the table belongs")
    return before, after
