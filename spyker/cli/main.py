"""The entry point. Exit codes: 0 done, 1 the run failed, 2 bad input and nothing was changed, 130 interrupted."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from spyker import __version__
from spyker.config.sections import ScenarioError
from spyker.deploy.errors import DeploymentError
from spyker.emulate.judge import DivergedError
from spyker.experiments.errors import RunFailedError
from spyker.learn.data.dataset import DataError
from spyker.learn.guard import TaskFailedError
from spyker.records import RecordError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
COMMANDS = {
    "run": "spyker.cli.run:add_run",
    "compare": "spyker.cli.run:add_compare",
    "sweep": "spyker.cli.sweep:add_sweep",
    "reproduce": "spyker.cli.reproduce:add_reproduce",
    "plot": "spyker.cli.show:add_plot",
    "scenario": "spyker.cli.show:add_scenario",
    "data": "spyker.cli.data:add_data",
    "merge": "spyker.cli.merge:add_merge",
    "up": "spyker.cli.up:add_up",
    "serve": "spyker.cli.serve:add_serve",
    "join": "spyker.cli.serve:add_join",
    "certs": "spyker.cli.certs:add_certs",
    "export": "spyker.cli.export:add_export",
}


def parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """The command line; of its commands only the one that is wanted, if that is known: the others take time to load."""
    root = argparse.ArgumentParser(
        prog="spyker",
        description="Federated learning across regions, without a central server and without global rounds.",
    )
    root.add_argument("--version", action="version", version=f"spyker {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    for name, place in COMMANDS.items():
        if wanted not in COMMANDS or name == wanted:
            module, _, add = place.partition(":")
            getattr(importlib.import_module(module), add)(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser(argv[0] if argv else None).parse_args(argv)
    try:
        code: int = args.command(args)
    except (ScenarioError, RecordError) as error:
        print(f"spyker: {error}", file=sys.stderr)
        return BAD_INPUT
    except (DataError, DivergedError, TaskFailedError, DeploymentError, RunFailedError) as error:
        print(f"spyker: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
