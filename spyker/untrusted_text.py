"""Texts from records, peers and files that another person may have written: for terminals, and for file names."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

# Control characters, lone surrogates, and characters that change the direction of the text around them.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_STEM = 48  # characters, each of up to four bytes


def printable(text: str) -> str:
    r"""Replace characters that would control a terminal by escapes such as ``\u001b``; keep tabs and line ends.

    JSON and TOML read such an escape as the same character.
    """
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_line(text: str) -> str:
    """Make a text printable, in one line."""
    return printable(" ".join(text.splitlines()))


def file_stem(name: str) -> str:
    """Return a file name without suffix for the name of a metric: letters, digits, dashes and underscores."""
    return re.sub(r"\W+", "-", name[: 4 * LONGEST_STEM]).strip("-")[:LONGEST_STEM] or "metric"


class PrintableStream:
    """A text stream whose output is made printable. Rich, which writes its own escape sequences, goes around it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """The stream itself, under the name by which Rich asks for it."""

    def write(self, text: str) -> int:
        """Write a text."""
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Make everything printable that is written to standard output and standard error in this context."""
    out, err = (cast(TextIO, PrintableStream(stream)) for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
