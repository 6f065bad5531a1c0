"""Measure how many updates per second a deployment keeps while its servers are destroyed and its clients killed.

    python -m chaos.goodput [--system NAME] [--minutes N] [--repeats N] [--clients N] [--seed N] [--flower DIR]
    python -m chaos.goodput --table DIR [DIR ...]

Runs without and with faults alternate. Each minute one server is destroyed, with its disk, and a tenth of the clients
is killed. The systems are Spyker's algorithms and ``flower``, whose commands are in the folder ``--flower``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from chaos.goodput import federation, flower
from chaos.goodput.figures import Figures
from chaos.goodput.report import markdown, read, save
from chaos.goodput.schedule import MINUTE, schedule

SERVERS, CLIENTS = 4, 3  # clients of each server


def main(argv: list[str]) -> int:
    """Run what was asked for, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m chaos.goodput", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--system", action="append", help="an algorithm, or flower; may be repeated; default: stride")
    parser.add_argument("--minutes", type=int, default=4, help="length of a run; default: 4")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each kind; default: 2")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="per server; flower: a quarter; default: 3")
    parser.add_argument("--seed", type=int, default=1, help="of the faults; each repeat has the next one")
    parser.add_argument("--flower", type=Path, metavar="DIR", help="folder with flower-superlink and its companions")
    parser.add_argument("--out", type=Path, default=Path("runs/goodput"), metavar="DIR", help="default: runs/goodput")
    parser.add_argument("--table", type=Path, nargs="+", metavar="DIR", help="only print the table of these folders")
    args = parser.parse_args(argv)
    if args.table:
        print(markdown(read(args.table)))
        return 0
    systems = args.system or ["stride"]
    if "flower" in systems and args.flower is None:
        parser.error("--flower is missing. Give the folder bin of an environment with flwr and numpy")
    for repeat in range(args.repeats):
        for system in systems:
            for name, run in runs(system, args.seed + repeat, args.minutes, args.clients, args.flower).items():
                folder = args.out.absolute() / f"{system}-{repeat}-{name}"
                shutil.rmtree(folder, ignore_errors=True)
                figures = run(folder)
                save(args.out, figures)
                print(
                    f"{system}, {figures.faults or 'no faults'}: {figures.rate:.2f} updates/s {figures.note}",
                    flush=True,
                )
    print(markdown(read([args.out])))
    return 0


def runs(
    system: str, seed: int, minutes: int, clients: int, commands: Path | None
) -> dict[str, Callable[[Path], Figures]]:
    """Return the runs of one repeat, by the names of their folders."""
    both = schedule(seed, minutes, SERVERS, SERVERS * clients)
    seconds = minutes * MINUTE
    if system != "flower":
        return {
            name: lambda folder, faults=faults: federation.measure(  # type: ignore[misc]
                system, folder, faults, seconds=seconds, servers=SERVERS, clients=clients
            )
            for name, faults in {"none": [], "faults": both}.items()
        }
    assert commands is not None
    kinds = {"none": "", "clients": flower.CLIENTS_KILLED, "restart": flower.RESTARTED, "destroy": flower.DESTROYED}
    return {
        name: lambda folder, kind=kind: flower.measure(  # type: ignore[misc]
            commands, folder, both if kind else [], kind, seconds=seconds, clients=SERVERS * clients
        )
        for name, kind in kinds.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
