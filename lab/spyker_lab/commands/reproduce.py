"""``spyker reproduce``: the paper's tables and figures."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.api.output_folders import OutputFolder
from spyker.api.sweep import check_counts
from spyker.cli.codes import INTERRUPTED
from spyker.cli.help import examples
from spyker.cli.options import add_data_dir, add_set, read_settings
from spyker.cli.output import add_json
from spyker.cli.sweep import add_many_options
from spyker.errors import UsageError
from spyker.plots.table import print_table
from spyker.records import write_atomically
from spyker.sweeps.runner import check_folder, ended, expected_cost, locked_folder, run_of, run_watched
from spyker_lab.paper import explanations
from spyker_lab.paper.items import ITEMS, PAPER
from spyker_lab.paper.profiles import PROFILES
from spyker_lab.paper.reproduction import ItemPlan, count, plan, tell
from spyker_lab.paper.reproduction_document import document
from spyker_lab.print_figures import save_figure

WHY = "why"  # folder of the figure of the explanation

GROUPS = {"paper": [item.name for item in PAPER], "all": list(ITEMS)}


def add_reproduce(commands: Any) -> None:
    """``spyker reproduce``."""
    parser = commands.add_parser(
        "reproduce",
        help="reproduce the paper's tables and figures, and check its claims",
        description="Run the paper's experiments. Each writes a figure (PNG and PDF), its numbers (CSV) and a section "
        "that compares the paper's claims with measurements. Finished runs are not repeated.",
    )
    parser.add_argument(
        "items",
        nargs="*",
        choices=[*GROUPS, *ITEMS],
        metavar="ITEM",
        help=f"paper (all of its items), all, or some of: {', '.join(ITEMS)}",
    )
    parser.add_argument("--list", action="store_true", help="list the items with content and duration")
    parser.add_argument("--profile", choices=list(PROFILES), default="quick", help="default: quick, a smoke test")
    parser.add_argument("--seeds", type=int, metavar="K", help="number of seeds; default: the profile's")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/reproduce-PROFILE")
    parser.add_argument("--document", type=Path, metavar="FILE", help="also write the whole report to a Markdown file")
    parser.add_argument(
        "--tell",
        action="store_true",
        help="run nothing; write the report of the finished runs in --out, also while others run",
    )
    add_many_options(parser)
    add_data_dir(parser)
    add_set(parser)
    add_json(parser)
    examples(
        parser,
        "spyker reproduce --list",
        "spyker reproduce latency queues  # a smoke test",
        "spyker reproduce all --profile standard --out runs/reproduce-standard --resume",
    )
    parser.set_defaults(command=command_reproduce)


def command_reproduce(args: argparse.Namespace) -> int:
    """Run items and write the report."""
    if args.list:
        return list_items(args)
    if not args.items:
        raise UsageError("ITEM", "is missing", "Name some items, paper or all; spyker reproduce --list shows them")
    profile = PROFILES[args.profile]
    profile = replace(profile, settings={**profile.settings, **read_settings(args.settings)})
    groups = {group: [name for name in names if profile.name in ITEMS[name].minutes] for group, names in GROUPS.items()}
    names = list(dict.fromkeys(name for word in args.items for name in groups.get(word, [word])))
    check_counts(seeds=args.seeds, jobs=args.jobs)
    if args.document is not None and (args.document.is_dir() or not args.document.parent.is_dir()):
        raise UsageError("--document", f"{args.document} cannot be written", "Name a file in a folder that exists")
    out: Path = args.out or Path("runs") / f"reproduce-{profile.name}"
    plans = [plan(ITEMS[name], profile, args.seeds) for name in names]
    if args.tell:
        check_folder(out, resume=True)
        return write_down(plans, out, args)
    # Item by item, so that the first items finish first; within an item the longest run first.
    scenarios = [s for p in plans for s in sorted(p.all(), key=expected_cost, reverse=True)]
    with data_from(args.data_dir):
        with OutputFolder(out / "runs", lambda: check_folder(out, resume=args.resume)) as folder:
            prepare_data(scenarios, progress=not args.quiet)
            folder.keep()
        print(f"profile {profile.name}, {count(args.seeds or profile.seeds, 'seed')}: {profile.says}")
        with interrupts() as stop, locked_folder(out / "runs"):
            run_watched("reproduce", scenarios, out / "runs", args.jobs, stop, in_order=True, progress=not args.quiet)
    if stop.interrupted:
        print(f"stopped; to continue: the same command with --out {out} --resume; for a report so far: with --tell")
        return INTERRUPTED
    return write_down(plans, out, args)


def write_down(plans: Sequence[ItemPlan], out: Path, args: argparse.Namespace) -> int:
    """Write the sections of finished items and the report, and name the unfinished items."""
    sections = {}
    args.answer = {"items": [], "document": None}
    for p in plans:
        if not all(ended(scenario, out / "runs") for scenario in p.all()):
            print(f"{p.item.name}: not finished")
            continue
        runs = {label: [run_of(s, out / "runs") for s in seeded] for label, seeded in p.scenarios.items()}
        sections[p.item.name] = tell(p, runs, out / p.item.name)
        print(f"{p.item.name}: {out / p.item.name}/")
        claims = sections[p.item.name].claims
        args.answer["items"].append(
            {
                "item": p.item.name,
                "folder": out / p.item.name,
                "claims": [
                    {"sentence": claim.sentence, "verdict": claim.verdict.value, "here": claim.here} for claim in claims
                ],
            }
        )
        for claim in claims:
            print(f"  {claim.verdict.value}: {claim.sentence} (here: {claim.here})")
    (out / WHY).mkdir(exist_ok=True)
    save_figure(explanations.figure(explanations.gains(sections.values())), out / WHY / "figure")
    whole = out / ("reproduction.md" if "all" in args.items else f"reproduction-{'-'.join(args.items)}.md")
    write_atomically(whole, document(plans, sections, lambda name: f"{name}/figure.png"))
    if args.document is not None:
        pictures = args.document.parent / "images" / args.document.stem
        pictures.mkdir(parents=True, exist_ok=True)
        for name in (*sections, WHY):
            shutil.copyfile(out / name / "figure.png", pictures / f"{name}.png")
        place = f"images/{args.document.stem}"
        write_atomically(args.document, document(plans, sections, lambda name: f"{place}/{name}.png"))
    args.answer["document"] = args.document or whole
    print(f"report: {args.document or whole}")
    return 0


def list_items(args: argparse.Namespace) -> int:
    """List the items with their durations."""
    args.answer = [
        {"item": item.name, "paper": item.paper, "shows": item.shows, "minutes": item.minutes}
        for item in ITEMS.values()
    ]
    rows = []
    for item in ITEMS.values():
        minutes = [duration(item.minutes[name]) if name in item.minutes else "–" for name in PROFILES]
        rows.append([item.name, item.paper, item.shows, *minutes])
    print_table(["item", "in the paper", "content", *PROFILES], rows, words=3)
    print("Durations are for two cores; those of full are estimates. Items share runs, so all together take less.")
    for profile in PROFILES.values():
        print(f"{profile.name} ({count(profile.seeds, 'seed')}): {profile.says}")
    return 0


def duration(minutes: float) -> str:
    """Format minutes."""
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
