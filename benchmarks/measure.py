"""Common parts of the benchmarks: ratios of alternating measurements, so that noise affects both."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "runs" / "bench"


@dataclass(frozen=True)
class Result:
    """A ratio and its limit: a minimum, or with ``at_most`` a maximum."""

    name: str
    ratio: float
    bar: float | None
    at_most: bool = False
    details: dict[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the limit is met; ``True`` without a limit."""
        if self.bar is None:
            return True
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar


def in_turn(first: Callable[[], float], second: Callable[[], float], times: int) -> tuple[float, float]:
    """Measure two functions alternately; return both medians."""
    pairs = [(first(), second()) for _ in range(times)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def write(benchmark: str, results: list[Result]) -> Path:
    """Write the results of a benchmark as JSON."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{benchmark}.json"
    path.write_text(json.dumps([asdict(result) | {"met": result.met} for result in results], indent=2) + "\n")
    return path
