"""How many rounds it takes to find clients that spoil sums of masked updates.

    python -m benchmarks.offender_search

Plays the groups and suspicions of :mod:`spyker.privacy.offenders` alone, without models; a minute at most.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

from spyker.privacy.offenders import SPARE, OffenderSearch

THRESHOLD, SEEDS, ROUNDS = 3, 40, 60


class Played(NamedTuple):
    """What happened in some rounds."""

    found: dict[int, int]
    """Round in which each offender was excluded first."""
    innocent: int
    """How often another client was excluded."""
    lost: float
    """Share of the other clients' updates that were in spoilt sums."""


def play(
    clients: int, offends: Callable[[int, random.Random], bool], rounds: int, seed: int, absent: float = 0.0
) -> Played:
    """Rounds in which groups that are too small are merged with the smallest other one, as batches are."""
    search, drawn, out = OffenderSearch(), random.Random(seed), dict[int, int]()
    found, innocent, lost, counted = dict[int, int](), 0, 0, 0
    offenders = {k for k in range(clients) if offends(k, random.Random(1)) or offends(k, random.Random(2))}
    for turn in range(rounds):
        out = {k: until for k, until in out.items() if until > turn}
        present = [k for k in range(clients) if k not in out]
        groups: dict[int, list[int]] = {}
        for k in present:
            if drawn.random() >= absent:
                groups.setdefault(search.group(k), []).append(k)
        spare = groups.pop(SPARE, [])
        sums = sorted(groups.values(), key=len)
        if not sums or len(sums[0]) < THRESHOLD:
            sums = [sums[0] + spare if sums else spare, *sums[1:]]
        while len(sums) > 1 and len(sums[0]) < THRESHOLD:
            sums = sorted([sums[0] + sums[1], *sums[2:]], key=len)
        bad = {k for k in present if offends(k, drawn)}
        for members in sums:
            if len(members) >= THRESHOLD:
                spoilt = not bad.isdisjoint(members)
                search.note(members, drawn.randbytes(8), spoilt=spoilt)
                lost += spoilt * len(set(members) - offenders)
                counted += len(set(members) - offenders)
        for k in search.judge(present, THRESHOLD):
            out[k] = turn + 30
            found |= {k: found.get(k, turn)} if k in offenders else {}
            innocent += k not in offenders
        search.regroup([k for k in present if k not in out], THRESHOLD)
    return Played(found, innocent, lost / counted)


def always(*offenders: int) -> Callable[[int, random.Random], bool]:
    return lambda k, drawn: k in offenders


def sometimes(share: float, *offenders: int) -> Callable[[int, random.Random], bool]:
    return lambda k, drawn: k in offenders and drawn.random() < share


ROWS: dict[tuple[int, str], Callable[[int, random.Random], bool]] = {
    (4, "1"): always(1),
    (6, "1"): always(1),
    (12, "1"): always(1),
    (12, "3"): always(0, 5, 9),
    (12, "1, in every second round"): sometimes(0.5, 1),
    (100, "10"): always(*range(0, 100, 10)),
}


def main() -> None:
    """Print the table of the documentation."""
    print(f"clients, offenders: rounds until all are quarantined, median and longest of {SEEDS} seeds; innocent ones")
    for (clients, name), offends in ROWS.items():
        runs = [play(clients, offends, ROUNDS, seed) for seed in range(SEEDS)]
        rounds = [max(run.found.values()) + 1 for run in runs]
        innocent = sum(run.innocent for run in runs)
        print(f"{clients:3}, {name}: {statistics.median(rounds):g}, {max(rounds)}; {innocent}")


if __name__ == "__main__":
    main()
