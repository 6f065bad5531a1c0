"""Destroy, stop and cut off real servers, and check the guarantees of fault tolerance.

    python -m chaos.drill [--algorithm NAME] [--minutes N] [--only NAME] [--quick] [--out DIR] [--docs FILE]

As root. Exit codes: 0 all guarantees were kept, 1 one was violated, 2 the drill could not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from chaos.drill.checks import check
from chaos.drill.deployed import Deployed
from chaos.drill.drills import DRILLS, destroy, link
from chaos.drill.figure import draw
from chaos.drill.report import Report, document, show
from chaos.wan.deployment import WanRunError, clients_place, places, server_place
from chaos.wan.namespaces import WanError
from chaos.wan.network import Network
from chaos.wan.run import as_program
from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.scenario import load
from spyker.errors import UsageError
from spyker.tasks.registry import resolve

HERE = Path(__file__).parent
KEPT, BROKEN, FAILED = 0, 1, 2
QUICK_SECONDS = 8.0


def main(arguments: list[str]) -> int:
    """Deploy, inject the faults, check the records, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m chaos.drill", description=(__doc__ or "").splitlines()[0])
    with_token = [name for name, algorithm in ALGORITHMS.items() if algorithm.uses_token]
    parser.add_argument("--algorithm", choices=with_token, default="stride", help="default: stride")
    parser.add_argument(
        "--minutes", type=int, default=10, metavar="N", help="number of servers to destroy, one a minute; default: 10"
    )
    parser.add_argument("--only", choices=list(DRILLS), help="one kind of fault; default: all")
    parser.add_argument("--quick", action="store_true", help="one server destroyed and one link cut, within a minute")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/drill"), metavar="DIR", help="default: runs/drill, replaced"
    )
    parser.add_argument("--docs", type=Path, metavar="FILE", help="also write this document, and its picture")
    args = parser.parse_args(arguments)
    if args.minutes < 1:
        parser.error(f"--minutes is {args.minutes}. Give at least 1")
    report, began, load_before = Report(), time.time(), os.getloadavg()[0]
    try:
        scenario = resolve(load(HERE / "scenario.toml", {"algorithm": args.algorithm}))
        shutil.rmtree(args.out, ignore_errors=True)
        more = len(scenario.world.regions)
        with ExitStack() as stack:
            names = [*places(scenario), server_place(more), clients_place(more)]
            network = stack.enter_context(Network(names))
            deployed = Deployed(scenario, args.out.absolute(), network, stack)
            print("Four servers and twelve clients start ...", flush=True)
            deployed.begin()
            for name, drill in chosen(args.only, args.minutes, quick=args.quick).items():
                print(f"{name}:", flush=True)
                try:
                    drill(deployed, report)
                except WanRunError as error:
                    report.add(name, "came to its end", str(error).splitlines()[0], "it does", False)
                    break
            print("All servers stop ...", flush=True)
            check(deployed, deployed.end(), report)
    except (UsageError, WanError, WanRunError) as error:
        print(f"drill: {error}", file=sys.stderr)
        return FAILED
    show(report)
    picture = args.out / "drill.png"
    draw(deployed.records, report.events, picture)
    print(f"records and logs: {args.out}/  ·  picture: {picture}")
    if args.docs is not None:
        drawn = f"images/drill-{args.algorithm}.png"
        shutil.copyfile(picture, args.docs.parent / drawn)
        minutes = (time.time() - began) / 60
        loads = f"load {load_before:.1f} when it began and {os.getloadavg()[0]:.1f} when it ended"
        document(args.docs, scenario.chosen.title, report, f"It took {minutes:.0f} minutes; {loads}, on", drawn)
        print(f"document: {args.docs}")
    print("Every promise was kept." if report.kept else "A promise was BROKEN.")
    return KEPT if report.kept else BROKEN


def chosen(only: str | None, minutes: int, *, quick: bool) -> dict[str, partial[None]]:
    """Return the chosen drills."""
    if quick:
        return {
            "destroy": partial(destroy, minutes=1, pace=3 * QUICK_SECONDS),
            "link": partial(link, length=QUICK_SECONDS),
        }
    drills = {name: partial(drill) for name, drill in DRILLS.items()}
    drills["destroy"] = partial(destroy, minutes=minutes)
    return drills if only is None else {only: drills[only]}


if __name__ == "__main__":
    as_program(main)
