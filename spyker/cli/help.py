"""Command-line help: examples for every command, and suggestions for misspelt options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from spyker.config.suggest import suggest
from spyker.errors import UsageError

HEADING = "examples:\n"
INDENT = "  "
ELSEWHERE = {"--resume": "Only sweeps are resumed; repeat the run, with --overwrite to replace its record"}
"""Options of other commands that ``run`` and ``compare`` are often given."""


class Formatter(argparse.HelpFormatter):
    """A help formatter that does not wrap the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(HEADING) else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """The parser of a command or of the program."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise argparse's errors as a ``UsageError``."""
        what, _, rest = message.partition(": ")
        see = f"See {self.prog} --help"
        if what == "the following arguments are required":
            raise UsageError(rest, "are missing" if ", " in rest else "is missing", see)
        if what == "unrecognized arguments":
            raise UsageError(rest, "unrecognized argument", see)
        raise UsageError(what.removeprefix("argument ") if rest else self.prog, rest or message, see)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value == []:
            return  # nargs="*" without arguments: some versions of Python check the list itself
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            known = map(str, action.choices or ())
            raise UsageError(str(error.argument_name), f"{value!r} is not allowed", suggest(value, known)) from None

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            remedy = "Give an integer" if action.type is int else "Give a number"
            if not error.message.startswith("invalid "):  # a message of spyker.cli.numbers
                remedy = error.message
            raise UsageError(str(error.argument_name), f"{arg_string} is not allowed", remedy) from None

    @property
    def options(self) -> list[str]:
        """The long options."""
        return [option for action in self._actions for option in action.option_strings if option.startswith("--")]

    @property
    def commands(self) -> Mapping[str, Parser]:
        """The subcommands."""
        found = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return found[0].choices if found else {}

    @property
    def leaves(self) -> Sequence[Parser]:
        """The parser itself or, if it has subcommands, theirs."""
        return [leaf for command in self.commands.values() for leaf in command.leaves] or [self]


def examples(parser: argparse.ArgumentParser, *lines: str) -> None:
    """Show these command lines below a command's help. A comment follows two blanks and ``#``."""
    parser.epilog = HEADING + "\n".join(INDENT + line for line in lines)


def parse(root: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; suggest similar commands and options for unknown ones."""
    command = root
    for word in argv:
        if word not in command.commands:
            break
        command = command.commands[word]
    for option in (given.partition("=")[0] for given in argv if given.startswith("--")):
        if not any(known.startswith(option) for known in command.options):  # argparse accepts unique prefixes
            remedy = ELSEWHERE.get(option) if command.prog.endswith((" run", " compare")) else None
            raise UsageError(option, "unrecognized argument", remedy or suggest(option, command.options))
    return root.parse_args(argv)
