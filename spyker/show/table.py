"""The table that compares runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from spyker.show.curves import Curve


def rows(curves: Sequence[Curve], targets: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells: when each target was reached, where it ended, what it cost."""
    heads = ["algorithm"]
    for target in targets:
        heads += [f"time to {target:g}", f"updates to {target:g}"]
    heads += [f"final {curves[0].metric}", "worst server", "sent MB"]
    body = []
    for c in curves:
        cells = [c.label + ("" if c.finished else " (stopped early)")]
        for target in targets:
            hit = c.reached(target)
            cells += [f"{hit[0]:.2f} s", f"{hit[1]:,}"] if hit else ["–", "–"]
        cells += [f"{c.mean[-1]:.3f}", f"{c.worst[-1]:.3f}", f"{c.bytes[-1] / 1e6:,.1f}"]
        body.append(cells)
    return heads, body


def for_terminal(curves: Sequence[Curve], targets: Sequence[float]) -> Table:
    """The table, drawn; headings break so that it fits into 80 columns."""
    heads, body = rows(curves, targets)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for i, head in enumerate(heads):
        table.add_column(head.replace(" ", "\n", 1), justify="right" if i else "left", no_wrap=True)
    for cells in body:
        table.add_row(*cells)
    return table


def as_markdown(curves: Sequence[Curve], targets: Sequence[float]) -> str:
    """The table as Markdown."""
    heads, body = rows(curves, targets)
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [heads, rule, *body])
