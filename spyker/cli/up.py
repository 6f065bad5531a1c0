"""``spyker up``: a whole deployment on this machine."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from spyker.cli.data import prepare_data
from spyker.cli.options import add_data_dir, add_set, default_out, read_scenario, use_data_dir
from spyker.cli.run import INTERRUPTED, short, show_table, stop_on_signals
from spyker.cli.serve import EXTRA
from spyker.config.sections import ScenarioError
from spyker.learn.names import BUILT_IN
from spyker.protocol.registry import ALGORITHMS
from spyker.records import Run, check_new, clear
from spyker.show.progress import LiveProgress


def add_up(commands: Any) -> None:
    """``spyker up``."""
    parser = commands.add_parser("up", help="a whole deployment on this machine: servers and clients as processes")
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help="a TOML file; default: the paper's")
    parser.add_argument("--algorithm", metavar="A", help=", ".join(ALGORITHMS))
    parser.add_argument("--task", metavar="T", help=f"{', '.join(BUILT_IN)}, or module:function")
    parser.add_argument("--clients", type=int, metavar="N", help="so many in all, spread evenly over the regions")
    parser.add_argument("--duration", type=float, metavar="S", help="real seconds")
    parser.add_argument("--seed", type=int, metavar="N", help="everything random follows from it")
    parser.add_argument("--paced", action="store_true", help="let trainings take as long as training.delay-ms says")
    parser.add_argument("--insecure", action="store_true", help="plaintext instead of certificates made on the fly")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep configurations, certificates, states and logs here"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the record goes; default: a new folder in runs/")
    parser.add_argument("--overwrite", action="store_true", help="replace the record that --out holds already")
    add_data_dir(parser)
    add_set(parser)
    parser.set_defaults(command=command_up)


def command_up(args: argparse.Namespace) -> int:
    """Start servers and clients, watch them, and say how it went."""
    use_data_dir(args)
    scenario = read_scenario(args)
    try:
        from spyker.deploy.up import Local
    except ModuleNotFoundError as error:
        raise ScenarioError("up", f"needs {error.name}, which is not installed", EXTRA) from None
    out: Path = args.out or default_out(f"up-{scenario.algorithm}-{short(scenario.task.name)}")
    check_new(out, overwrite=args.overwrite)
    if args.keep is not None and args.keep.exists() and any(args.keep.iterdir()):
        raise ScenarioError("--keep", f"{args.keep} is not empty", "Name a new folder")
    prepare_data(scenario)
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spyker-")))
        stop = stack.enter_context(stop_on_signals())
        with Local(scenario, folder, insecure=args.insecure, paced=args.paced, duration=scenario.duration) as local:
            local.start()
            with LiveProgress(scenario.chosen.title, scenario.duration, "score") as progress:
                local.watch(
                    lambda t, fact: progress.fact(min(t, scenario.duration - 1e-3), fact), lambda: stop.requested
                )
        if not local.begun():
            print("stopped before any server began; nothing was recorded")
            return INTERRUPTED
        clear(out, overwrite=args.overwrite)
        local.merge(out)
    show_table([Run(out)])
    print(f"record: {out}/  ·  to draw it: spyker plot {out}")
    local.check_clients()
    return INTERRUPTED if stop.requested else 0
