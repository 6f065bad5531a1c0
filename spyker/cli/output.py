"""What commands say: words and tables for people; with ``--json`` one document for programs; with ``--quiet`` nothing.

A command prints as it likes. If it prints a table it calls :func:`add_json` where it declares its options, and leaves
the same as plain numbers and names in ``args.answer``. Everything else happens here: with either option standard output
is closed to whatever a command prints, and the answer is written when the command has come to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

import msgspec

from spyker.cli.help import Parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """For a command that prints a table."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of words and tables")
    parser.set_defaults(answer=None)


def add_quiet(parser: Parser) -> None:
    """For every command but those that are there to be read."""
    said = "errors and what --json prints" if "--json" in parser.options else "errors"
    parser.add_argument("--quiet", action="store_true", help=f"say nothing but {said}")
    parser.set_defaults(quiet=False)


@contextlib.contextmanager
def speaking(args: argparse.Namespace) -> Iterator[None]:
    """While a command runs: let people read what it prints, unless they asked for something else."""
    if not getattr(args, "json", False) and not getattr(args, "quiet", False):
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def give_answer(args: argparse.Namespace) -> None:
    """Print the document, if one is wanted and there is one. What is no number (NaN, infinity) is ``null``."""
    if getattr(args, "json", False) and args.answer is not None:
        print(msgspec.json.format(msgspec.json.encode(args.answer, enc_hook=str), indent=2).decode())
