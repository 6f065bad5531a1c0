"""Warnings about runs that do not learn, with the likely cause and a remedy.

Only the direction of a metric is known, so scores are compared with each other. A higher-is-better metric with scores
between 0 and 1 is assumed to end at 1, and a lower-is-better metric without negative scores at 0; for other metrics the
first score and the range of all scores give the scale. ``docs/reference/faq.md`` lists the thresholds.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

NO_UPDATES, SLOW_LINKS, NO_PROGRESS, COLLAPSED, DIVERGED = KINDS = (
    "no-updates",
    "slow-links",
    "no-progress",
    "collapsed",
    "diverged",
)
# Fractions of the largest possible improvement. A smaller improvement counts as none:
SMALL = 0.02  # of any score
BY_CHANCE = 0.05  # of a share that does not double
FROM_BELOW = 0.1  # of a share that improves only once, from an untrained model's score to that of guessing
# A collapse loses more than this share of the scale, and of the best score or improvement in two evaluations or in one:
LARGE, MOST_LOST, NEARLY_ALL = 0.1, 0.5, 0.8
NOISE = 2.0  # multiple of the median change between two evaluations: smaller differences may be noise
STEPS, ENOUGH = 32, 8  # changes that this median is taken over, at most and at least


@dataclass(frozen=True, slots=True)
class RunWarning:
    """A warning about a run."""

    kind: str
    """One of :data:`KINDS`."""
    message: str
    """A sentence with the figures."""
    remedy: str

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}."


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """The parts of a client's round, in seconds."""

    transfer: float
    """Duration of sending the model one way, without latency."""
    training: float
    """Median duration of a training over the clients."""
    shortest: float
    """Round of the fastest client: training and sending the model both ways, with latency."""
    megabytes: float
    """Size of the model."""
    mbit: float
    """Bandwidth of a link."""

    @property
    def in_words(self) -> str:
        """The durations of sending and training the model, as text."""
        return (
            f"sending the model ({self.megabytes:,.3g} MB at {self.mbit:g} Mbit/s) takes {self.transfer:,.3g} s each "
            f"way, and training it {self.training:,.3g} s"
        )


class ScoreHistory:
    """Statistics of a score curve, in constant memory."""

    def __init__(self, *, higher_is_better: bool) -> None:
        self.sign = 1.0 if higher_is_better else -1.0
        self.first = self.second = self.best = self.last = self.previous = math.nan
        self.low, self.high = math.inf, -math.inf
        self.count = 0
        self.steps: deque[float] = deque(maxlen=STEPS)

    def add(self, score: float) -> None:
        """Add a score."""
        if not self.count:
            self.first = score
        elif math.isfinite(score - self.last):
            self.steps.append(abs(score - self.last))
        self.count += 1
        self.previous, self.last = self.last, score
        if self.count == 2:
            self.second = score
        if math.isfinite(score):
            self.low, self.high = min(self.low, score), max(self.high, score)
            self.best = self.high if self.sign > 0 else self.low

    @property
    def possible(self) -> float:
        """Largest possible improvement over the first score; the scale if unknown."""
        return 1 - self.first if self.is_share else self.scale

    @property
    def scale(self) -> float:
        """Scale of differences between scores."""
        if self.is_share:
            return 1.0
        return self.first if self.sign < 0 and self.low >= 0 else max(abs(self.first), self.high - self.low)

    @property
    def is_share(self) -> bool:
        """Whether scores are like accuracy: between 0 and 1, higher is better."""
        return self.sign > 0 and self.low >= 0 and self.high <= 1

    @property
    def noise(self) -> float:
        """Difference that may be noise."""
        return NOISE * statistics.median(self.steps) if len(self.steps) >= ENOUGH else 0.0

    @property
    def collapsed(self) -> bool:
        """Whether the last score is much worse than the best."""
        if not math.isfinite(self.last):
            return math.isfinite(self.best)
        if self.count < 2 or not math.isfinite(self.first):
            return False
        at_stake = max(self.sign * (self.best - self.first), abs(self.best))
        before, lost = (self.sign * (self.best - score) for score in (self.previous, self.last))
        most = lost > NEARLY_ALL * at_stake or min(before, lost) > MOST_LOST * at_stake
        return most and lost > max(LARGE * self.scale, self.noise)

    @property
    def stayed(self) -> bool:
        """Whether the last score is not better than the first beyond noise."""
        if self.count < 2 or self.collapsed or not math.isfinite(self.first) or self.possible <= 0:
            return False
        gained, later, enough = self.sign * (self.last - self.first), self.sign * (self.last - self.second), SMALL
        if self.is_share and self.last < 2 * self.first:
            enough = BY_CHANCE
        if self.is_share and self.count > 2 and later <= SMALL * self.possible:
            enough = FROM_BELOW
        return gained <= max(enough * self.possible, self.noise)

    def state(self) -> list[Any]:
        """Return the state as JSON values; numbers that are not finite become ``None``."""
        numbers = (self.first, self.second, self.best, self.previous, self.last, self.low, self.high)
        return [self.count, [x if math.isfinite(x) else None for x in numbers], list(self.steps)]

    def restore(self, kept: Sequence[Any]) -> None:
        """Restore the state."""
        self.count, (*scores, low, high), steps = kept
        self.first, self.second, self.best, self.previous, self.last = (math.nan if x is None else x for x in scores)
        self.low, self.high = (math.inf, -math.inf) if low is None else (low, high)
        self.steps.extend(steps)


def score_warnings(scores: ScoreHistory, metric: str, updates: int, clients: int, *, met: bool) -> list[RunWarning]:
    """Return warnings about scores; none if ``met``: the last score reaches a target."""
    first, best, last = (f"{score:.4g}" for score in (scores.first, scores.best, scores.last))
    if scores.collapsed:
        message = f"training collapsed: {metric} is {last} at the end, and was {best} at best"
        remedy = "Lower training.rate (--set training.rate=…), or stop at the best score (evaluation.patience)"
        return [RunWarning(COLLAPSED, message, remedy)]
    if met or not scores.stayed or not updates:
        return []
    how = (
        f"every evaluation gave {metric} {last}" if scores.low == scores.high else f"{metric} was {first} and is {last}"
    )
    remedy = "Try other learning rates (spyker sweep --vary training.rate=…); docs/how-to/tuning.md has other causes"
    if updates < clients:
        remedy = "Clients had fewer than one update each: run longer (--duration)"
    return [RunWarning(NO_PROGRESS, f"the run learnt next to nothing: {how} after {updates:,} updates", remedy)]


def no_updates(time: float, times: RoundTimes | None) -> RunWarning:
    """Return the warning for a run without updates."""
    message, remedy = f"no client update arrived in {time:g} s", "Run longer (--duration)"
    if times is not None and times.shortest > time:
        message += f": a round takes {times.shortest:,.3g} s at least, because {times.in_words}"
        longer = f"Run at least {math.ceil(10 * times.shortest):,} s (--duration)"
        remedy = f"{longer}, raise world.bandwidth-mbit, or use a smaller model"
    else:
        remedy += ", or check how many updates the algorithm waits for, and whether clients fail"
    return RunWarning(NO_UPDATES, message, remedy)


def slow_links(times: RoundTimes) -> list[RunWarning]:
    """Return a warning if links are slower than training."""
    if times.transfer <= times.training:
        return []
    message = f"links, not training, set the pace: {times.in_words}"
    remedy = "Raise world.bandwidth-mbit, use a smaller model, or, if training takes longer, say so (training.delay-ms)"
    return [RunWarning(SLOW_LINKS, message, remedy)]


def diverged_servers(restored: int) -> list[RunWarning]:
    """Return a warning if servers restored earlier models."""
    if not restored:
        return []
    times = "once" if restored == 1 else f"{restored} times"
    message = f"training diverged, and a server restored its last good model {times}, each time with half the gain"
    return [RunWarning(DIVERGED, message, "Lower training.rate (--set training.rate=…)")]


def as_table(warnings: Sequence[RunWarning]) -> list[dict[str, str]] | None:
    """Return warnings for the summary."""
    return [asdict(each) for each in warnings] or None
