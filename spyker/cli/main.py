"""The entry point. Exit codes: 0 done, 1 the run failed, 2 bad input and nothing was changed, 130 interrupted."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from spyker.cli.codes import BAD_INPUT, FAILED, INTERRUPTED
from spyker.config.sections import ScenarioError
from spyker.deploy.errors import DeploymentError
from spyker.emulate.judge import DivergedError
from spyker.emulate.lost import RecordLostError
from spyker.experiments.errors import RunFailedError
from spyker.learn.data.dataset import DataError
from spyker.learn.guard import TaskFailedError
from spyker.records import RecordError
from spyker.version import __version__

COMMANDS = {
    "run": "spyker.cli.run:add_run",
    "compare": "spyker.cli.run:add_compare",
    "sweep": "spyker.cli.sweep:add_sweep",
    "reproduce": "spyker.cli.reproduce:add_reproduce",
    "race": "spyker.cli.race:add_race",
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
        sys.stdout.flush()
    except (ScenarioError, RecordError) as error:
        print(f"spyker: {error}", file=sys.stderr)
        return BAD_INPUT
    except (DataError, DivergedError, TaskFailedError, DeploymentError, RecordLostError, RunFailedError) as error:
        print(f"spyker: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        broken = give_up_output()
        if broken is None and error.filename is None:
            raise  # it is none of the user's files, and none of the user's faults
        if not isinstance(broken, BrokenPipeError):  # whoever reads us has seen enough, and knows
            place = error.filename if broken is None else "standard output"
            print(f"spyker: {place}: {(broken or error).strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def give_up_output() -> OSError | None:
    """What is wrong with standard output, if anything; Python is kept from trying once more when it ends."""
    try:
        print(flush=True)  # what failed before may have been dropped, so that a mere flush would find nothing to do
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
