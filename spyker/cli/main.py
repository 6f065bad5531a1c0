"""The entry point. :mod:`spyker.cli.codes` lists the exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spyker.cli.codes import BAD_INPUT, FAILED, FENCED, INTERRUPTED
from spyker.untrusted_text import printable_output
from spyker.version import __version__

# Other imports are slow; functions import them, after the handler of Ctrl-C is installed.
if TYPE_CHECKING:
    from spyker.cli.help import Parser

COMMANDS = {
    "run": "spyker.cli.run:add_run",
    "compare": "spyker.cli.run:add_compare",
    "sweep": "spyker.cli.sweep:add_sweep",
    "plot": "spyker.cli.show:add_plot",
    "dash": "spyker.cli.dash:add_dash",
    "report": "spyker.cli.dash:add_report",
    "scenario": "spyker.cli.show:add_scenario",
    "data": "spyker.cli.data:add_data",
    "merge": "spyker.cli.merge:add_merge",
    "up": "spyker.cli.up:add_up",
    "federation": "spyker.cli.federation:add_federation",
    "serve": "spyker.cli.serve:add_serve",
    "join": "spyker.cli.join:add_join",
    "members": "spyker.cli.members:add_members",
    "privacy": "spyker.cli.privacy:add_privacy",
    "export": "spyker.cli.export:add_export",
    "replay": "spyker.cli.replay:add_replay",
}
INSTALLED = "spyker.commands"
"""The group of entry points with which other packages add commands. A built-in command cannot be replaced."""
WITHOUT_QUIET = ("scenario", "serve", "join")  # their output is their purpose


def parser(wanted: str | None = None) -> Parser:
    """Return the parser, with only the ``wanted`` command if it is known: the others are slow to import."""
    from spyker.cli.help import Parser, examples
    from spyker.cli.output import add_quiet
    from spyker.config.name_lookup import NameLookup

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
    names = NameLookup(COMMANDS, INSTALLED, form="")
    if wanted and not wanted.startswith("-"):
        names.check(wanted, "COMMAND")
        shown = [wanted]
    else:
        shown = names.known()
    for name in shown:
        if name in COMMANDS:
            module, _, add = COMMANDS[name].partition(":")
            getattr(importlib.import_module(module), add)(commands)
        else:
            names.find(name, "COMMAND")(commands)
        if name not in WITHOUT_QUIET:
            for leaf in commands.choices[name].leaves:
                add_quiet(leaf)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: the arguments; default: those of the process, which then also handles Ctrl-C.

    Returns:
        The exit code.

    """
    program = argv is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # as in background jobs
    if program:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # nothing to clean up yet
    try:
        with printable_output():
            return perform(sys.argv[1:] if argv is None else argv, program=program)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if program:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process is exiting; ignore a second Ctrl-C


def perform(argv: Sequence[str], *, program: bool) -> int:
    """Run a command and print errors."""
    from spyker.cli.failures import BAD, FAILURES, FINAL
    from spyker.cli.help import parse
    from spyker.cli.output import limited_output, print_json
    from spyker.extras import explain

    try:
        args = parse(parser(argv[0] if argv else None), argv)
        if program:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with limited_output(args):
            code: int = args.command(args)
        print_json(args)
        sys.stdout.flush()
    except BAD as error:
        print(f"spyker: {error}", file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        explained = explain(argv[0], error)
        if explained is None:
            raise
        print(f"spyker: {explained}", file=sys.stderr)
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
            raise  # not about a file of the user: a bug
        if not isinstance(broken, BrokenPipeError):  # the reader has closed the pipe
            place = error.filename if broken is None else "standard output"
            print(f"spyker: {place}: {(broken or error).strerror}", file=sys.stderr)
        return FAILED
    return code


def give_up_output() -> OSError | None:
    """Return the error of standard output, if any, and keep Python from writing to it again at exit."""
    try:
        print(flush=True)  # flush alone does nothing if the failed data was dropped
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
