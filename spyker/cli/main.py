"""The entry point. Exit codes: 0 done, 1 the run failed, 2 bad input and nothing was changed, 130 interrupted."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spyker.cli.codes import BAD_INPUT, FAILED, FENCED, INTERRUPTED
from spyker.version import __version__

# All else is imported by functions: it takes a while, in which Ctrl-C must find somebody who minds it.
if TYPE_CHECKING:
    from spyker.cli.help import Parser

COMMANDS = {
    "run": "spyker.cli.run:add_run",
    "compare": "spyker.cli.run:add_compare",
    "sweep": "spyker.cli.sweep:add_sweep",
    "reproduce": "spyker.cli.reproduce:add_reproduce",
    "race": "spyker.cli.race:add_race",
    "plot": "spyker.cli.show:add_plot",
    "dash": "spyker.cli.dash:add_dash",
    "report": "spyker.cli.dash:add_report",
    "scenario": "spyker.cli.show:add_scenario",
    "data": "spyker.cli.data:add_data",
    "merge": "spyker.cli.merge:add_merge",
    "up": "spyker.cli.up:add_up",
    "serve": "spyker.cli.serve:add_serve",
    "join": "spyker.cli.serve:add_join",
    "certs": "spyker.cli.certs:add_certs",
    "members": "spyker.cli.members:add_members",
    "clients": "spyker.cli.clients:add_clients",
    "torture": "spyker.cli.torture:add_torture",
    "export": "spyker.cli.export:add_export",
    "new": "spyker.cli.new:add_new",
    "examples": "spyker.cli.examples:add_examples",
    "doctor": "spyker.cli.doctor:add_doctor",
    "completion": "spyker.cli.completion:add_completion",
}
TO_BE_READ = ("scenario", "serve", "join", "completion")  # nothing is left of these without what they say


def parser(wanted: str | None = None) -> Parser:
    """The command line; of its commands only the one that is wanted, if that is known: the others take time to load."""
    from spyker.cli.help import Parser, examples
    from spyker.cli.output import add_quiet

    root = Parser(
        prog="spyker",
        description="Federated learning across regions, without a central server and without global rounds.",
    )
    examples(
        root,
        "spyker run --duration 20  # Stride in the paper's world",
        "spyker run --help  # options and examples of a command",
    )
    root.add_argument("--version", action="version", version=f"spyker {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    for name, place in COMMANDS.items():
        if wanted not in COMMANDS or name == wanted:
            module, _, add = place.partition(":")
            getattr(importlib.import_module(module), add)(commands)
            if name not in TO_BE_READ:
                add_quiet(commands.choices[name])
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Without ``argv`` this is the program, and Ctrl-C is for it alone."""
    program = argv is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # as of who runs in the background
    if program:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # nothing has begun that would have to be ended
    try:
        return perform(sys.argv[1:] if argv is None else argv, program=program)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if program:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending, and a second Ctrl-C changes nothing


def perform(argv: Sequence[str], *, program: bool) -> int:
    """Run a command, and say what went wrong."""
    from spyker.cli.failures import BAD, FAILURES, FINAL
    from spyker.cli.help import parse
    from spyker.cli.output import give_answer, speaking

    try:
        args = parse(parser(argv[0] if argv else None), argv)
        if program:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with speaking(args):
            code: int = args.command(args)
        give_answer(args)
        sys.stdout.flush()
    except BAD as error:
        print(f"spyker: {error}", file=sys.stderr)
        return BAD_INPUT
    except FINAL as error:
        print(f"spyker: {error}", file=sys.stderr)
        return FENCED
    except FAILURES as error:
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
