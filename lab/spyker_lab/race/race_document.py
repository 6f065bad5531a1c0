"""The report of the race, and the table in the README. All numbers come from the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spyker.errors import UsageError
from spyker.records import write_atomically
from spyker.version import __version__
from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.paper.item import Table
from spyker_lab.print_figures import save_figure
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
    "Left: accuracy, mean of the servers, mean and range over seeds. Right: time until the mean of the servers reaches "
    "the target and stays there, mean over seeds; algorithms that did not reach it are shown at the horizon."
)


def document(race: Race, picture: str) -> str:
    """Return the whole report."""
    left_out = {
        "in other worlds": [w for w in race.worlds if w.stage in ("others", "size") and not w.everybody],
        "on other tasks": [w for w in race.worlds if w.stage == "tasks"],
    }
    parts = [
        "# Race of the algorithms\n",
        f"Written by `spyker race{' --quick' if race.course.name == 'quick' else ''}`, version {__version__}. All "
        "numbers come from the runs. “–” has not been run yet.\n",
        race.course.says + "\n" if race.course.says else "",
        "## Goals and results\n",
        f"The subject is {title(OURS)}. Every algorithm is tuned in the same way, unless a line says otherwise. A "
        "*world* is a scenario: data, latencies, speeds and clients.\n",
        bar_table(race).markdown(),
        "World by world, with 95 % confidence intervals:\n",
        ratio_table(race).markdown(),
        f"![{CAPTION}]({picture})\n\n{CAPTION}\n",
        summary(race).markdown(),
        f"± is half of a 95 % confidence interval; in brackets the ratio to {title(OURS)}'s time, as the geometric "
        "mean over seeds.\n",
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
    """Name the algorithms that were left out."""
    names = [title(a) for a in race.algorithms if any(a not in race.field(world) for world in worlds)]
    return f"Left out {where}: {', '.join(names)}.\n" if names else ""


def rules(race: Race) -> str:
    """Describe how the race is run."""
    data = " on held-out training images" if race.course.held_back else ""
    return "\n".join(
        f"- {rule}"
        for rule in (
            f"**Search.** Every algorithm has {race.trials} trials in each world that is searched{data}, with a seed "
            f"that the race does not use: Optuna's TPE sampler with a fixed seed, the first trial given, the next "
            f"{RANDOM_TRIALS - 1} at random. A trial is cut off {MARGIN:g} s after the best one before it. Its value "
            f"is the time at which the mean of the servers reaches the target; if it does not, the time of the cut "
            f"plus {PENALTY / 100:g} s for every missing point. The other worlds use these settings unchanged, as a "
            "user would.",
            f"**Time** is virtual, until the mean of the servers' scores reaches the target and stays: from that "
            f"evaluation on it does not fall below again within {STAY:g} s. Models are evaluated every {INTERVAL:g} s.",
            "**Horizon.** An algorithm that has not reached the target by then counts with the horizon, marked “>”; a "
            "ratio is then a bound, “<” or “>”, and “?” if neither reached it.",
            "**Seeds** determine the data of each client, the clients' speeds and the initial model, and are the same "
            "for all algorithms, so that differences and ratios are paired by seed. ± and brackets are 95 % confidence "
            "intervals by Student's t, for ratios on logarithms.",
            f"**Field.** All algorithms run in the paper's worlds and in those where otherwise slow algorithms may be "
            f"fast ({', '.join(w.title for w in race.worlds if w.everybody)}); elsewhere, to save time, those that "
            f"took at most {NEAR:g} times the best time in one of the paper's worlds, the best of the paper's five, "
            f"{HierFAVGM.title} and {title(OURS)}; on other tasks than MNIST {title(OURS)}, the best of the paper's "
            f"five, the best of the others, and {HierFAVGM.title}.",
            f"**Defaults** are {title(OURS)} with nothing set but the algorithm.",
            "**Medians** in the goals are over all worlds of the same task and size, one room included.",
        )
    )


def settings_table(race: Race) -> Table:
    """Return the scenario keys of each world."""
    rows = [
        [world.title, ", ".join(f"`{key} = {value}`" for key, value in world.settings.items())] for world in race.worlds
    ]
    return Table("", ["world", "settings"], rows, prose=True)


def write_all(race: Race, folder: Path) -> Path:
    """Write report, figure and numbers into a folder; return the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(figure(race), folder / "race")
    write_atomically(folder / "times.csv", times_csv(race))
    write_atomically(folder / "trials.csv", trials_csv(race))
    write_atomically(folder / "race.md", document(race, "race.png"))
    return folder / "race.md"


def fill_in(readme: Path, race: Race, picture: str, details: str) -> None:
    """Write figure and table between the markers of a README."""
    before, after = around(readme)
    verdicts = [bar.met for bar in bars(race)]
    text = (
        f"![{CAPTION}]({picture})\n\n{summary(race).markdown()}\nTimes are virtual seconds until the mean of the "
        f"servers reaches the target and stays there, ± 95 % confidence; in brackets the ratio to {title(OURS)}'s "
        f"time. All algorithms were tuned by the same search. {verdicts.count(True)} of {len(verdicts)} goals are met: "
        f"[{details}]({details}) has the goals, the rules and all numbers. `spyker race` writes them.\n"
    )
    write_atomically(readme, f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def around(readme: Path) -> tuple[str, str]:
    """Return the text before and after the markers of a README."""
    try:
        text = readme.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("--readme", f"{readme} cannot be read ({error})", "Name a Markdown file") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError("--readme", f"{readme} has no markers", f"Put {BEGIN} and {END} where the table belongs")
    return before, after
