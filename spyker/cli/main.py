"""The entry point. Exit codes: 0 done, 1 the run failed, 2 bad input and nothing was changed, 130 interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spyker import __version__
from spyker.cli.certs import add_certs
from spyker.cli.data import add_data
from spyker.cli.export import add_export
from spyker.cli.run import add_compare, add_run
from spyker.cli.serve import add_join, add_serve
from spyker.cli.show import add_plot, add_scenario
from spyker.cli.up import add_up
from spyker.config.sections import ScenarioError
from spyker.deploy.errors import DeploymentError
from spyker.emulate.judge import DivergedError
from spyker.learn.data.dataset import DataError
from spyker.learn.pool import WorkerDiedError
from spyker.records import RecordError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        prog="spyker",
        description="Federated learning across regions, without a central server and without global rounds.",
    )
    root.add_argument("--version", action="version", version=f"spyker {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        add_run,
        add_compare,
        add_plot,
        add_scenario,
        add_data,
        add_up,
        add_serve,
        add_join,
        add_certs,
        add_export,
    ):
        add(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    args = parser().parse_args(argv)
    try:
        code: int = args.command(args)
    except (ScenarioError, RecordError) as error:
        print(f"spyker: {error}", file=sys.stderr)
        return BAD_INPUT
    except (DataError, DivergedError, WorkerDiedError, DeploymentError) as error:
        print(f"spyker: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
