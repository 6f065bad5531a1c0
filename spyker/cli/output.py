"""Output of commands: text and tables; with ``--json`` one JSON document; with ``--quiet`` nothing.

A command that prints a table calls :func:`add_json` when it declares its options, and stores the same data in
``args.answer``. With ``--json`` or ``--quiet`` this module suppresses standard output; with ``--json`` it prints the
document when the command has finished.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

import msgspec

from spyker.cli.help import Parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` to a command that prints a table."""
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of text")
    parser.set_defaults(answer=None)


def add_quiet(parser: Parser) -> None:
    """Add ``--quiet``."""
    output = "errors, warnings and the output of --json" if "--json" in parser.options else "errors and warnings"
    parser.add_argument("--quiet", action="store_true", help=f"print only {output}")
    parser.set_defaults(quiet=False)


@contextlib.contextmanager
def limited_output(args: argparse.Namespace) -> Iterator[None]:
    """Suppress standard output while a command runs with ``--json`` or ``--quiet``."""
    if not getattr(args, "json", False) and not getattr(args, "quiet", False):
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def print_json(args: argparse.Namespace) -> None:
    """Print the JSON document, if requested. NaN and infinity become ``null``."""
    if getattr(args, "json", False) and args.answer is not None:
        print(msgspec.json.format(msgspec.json.encode(args.answer, enc_hook=str), indent=2).decode())
