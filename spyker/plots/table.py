"""Tables of numbers, on a terminal, in a pipe and as Markdown. No number is ever cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spyker.plots.curves import Curve
from spyker.plots.run_groups import RunGroups
from spyker.plots.samples import sample

GAP, MARGIN = 2, 1  # columns of blanks between two columns of a table, and before it
UNLIMITED = 10_000
SPREAD = "± is the standard deviation over the seeds."


def rows(shown: RunGroups) -> tuple[list[str], list[list[str]]]:
    """Headings and cells: when each target was reached, where it ended, what it cost; of several seeds the mean."""
    heads = ["algorithm"]
    for target in shown.targets:
        heads += [f"time to {target:g}", f"updates to {target:g}"]
    heads += [f"final {shown.first.metric}", "worst server"]
    for name, other in shown.others.items():
        heads += [f"final {name}"] + ["worst tenth"] * of_clients(other)
    heads.append("sent MB")
    body = []
    for label, curves in shown.lines.items():
        cells = [label + ("" if all(c.finished for c in curves) else " (stopped early)")]
        for target in shown.targets:
            hits = [c.reached(target) for c in curves]
            cells.append(sample(hit and hit[0] for hit in hits).text(".2f", " s"))
            cells.append(sample(hit and hit[1] for hit in hits).text(",.0f"))
        cells.append(sample(c.mean[-1] for c in curves).text(".3f"))
        cells.append(sample(c.worst[-1] for c in curves).text(".3f"))
        for other in shown.others.values():
            cells.append(sample(c.mean[-1] for c in other[label]).text(".3f"))
            if of_clients(other):
                cells.append(sample(c.worst[-1] for c in other[label]).text(".3f"))
        cells.append(sample(c.bytes[-1] / 1e6 for c in curves).text(",.1f"))
        body.append(cells)
    return heads, body


def of_clients(lines: Mapping[str, Sequence[Curve]]) -> bool:
    """Return whether curves are of clients that evaluate; the worst tenth of the clients then has a column."""
    return all(c.of == "clients" for curves in lines.values() for c in curves)


def as_markdown(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """The table as Markdown, and what is to be said of its numbers."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    table = "".join("| " + " | ".join(cells) + " |\n" for cells in [heads, rule, *body])
    return f"{table}\n{SPREAD}\n" if spread_out(body) else table


def spread_out(body: Sequence[Sequence[str]]) -> bool:
    """Whether numbers of several seeds come with how far those are apart."""
    return any(" ± " in cell for cells in body for cell in cells)


def print_table(
    heads: Sequence[str], body: Sequence[Sequence[str]], words: int = 1, console: Console | None = None
) -> None:
    """Print a table whose first columns are ``words`` and whose others are numbers.

    On a terminal that is too narrow headings and words break into lines, and where that is not enough the columns of
    numbers come in several tables, one below the other. A pipe is as wide as need be.
    """
    if console is None:
        limited = sys.stdout.isatty() or "COLUMNS" in os.environ
        console = Console(width=None if limited else UNLIMITED)
    wide = widths(heads, body)
    if len(pieces(wide, words, console.width)) > 1:
        heads = [head.replace(" ", "\n", 1) if i >= words else head for i, head in enumerate(heads)]
        wide = widths(heads, body)
    for numbers in pieces(wide, words, console.width):
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
        for i, head in enumerate(heads[:words]):
            table.add_column(head, overflow="fold", min_width=min(wide[i], 8))
        for i in numbers:
            table.add_column(heads[i], justify="right", no_wrap=True, min_width=wide[i])
        for cells in body:
            table.add_row(*map(Text, (*cells[:words], *(cells[i] for i in numbers))))  # brackets are no markup
        console.print(table)
    if spread_out(body):
        console.print(Text(SPREAD))


def widths(heads: Sequence[str], body: Sequence[Sequence[str]]) -> list[int]:
    """How wide each column is, if nothing in it is cut."""
    columns = zip(heads, *body, strict=True)
    return [max(len(line) for text in column for line in text.split("\n")) for column in columns]


def pieces(wide: Sequence[int], words: int, room: int) -> list[list[int]]:
    """The columns of numbers, cut into tables that fit beside the words, which may take half of the room."""
    left = min(sum(wide[:words]) + GAP * words, room // 2) + 2 * MARGIN
    found: list[list[int]] = [[]]
    used = left
    for i in range(words, len(wide)):
        if found[-1] and used + wide[i] + GAP > room:
            found.append([])
            used = left
        found[-1].append(i)
        used += wide[i] + GAP
    return found
