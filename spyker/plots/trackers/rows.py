"""Facts as rows of numbers, one row per evaluation.

Names are those of the facts. Of each kind there is a count so far (``update/count``) and, of each of its fields that is
a float, the mean since the last row (``update/staleness``): so facts of an algorithm of somebody's own are in it, too.
What clients measure comes as ``report/loss``. Memory does not grow with the run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from spyker.records import Evaluated, Fact, RunStarted, UnknownFact

ALL_SERVERS = ("mean", "worst", "best", "averaged")


class MetricRow(NamedTuple):
    """What there is to tell at one time: ``updates`` of clients are the natural count of steps."""

    updates: int
    t: float
    numbers: dict[str, float]


class MetricRows:
    """Takes facts, and gives a row when there is one."""

    def __init__(self, start: RunStarted) -> None:
        self.start = start
        mine = [start.servers[start.server]] if start.server is not None else start.servers
        self._regions = [server.region for server in mine if server.clients is not None]
        self._counts: Counter[str] = Counter()
        self._means: dict[str, tuple[int, float]] = {}  # how many, and their sum

    def fact(self, t: float, fact: Fact) -> MetricRow | None:
        """One more fact."""
        if isinstance(fact, Evaluated):
            return self._row(t, fact)
        if not isinstance(fact, RunStarted):
            self._counts[fact.kind] += 1
            for name, value in floats(fact):
                if math.isfinite(value):
                    n, total = self._means.get(name, (0, 0.0))
                    self._means[name] = n + 1, total + value
        return None

    def _row(self, t: float, fact: Evaluated) -> MetricRow:
        metric, scores = self.start.metric, fact.servers
        numbers = {f"{metric}/{name}": getattr(fact, name) for name in ALL_SERVERS[: 4 if len(scores) > 1 else 1]}
        if len(scores) == len(self._regions) > 1:
            names = [f"{metric} of servers/{region}" for region in self._regions]
            numbers |= dict(zip(names, scores, strict=True))
        numbers |= {"run/seconds": t, "run/updates": fact.updates, "run/bytes": fact.bytes}
        numbers |= {f"{kind}/count": count for kind, count in sorted(self._counts.items())}
        numbers |= {name: total / n for name, (n, total) in sorted(self._means.items())}
        self._means.clear()
        return MetricRow(
            fact.updates, t, {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
        )


def floats(fact: Fact) -> Iterator[tuple[str, float]]:
    """The fields of a fact that are floats, or tables of them, as ``kind/field``."""
    for name, table in float_fields(type(fact)):  # type: ignore[arg-type]  # a class can be hashed
        value = getattr(fact, name)
        if table:
            yield from ((f"{fact.kind}/{key}", each) for key, each in value.items() if isinstance(each, float | int))
        else:
            yield f"{fact.kind}/{name}", value


@functools.cache
def float_fields(kind: type[Fact]) -> list[tuple[str, bool]]:
    """Which fields of a kind are floats, or tables of them. Whole numbers are mostly names: of servers, of clients."""
    if kind is UnknownFact:
        return []
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]  # facts are dataclasses
    return [(name, hints[name] is not float) for name in names if hints[name] in (float, dict[str, float])]
