"""The claims of the paper, compared with measurements.

Most claims have a direction ("Spyker is faster"), and many a size ("by 61 %"). The direction holds if it holds for
every seed. The size holds if our effect is at least four fifths of the paper's. Other claims state a level ("around 300
updates"), which holds if our mean is within a fifth of it, or a limit ("only 1.21 times as long"), which holds if our
effect is at most five fourths of the paper's.

A measurement may be a bound, such as the end of a run that did not reach its target. A claim is open only if the bounds
do not decide it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyker.plots.samples import Range, SeedSample, sample
from spyker_lab.paper.comparisons import all_true, is_less

ENOUGH = 0.8
NOT_REACHED = "a target was not reached"


class ClaimVerdict(enum.Enum):
    """Whether a claim holds."""

    HOLDS = "holds"
    DIRECTION = "holds in direction"
    FAILS = "does not hold"
    OPEN = "could not be decided"


class ClaimKind(enum.Enum):
    """The meaning of a claim's number."""

    EFFECT = "as large as the paper's, or larger"
    LEVEL = "about the paper's"
    LIMIT = "as small as the paper's, or smaller"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper with its number (``None`` for a claim without a size) and our measurement."""

    sentence: str
    paper: float | None
    ours: SeedSample
    neutral: float = 0.0
    """The number without an effect; the effect is the difference from it."""
    unit: str = ""
    why: str = ""
    """Explanation, if the claim does not hold."""
    kind: ClaimKind = ClaimKind.EFFECT
    yes_or_no: bool = False
    """Whether the numbers are truth values."""
    measured: SeedSample | None = None
    """For truth values, the compared numbers."""
    undecided: str = NOT_REACHED
    """Explanation, if the claim is open."""
    again: bool = False
    """Whether this is a second reading of an earlier sentence."""

    @property
    def verdict(self) -> ClaimVerdict:
        """The verdict on the claim."""
        if not self.ours.ranges:
            return ClaimVerdict.OPEN
        low, high = self.ours.mean_range
        if self.paper is not None and self.kind is ClaimKind.LEVEL:
            return decided(within((low, high), ENOUGH * self.paper, (2 - ENOUGH) * self.paper))
        if self.paper is not None and self.kind is ClaimKind.LIMIT:
            most = self.neutral + (self.paper - self.neutral) / ENOUGH
            return decided(within((low, high), -math.inf, most))
        direction = all_true(is_less((self.neutral, self.neutral), known) for known in self.ours.ranges)
        if direction is not True or self.paper is None:
            return decided(direction)
        return (
            ClaimVerdict.HOLDS if low >= self.neutral + ENOUGH * (self.paper - self.neutral) else ClaimVerdict.DIRECTION
        )

    @property
    def here(self) -> str:
        """Our measurement as text: a size with its 95 % interval."""
        if self.yes_or_no and self.ours.known:
            yes, seeds = sum(n > self.neutral for n in self.ours.known), len(self.ours.numbers)
            answer = "yes" if yes == seeds else "no" if self.ours.whole and not yes else f"in {yes} of {seeds} seeds"
            return answer if self.measured is None else f"{answer} ({self.measured.text('.3g')})"
        mean, interval = self.ours.mean, self.ours.interval
        if mean is None or interval is None:
            return self.ours.text(form(mean), self.unit)
        low, high = (f"{end:{form(end)}}" for end in interval)
        return f"{mean:{form(mean)}}{self.unit} ({low} to {high})"

    @property
    def there(self) -> str:
        """The paper's number as text."""
        return "–" if self.paper is None else f"{self.paper:{form(self.paper)}}{self.unit}"

    def markdown(self) -> str:
        """Return the row of a table."""
        why = {ClaimVerdict.HOLDS: "", ClaimVerdict.OPEN: self.undecided}.get(self.verdict, self.why)
        return f"| {self.sentence} | {self.there} | {self.here} | {self.verdict.value} | {why} |\n"


def decided(holds: bool | None) -> ClaimVerdict:
    """Return the verdict on a claim without a size."""
    return ClaimVerdict.OPEN if holds is None else ClaimVerdict.HOLDS if holds else ClaimVerdict.FAILS


def within(mean: Range, least: float, most: float) -> bool | None:
    """Return whether a mean is in a closed interval, or ``None`` if unknown."""
    low, high = mean
    return True if least <= low and high <= most else False if high < least or low > most else None


def form(number: float | None) -> str:
    """Return the format of a number."""
    return ",.0f" if number is not None and abs(number) >= 1000 else ".3g"


def truth(
    sentence: str,
    holds: Sequence[bool | None],
    why: str = "",
    measured: SeedSample | None = None,
    undecided: str = NOT_REACHED,
    *,
    again: bool = False,
) -> Claim:
    """Return a claim that is true or false for each seed."""
    numbers = sample(None if h is None else float(h) for h in holds)
    return Claim(
        sentence,
        None,
        numbers,
        neutral=0.5,
        why=why,
        yes_or_no=True,
        measured=measured,
        undecided=undecided,
        again=again,
    )


def table(claims: Sequence[Claim], heading: str = "the paper says") -> str:
    """Return all claims as a Markdown table; ``heading`` is that of the first column."""
    if not claims:
        return ""
    head = f"| {heading} | there | here | verdict | why |\n| --- | ---: | ---: | --- | --- |\n"
    return head + "".join(claim.markdown() for claim in claims)
