"""The report of a drill: one row per measurement and guarantee, on the screen and as a document."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spyker.plots.table import print_table

MARKS = {True: "yes", False: "NO", None: "–"}


@dataclass(frozen=True)
class Row:
    """One measurement, with the guarantee that it is compared with."""

    drill: str
    what: str
    measured: str
    promised: str = ""
    kept: bool | None = None
    """``None``: nothing is guaranteed."""


@dataclass(frozen=True)
class Loss:
    """A server that was destroyed and replaced. Times are in seconds."""

    minute: int
    server: int
    token: bool
    synchronised: float | None
    """From the kill to the first merge between other servers in a new synchronisation."""
    gap: float
    """Longest time without a merge between the others, up to the next kill."""
    replaced: float
    """From the kill to the start of the replacement, which waits until the others synchronise."""
    merged: float | None
    """From its start until it has merged a model of another server, and another server one of its."""
    age: float | None
    """Age of its model after its first update."""
    lowest: float
    """Lowest age of the other servers at that time."""
    pause: float
    """Longest time without an applied update of one of its clients."""
    back: int
    """Number of its clients that returned before the next kill."""
    clients: int


@dataclass
class Report:
    """All measurements, and the faults with their times for the figure."""

    rows: list[Row] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    events: list[tuple[float, float, str]] = field(default_factory=list)
    """Start, end and name of each fault."""

    def add(self, drill: str, what: str, measured: str, promised: str = "", kept: bool | None = None) -> None:
        """Add a row; print it if a guarantee is violated."""
        self.rows.append(Row(drill, what, measured, promised, kept))
        said = "" if kept is None else "  kept" if kept else "  BROKEN"
        print(f"    {what}: {measured}" + (f" (promised: {promised})" if promised else "") + said, flush=True)

    @property
    def kept(self) -> bool:
        """Whether every guarantee was kept."""
        return all(row.kept is not False for row in self.rows)


HEADS = ["drill", "what", "measured", "promised", "kept"]
LOSSES = [
    "minute", "server", "had the token", "rest synchronise after", "longest without a merge of the rest",
    "new one started after", "merged after its start",
    "age of its first update", "lowest of the others", "longest pause of a client", "clients back within the minute",
]  # fmt: skip


def seconds(value: float | None) -> str:
    """Return a time as text; ``None`` means never."""
    return "never" if value is None else f"{value:.1f} s"


def cells(loss: Loss) -> list[str]:
    """Return the table row of a lost server."""
    return [
        str(loss.minute), str(loss.server), "yes" if loss.token else "no", seconds(loss.synchronised),
        seconds(loss.gap), seconds(loss.replaced), seconds(loss.merged), "–" if loss.age is None else f"{loss.age:.0f}",
        f"{loss.lowest:.0f}", seconds(loss.pause), f"{loss.back} of {loss.clients}",
    ]  # fmt: skip


def show(report: Report) -> None:
    """Print the tables."""
    if report.losses:
        print_table(LOSSES, [cells(loss) for loss in report.losses], words=0)
    print_table(HEADS, [[r.drill, r.what, r.measured, r.promised, MARKS[r.kept]] for r in report.rows], words=5)


def markdown(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "".join("| " + " | ".join(row) + " |\n" for row in [heads, ["---"] * len(heads), *body])


ABOUT = """# Fault drill: servers killed, stopped and cut off

The guarantees of [fault tolerance](../concepts/faults.md), tested with real processes: four `spyker serve` and twelve
clients in four `spyker join`, with TLS and default timeouts. Each process runs in its own network namespace, and the
paper's latencies lie between them. While the clients train, servers are killed, stopped, cut off, replaced, added and
removed. The figures come from the servers' run records, including those of servers whose disks were deleted. The
command writes this page, one section per algorithm; it needs root on Linux:

<!-- Not run by the tests: needs root, and twenty minutes. -->

```console
$ sudo make drill                                         # Stride; ALGORITHM=spyker for the paper's
$ sudo .venv/bin/python -m chaos.drill --only link          # one of destroy, kill, stop, cut-off, link, members
$ sudo .venv/bin/python -m chaos.drill --quick              # one server destroyed, one link cut: a minute
```

Exit code 1 means that a guarantee was violated. The faults are in
[`chaos/drill/drills.py`](../../chaos/drill/drills.py), the checks in
[`chaos/drill/checks.py`](../../chaos/drill/checks.py).

In *destroy*, one server per minute is killed with SIGKILL and its state directory is deleted: each server in turn, and
every third time the holder of the token. At least 20 s later, and not before the other servers synchronise again,
`spyker members replace` and `spyker serve --join` start a replacement; the other servers do not wait for it. The
clients of the lost server switch to other servers after 15 s (`--patience`) and check every 30 s whether theirs is back
(`--return-after`), so some return only in the following minute. Each change of the membership, one when the server is
replaced and one when the replacement joins, starts an epoch. The token of an epoch is used only after every lease of an
earlier epoch has expired, 5.5 s later; until then the remaining servers do not merge.
"""

SECTION = "\n## With "


def document(path: Path, title: str, report: Report, about: str, picture: str) -> None:
    """Write the page, or replace this algorithm's section in it."""
    verdict = "Every promise was kept." if report.kept else "**A promise was broken.**"
    kernel = platform.release().partition("-")[0]
    machine = f"Linux {kernel}, {os.cpu_count()} cores, Python {platform.python_version()}"
    rows = [[r.drill, r.what, r.measured, r.promised or "–", MARKS[r.kept]] for r in report.rows]
    parts = [
        f"{title}\n\n{verdict} {about} {machine}.\n\n",
        f"![{title}: merges of every server against time, and what happened]({picture})\n\n",
        markdown(HEADS, rows),
    ]
    if report.losses:
        parts += ["\nServers lost with their disks:\n\n", markdown(LOSSES, [cells(loss) for loss in report.losses])]
    before = path.read_text("utf-8").split(SECTION)[1:] if path.exists() else []
    sections = {section.partition("\n")[0]: section for section in before} | {title: "".join(parts)}
    path.write_text(SECTION.join([ABOUT, *(sections[name] for name in sorted(sections))]), "utf-8")
