"""Tables for terminals, pipes and Markdown. Numbers are never truncated."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spyker.plots.curves import Curve, on_clients
from spyker.plots.run_groups import RunGroups
from spyker.plots.samples import sample
from spyker.untrusted_text import printable

GAP, MARGIN = 2, 1  # characters between columns, and before the first
UNLIMITED = 10_000
SPREAD = "± is the standard deviation over seeds."


def rows(shown: RunGroups) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells: time and updates to each target, final scores and sent bytes, as means over seeds."""
    heads = ["algorithm"]
    for target in shown.targets:
        heads += [f"time to {target:g}", f"updates to {target:g}"]
    heads += [f"final {shown.first.metric}", "worst server"]
    same = on_clients(shown.first.metric) if shown.first.by_clients else None  # is the score itself
    for name, other in shown.others.items():
        heads += [f"final {name}"] * (name != same) + ["worst tenth"] * of_clients(other)
    heads.append("sent MB")
    body = []
    for label, curves in shown.lines.items():
        ended = all(c.finished or not c.virtual for c in curves)  # a deployment runs until it is stopped
        cells = [label + ("" if ended else " (stopped early)")]
        for target in shown.targets:
            hits = [c.reached(target) for c in curves]
            cells.append(sample(hit and hit[0] for hit in hits).text(".2f", " s"))
            cells.append(sample(hit and hit[1] for hit in hits).text(",.0f"))
        cells.append(sample(c.mean[-1] for c in curves).text(".3f"))
        cells.append(sample(c.worst[-1] for c in curves).text(".3f"))
        for name, other in shown.others.items():
            if name != same:
                cells.append(sample(c.mean[-1] for c in other[label]).text(".3f"))
            if of_clients(other):
                cells.append(sample(c.worst[-1] for c in other[label]).text(".3f"))
        cells.append(sample(c.bytes[-1] / 1e6 for c in curves).text(",.1f"))
        body.append(cells)
    return heads, body


def of_clients(lines: Mapping[str, Sequence[Curve]]) -> bool:
    """Return whether curves are of clients that evaluate; the worst tenth of the clients then has a column."""
    return all(c.scored == "clients" for curves in lines.values() for c in curves)


def as_markdown(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown, with a note about ±."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    table = "".join("| " + " | ".join(cells) + " |\n" for cells in [heads, rule, *body])
    return f"{table}\n{SPREAD}\n" if has_spread(body) else table


def has_spread(body: Sequence[Sequence[str]]) -> bool:
    """Return whether any cell has a standard deviation."""
    return any(" ± " in cell for cells in body for cell in cells)


def print_table(
    heads: Sequence[str], body: Sequence[Sequence[str]], words: int = 1, console: Console | None = None
) -> None:
    """Print a table whose first ``words`` columns are text and whose other columns are numbers.

    On a narrow terminal headings and text are wrapped; if that is not enough, the columns of numbers are split into
    several tables. Output to a pipe is not wrapped.
    """
    heads, body = [*map(printable, heads)], [[*map(printable, cells)] for cells in body]
    if console is None:
        limited = sys.stdout.isatty() or "COLUMNS" in os.environ
        console = Console(width=None if limited else UNLIMITED)
    wide = widths(heads, body)
    if len(split_columns(wide, words, console.width)) > 1:
        heads = [head.replace(" ", "\n", 1) if i >= words else head for i, head in enumerate(heads)]
        wide = widths(heads, body)
    for numbers in split_columns(wide, words, console.width):
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
        for i, head in enumerate(heads[:words]):
            table.add_column(Text(head), overflow="fold", min_width=min(wide[i], 8))
        for i in numbers:
            table.add_column(Text(heads[i]), justify="right", no_wrap=True, min_width=wide[i])
        for cells in body:
            table.add_row(*map(Text, (*cells[:words], *(cells[i] for i in numbers))))  # Text: brackets are not markup
        console.print(table)
    if has_spread(body):
        console.print(Text(SPREAD))


def widths(heads: Sequence[str], body: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    columns = zip(heads, *body, strict=True)
    return [max(len(line) for text in column for line in text.split("\n")) for column in columns]


def split_columns(wide: Sequence[int], words: int, room: int) -> list[list[int]]:
    """Split the columns of numbers into tables that fit ``room`` characters; text gets at most half of it."""
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
