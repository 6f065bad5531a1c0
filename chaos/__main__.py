"""Inject faults into simulated deployments, from seeds, and check invariants.

    python -m chaos [--seeds A-B] [--minutes M] [--workers N] [--quiet]

Exit codes: 0 no violation, 1 a violation, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterable

from chaos.campaign import campaign, run_plan, shrink
from chaos.fault_plan import fault_plan
from spyker.cli.codes import BAD_INPUT, FAILED, INTERRUPTED
from spyker.cli.help import Parser, examples
from spyker.cli.numbers import above_zero, count
from spyker.errors import UsageError


def main(argv: list[str]) -> int:
    """Run a campaign and return its exit code."""
    parser = Parser(
        prog="python -m chaos",
        description="Each seed determines a deployment of whole server processes and its faults: crashes, "
        "lost and damaged disks, partitions, stopped and slow processes, replacement, removal, copies. Stops at the "
        "first violation.",
    )
    parser.add_argument("--seeds", metavar="A-B", help="from A to B, or a single one; default: from 1 without end")
    parser.add_argument("--minutes", type=above_zero, metavar="M", help="end after this many minutes")
    parser.add_argument("--workers", type=count, default=os.cpu_count() or 1, metavar="N", help="default: all cores")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    examples(
        parser,
        "python -m chaos  # until it fails, or Ctrl-C",
        "python -m chaos --seeds 1-10000",
        "python -m chaos --minutes 30",
        "python -m chaos --seeds 4711  # repeat one seed and print its faults",
    )
    try:
        return run(parser.parse_args(argv))
    except UsageError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return BAD_INPUT


def run(args: argparse.Namespace) -> int:
    """Run seeds, and print a violation."""
    seeds, single = read_seeds(args.seeds)
    if single is not None:
        chosen = fault_plan(single)
        print(f"{chosen.algorithm}, {len(chosen.clients)} servers with {list(chosen.clients)} clients")
        for fault in chosen.faults:
            print(f"  {fault}")
    began, done, events = time.monotonic(), 0, 0
    progress = Progress(len(seeds) if isinstance(seeds, range) else None, quiet=args.quiet)
    seconds = None if args.minutes is None else 60 * args.minutes
    failed, code = None, 0
    try:
        for verdict in campaign(seeds, 1 if single is not None else args.workers, seconds):
            done, events = done + 1, events + verdict.events
            if verdict.violation:
                failed = verdict
                break
            progress.tell(done, events)
    except KeyboardInterrupt:
        code = INTERRUPTED
    progress.end()
    if failed is not None:
        print(f"seed {failed.seed}: {failed.violation}")
        if single is None:
            print(f"again: python -m chaos --seeds {failed.seed}")
        small = shrink(fault_plan(failed.seed))
        print(f"with fewer faults: {run_plan(small).violation}")
        for fault in small.faults:
            print(f"  {fault}")
        return FAILED
    taken = time.monotonic() - began
    print(f"{seeds_of(done)}, {events:,} events, no violation{' so far' if code else ''}, {taken:.0f} s")
    return code


def seeds_of(count: int) -> str:
    """Return a number of seeds as text."""
    return "1 seed" if count == 1 else f"{count:,} seeds"


class Progress:
    """Shows the progress: on one line of a terminal, or in a line each minute."""

    def __init__(self, total: int | None, *, quiet: bool) -> None:
        self.total, self.quiet, self.terminal = total, quiet, sys.stderr.isatty()
        self.began = self.last = time.monotonic()

    def tell(self, count: int, events: int) -> None:
        """Show the number of finished seeds and events."""
        now = time.monotonic()
        if self.quiet or now - self.last < (2 if self.terminal else 60):
            return
        self.last = now
        said = f"{seeds_of(count)}, {events:,} events"
        if self.total is not None:
            left = (now - self.began) / count * (self.total - count) / 60
            said = f"{count:,} of {self.total:,} seeds, {events:,} events, {left:.0f} min left"
        start, end = ("\r\033[K", "") if self.terminal else ("", "\n")
        print(f"{start}{said}", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line of the progress."""
        if self.terminal and not self.quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def read_seeds(text: str | None) -> tuple[Iterable[int], int | None]:
    """Parse ``1-200`` or ``7``."""
    if text is None:
        return itertools.count(1), None
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
        raise UsageError("--seeds", f"{text!r} is not allowed", "Write a number, such as 7, or a range, such as 1-200")
    if not dash:
        return [int(first)], int(first)
    return range(int(first), int(last) + 1), None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
