"""``spyker reproduce``: the paper's tables and figures."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from spyker.api.data import data_from, prepare_data
from spyker.api.folders import OutFolder
from spyker.api.interrupts import interrupts
from spyker.api.sweep import check_counts
from spyker.cli.codes import INTERRUPTED
from spyker.cli.options import add_data_dir
from spyker.cli.sweep import add_many_options
from spyker.config.sections import ScenarioError
from spyker.config.suggest import suggest
from spyker.experiments.document import document
from spyker.experiments.items import ITEMS, PAPER
from spyker.experiments.profiles import PROFILES
from spyker.experiments.reproduce import count, plan, tell
from spyker.experiments.runner import check_folder, folder_of, held, run_watched
from spyker.records import write_atomically

GROUPS = {"paper": [item.name for item in PAPER], "all": list(ITEMS)}


def add_reproduce(commands: Any) -> None:
    """``spyker reproduce``."""
    parser = commands.add_parser(
        "reproduce",
        help="the paper's tables and figures, with what became of its claims",
        description="Run the paper's experiments. Each leaves a figure (PNG and PDF), its numbers (CSV) and a section "
        "that sets the paper's claims beside what was measured. Runs that finished are never repeated.",
    )
    parser.add_argument(
        "items", nargs="*", metavar="ITEM", help=f"paper (all of its items), all, or some of: {', '.join(ITEMS)}"
    )
    parser.add_argument("--list", action="store_true", help="say what each item shows and how long it takes")
    parser.add_argument("--profile", choices=list(PROFILES), default="quick", help="default: quick")
    parser.add_argument("--seeds", type=int, metavar="K", help="so many seeds each; default: the profile's")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/reproduce-PROFILE")
    parser.add_argument("--document", type=Path, metavar="FILE", help="also write the whole as one Markdown document")
    add_many_options(parser)
    add_data_dir(parser)
    parser.set_defaults(command=command_reproduce)


def command_reproduce(args: argparse.Namespace) -> int:
    """Run items and tell what came of them."""
    if args.list:
        return list_items()
    if not args.items:
        raise ScenarioError("ITEM", "is missing", "Name some items, paper or all; spyker reproduce --list shows them")
    for name in args.items:
        if name not in ITEMS and name not in GROUPS:
            raise ScenarioError("ITEM", f"{name!r} is unknown", suggest(name, [*GROUPS, *ITEMS]))
    names = list(dict.fromkeys(name for word in args.items for name in GROUPS.get(word, [word])))
    check_counts(seeds=args.seeds, jobs=args.jobs)
    if args.document is not None and (args.document.is_dir() or not args.document.parent.is_dir()):
        raise ScenarioError("--document", f"{args.document} cannot be written", "Name a file in a folder that exists")
    profile = PROFILES[args.profile]
    seeds = args.seeds or profile.seeds
    out: Path = args.out or Path("runs") / f"reproduce-{profile.name}"
    plans = [plan(ITEMS[name], profile, seeds) for name in names]
    scenarios = [scenario for p in plans for scenario in p.all()]
    with data_from(args.data_dir):
        with OutFolder(out / "runs", lambda: check_folder(out, resume=args.resume)) as folder:
            prepare_data(scenarios)
            folder.keep()
        print(f"profile {profile.name}, {count(seeds, 'seed')}: {profile.says}")
        with interrupts() as stop, held(out / "runs"):
            made = run_watched("reproduce", scenarios, out / "runs", args.jobs, stop)
    if stop.interrupted:
        print(f"stopped; to go on: the same command with --out {out} --resume")
        return INTERRUPTED
    runs = {folder_of(scenario, out / "runs"): run for scenario, run in zip(scenarios, made, strict=True)}
    sections = {}
    for p in plans:
        mine = {label: [runs[folder_of(s, out / "runs")] for s in seeded] for label, seeded in p.scenarios.items()}
        sections[p.item.name] = tell(p, mine, out / p.item.name, profile, seeds)
        print(f"{p.item.name}: {out / p.item.name}/")
        for claim in sections[p.item.name].claims:
            print(f"  {claim.verdict.value}: {claim.sentence} (here: {claim.here})")
    whole = out / ("reproduction.md" if set(names) == set(ITEMS) else f"reproduction-{'-'.join(args.items)}.md")
    write_atomically(whole, document(plans, sections, profile, seeds, lambda name: f"{name}/figure.png"))
    if args.document is not None:
        pictures = args.document.parent / "images" / args.document.stem
        pictures.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copyfile(out / name / "figure.png", pictures / f"{name}.png")
        place = f"images/{args.document.stem}"
        write_atomically(args.document, document(plans, sections, profile, seeds, lambda name: f"{place}/{name}.png"))
    print(f"all of it: {args.document or whole}")
    return 0


def list_items() -> int:
    """What there is, and what it takes."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for head in ("item", "in the paper", "what it shows", "quick", "full"):
        table.add_column(head)
    for item in ITEMS.values():
        table.add_row(item.name, item.paper, item.shows, *(duration(minutes) for minutes in item.minutes))
    Console().print(table)
    print("Times are for two cores; those of full are estimates. Items share runs, so that together they take less:")
    print("quick 20 min for the paper's items and 41 min for all, full about 200 h.")
    for profile in PROFILES.values():
        print(f"{profile.name} ({count(profile.seeds, 'seed')}): {profile.says}")
    return 0


def duration(minutes: float) -> str:
    """Minutes for people."""
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
