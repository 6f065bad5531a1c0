"""``spyker race``: all algorithms, tuned alike, in many worlds."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from spyker.algorithms.builtin import ALGORITHMS
from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.api.output_folders import OutputFolder
from spyker.api.sweep import check_counts
from spyker.cli.codes import INTERRUPTED
from spyker.cli.help import examples
from spyker.cli.options import add_data_dir
from spyker.cli.sweep import add_many_options
from spyker.config.scenario import load
from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.plots.progress_bar import ProgressBar
from spyker.records import write_atomically
from spyker.sim.clock import StopRequest
from spyker.sweeps.runner import check_folder, locked_folder, run_watched
from spyker.tasks.registry import resolve
from spyker_lab.algorithms import RIVALS
from spyker_lab.chains import run_chains
from spyker_lab.race.worlds import FULL, QUICK, STAGES

if TYPE_CHECKING:
    from spyker_lab.race.lineup import Race

EVERY = [*ALGORITHMS, *(rival.name for rival in RIVALS)]


def add_race(commands: Any) -> None:
    """``spyker race``."""
    parser = commands.add_parser(
        "race",
        help="all algorithms, tuned alike, in many worlds",
        description="Tune every algorithm with the same number of trials, run all in many worlds, and write a report "
        "of the times to the target with confidence intervals. Finished runs are not repeated. A race takes hours; the "
        "report is updated after every stage.",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few minutes")
    worlds = list(FULL.worlds)
    parser.add_argument("--only", nargs="+", choices=worlds, metavar="WORLD", help=f"some of: {', '.join(worlds)}")
    parser.add_argument("--algorithms", nargs="+", choices=EVERY, metavar="A", help="some algorithms; default: all")
    parser.add_argument("--trials", type=int, metavar="N", help=f"of each search; default: {FULL.trials}")
    parser.add_argument("--seeds", type=int, metavar="K", help="in every world; default: 5 in the paper's, 3 elsewhere")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/race, or runs/race-quick")
    parser.add_argument("--document", type=Path, metavar="FILE", help="also write the report to FILE, with its figure")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="also write figure and table between its markers")
    parser.add_argument("--report", action="store_true", help="run nothing; write the report of finished runs")
    add_many_options(parser)
    add_data_dir(parser)
    examples(
        parser,
        "spyker race --quick  # a smoke test",
        "spyker race --only uneven outage --algorithms stride fedasync --trials 4",
        "spyker race --report  # report of the finished runs",
    )
    parser.set_defaults(command=command_race)


def command_race(args: argparse.Namespace) -> int:
    """Run the searches and the race, and write the report."""
    from spyker_lab.race.lineup import Race

    course = QUICK if args.quick else FULL
    out: Path = args.out or Path("runs") / ("race-quick" if args.quick else "race")
    worlds = [course.worlds[name] for name in chosen("--only", args.only, course.worlds)]
    algorithms = chosen("--algorithms", args.algorithms or course.algorithms, EVERY)
    check_counts(seeds=args.seeds, jobs=args.jobs)
    check_trials(args.trials)
    check_places(args)
    if args.report:
        if not (out / "runs").is_dir():
            raise UsageError("--out", f"{out} is not the folder of a race", "Name one")
        race = Race(course, worlds, algorithms, out / "runs", args.trials, args.seeds)
        write_down(race, out, args)
        return 0
    with data_from(args.data_dir):
        with OutputFolder(out / "runs", lambda: check_folder(out, resume=args.resume)) as folder:
            prepare_data((resolve(load(None, world.settings)) for world in worlds), progress=not args.quiet)
            folder.keep()
        with interrupts() as stop, locked_folder(out / "runs"):
            race = Race(course, worlds, algorithms, out / "runs", args.trials, args.seeds)
            for stage in stages(race, args.jobs, stop, progress=not args.quiet):
                print(f"{stage}: done")
                write_down(race, out, args)
    if stop.interrupted:
        write_down(race, out, args)
        print(f"stopped; to continue: the same command with --out {out} --resume")
        return INTERRUPTED
    return 0


def chosen(option: str, words: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Return the given names, or all known ones, in the order of the latter."""
    known = list(known)
    for word in words or ():
        if word not in known:
            raise UsageError(option, f"{word!r} is not allowed", suggest(word, known))
    return [name for name in known if not words or name in words]


def check_trials(trials: int | None) -> None:
    """Raise a ``UsageError`` for fewer than one trial."""
    if trials is not None and trials < 1:
        raise UsageError("--trials", f"{trials} is not allowed", "Give at least 1")


def check_places(args: argparse.Namespace) -> None:
    """Raise a ``UsageError`` if a file cannot be written, before the race starts."""
    from spyker_lab.race.race_document import around

    if args.document is not None and (args.document.is_dir() or not args.document.parent.is_dir()):
        raise UsageError("--document", f"{args.document} cannot be written", "Name a file in a folder that exists")
    if args.readme is not None:
        if args.document is None:
            raise UsageError("--readme", "needs --document, which it links to", "Add --document")
        if args.quick:
            raise UsageError("--readme", "conflicts with --quick, a smoke test", "Leave one of them out")
        around(args.readme)


def stages(race: Race, jobs: int | None, stop: StopRequest, *, progress: bool) -> Iterator[str]:
    """Run the stages in order; yield the name of each finished one."""
    chains = list(race.searches.values())
    before, total = sum(chain.made for chain in chains), race.trials * len(chains)
    with ProgressBar("search", total - before, Console(stderr=True, quiet=not progress)) as bar:

        def report() -> None:
            made = sum(chain.made for chain in chains)
            if bar.due():
                bar.show(made - before, f"{made} of {total} trials")

        run_chains(chains, jobs, report, stop)
    for name in STAGES:
        if stop.requested:
            return
        yield "search" if name == STAGES[0] else STAGES[STAGES.index(name) - 1]
        run_watched(name, race.stage(name), race.root, jobs, stop, progress=progress)
    if not stop.requested:
        yield STAGES[-1]


def write_down(race: Race, out: Path, args: argparse.Namespace) -> None:
    """Write the report into the race's folder and to the requested files."""
    from spyker_lab.race.race_document import document, fill_in, write_all

    place = write_all(race, out)
    if args.document is not None:
        pictures = args.document.parent / "images" / args.document.stem
        pictures.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / "race.png", pictures / "race.png")
        write_atomically(args.document, document(race, f"images/{args.document.stem}/race.png"))
        if args.readme is not None:
            root = args.readme.parent
            fill_in(args.readme, race, relative(pictures / "race.png", root), relative(args.document, root))
        place = args.document
    print(f"report: {place}")


def relative(path: Path, folder: Path) -> str:
    """Return a path relative to a folder, for links."""
    return Path(os.path.relpath(path, folder)).as_posix()
