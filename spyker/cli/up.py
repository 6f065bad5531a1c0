"""``spyker up``: a deployment on this machine."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.api.output_folders import new_folder, place_for_record
from spyker.api.read_scenario import read_scenario
from spyker.api.result import Run
from spyker.api.run import short
from spyker.cli.codes import INTERRUPTED
from spyker.cli.dash import Dashboard, add_dashboard
from spyker.cli.help import examples
from spyker.cli.options import add_models, add_scenario_options, scenario_arguments
from spyker.cli.output import add_json
from spyker.cli.run import show_run
from spyker.errors import UsageError
from spyker.plots.run_dicts import as_dict
from spyker.plots.run_progress import LiveProgress
from spyker.records import Fact
from spyker.records.lock import locked
from spyker.tasks.initial_model import InitialModelFile
from spyker.tasks.layout import layout_of
from spyker.tasks.memory_check import check_memory
from spyker.tasks.registry import check_code, task_spec


def add_up(commands: Any) -> None:
    """``spyker up``."""
    parser = commands.add_parser("up", help="run a deployment on this machine: servers and clients as processes")
    add_scenario_options(parser, algorithm=True, engine=False)
    parser.add_argument("--paced", action="store_true", help="delay trainings to at least training.delay-ms")
    parser.add_argument("--insecure", action="store_true", help="no TLS instead of temporary certificates")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder to keep configurations, certificates, states and logs in"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the record in --out")
    add_models(parser)
    add_dashboard(parser)
    add_json(parser)
    examples(
        parser,
        "spyker up --clients 20 --duration 30",
        "spyker up --initial-model runs/first/model.safetensors --out runs/next",
        "spyker up my-world.toml --keep deployment  # keeps configurations, certificates, states and logs",
    )
    parser.set_defaults(command=command_up)


def command_up(args: argparse.Namespace) -> int:
    """Start servers and clients, monitor them, and print the results."""
    from spyker.net.local_cluster import LocalCluster

    given = InitialModelFile.read(args.initial_model)
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(Dashboard(args.dashboard))
        stack.enter_context(data_from(args.data_dir))
        scenario = read_scenario(args.scenario, **scenario_arguments(args))
        check_memory([scenario])
        out: Path = args.out or new_folder(f"up-{scenario.chosen.name}-{short(scenario)}")
        if args.keep is not None and args.keep.exists() and any(args.keep.iterdir()):
            raise UsageError("--keep", f"{args.keep} is not empty", "Name a new folder")
        check_code(scenario)
        place = stack.enter_context(place_for_record(out, overwrite=args.overwrite))
        writing = stack.enter_context(contextlib.ExitStack())
        writing.enter_context(locked(out))
        prepare_data([scenario], progress=not args.quiet)
        if given is not None:
            given.fit(layout_of(task_spec(scenario).make()))  # otherwise each server would reject it
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spyker-")))
        stop = stack.enter_context(interrupts())
        with LocalCluster(
            scenario, folder, insecure=args.insecure, paced=args.paced, duration=scenario.duration
        ) as local:
            page.show(*(local.record(i) for i in range(len(local.addresses))))
            local.start(*([] if given is None else ["--initial-model", str(given.path)]))
            console = Console(stderr=True, quiet=args.quiet)
            with LiveProgress(scenario.chosen.title, scenario.duration, "score", console) as progress:

                def tell(t: float, fact: Fact) -> None:
                    progress.fact(min(t, scenario.duration - 1e-3), fact)

                local.watch(tell, lambda: stop.requested)
        if not local.begun():
            print("stopped before any server started; nothing was recorded")
            return INTERRUPTED
        place.empty()
        local.merge(out)
        run = Run(out)
        for missing in local.write_models(out) if args.model else ():
            print(f"spyker: {missing}", file=sys.stderr)
        show_run(run, args)
        args.answer = as_dict(run.record)
        local.check_clients()  # before their logs are deleted
        writing.close()  # the page may stay open
        page.stay(out)
    return INTERRUPTED if stop.requested else 0
