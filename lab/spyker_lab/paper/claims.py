"""What the paper claims, set beside what was measured.

Most claims have a direction ("Spyker is faster"), and many a size ("by 61 %"). The direction holds if every seed shows
it. The size holds if our effect is at least four fifths of the paper's: a larger one confirms it as well. Other claims
state a level ("around 300 updates"), which holds if our mean is within a fifth of it, or a limit ("only 1.21 times as
long"), which holds if our effect is at most five fourths of the paper's.

What was measured may be a bound: a target that a run did not reach in 40 s takes longer than one that was reached in
12 s. A claim is open only if the bounds do not decide it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyker.plots.samples import Range, SeedSample, all_true, is_less, sample

ENOUGH = 0.8
NOT_REACHED = "a target was not reached"


class ClaimVerdict(enum.Enum):
    """What became of a claim."""

    HOLDS = "holds"
    DIRECTION = "holds in direction"
    FAILS = "does not hold"
    OPEN = "could not be decided"


class ClaimKind(enum.Enum):
    """What a claim's number is."""

    EFFECT = "as large as the paper's, or larger"
    LEVEL = "about the paper's"
    LIMIT = "as small as the paper's, or smaller"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper and the numbers on both sides. Without a size, ``paper`` is ``None``."""

    sentence: str
    paper: float | None
    ours: SeedSample
    neutral: float = 0.0
    """The number that would mean no effect; the effect is what lies above it."""
    unit: str = ""
    why: str = ""
    """What explains a claim that does not hold."""
    kind: ClaimKind = ClaimKind.EFFECT
    yes_or_no: bool = False
    """Whether the numbers stand for true and false."""
    measured: SeedSample | None = None
    """For those, the numbers that were compared."""
    undecided: str = NOT_REACHED
    """Why a claim may remain open."""
    again: bool = False
    """Whether this is a second reading of a sentence that is judged already."""

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the claim holds here."""
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
        """What was measured, for people: a size with its interval of 95 %."""
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
        """The paper's number, for people."""
        return "–" if self.paper is None else f"{self.paper:{form(self.paper)}}{self.unit}"

    def markdown(self) -> str:
        """One row of a table."""
        why = {ClaimVerdict.HOLDS: "", ClaimVerdict.OPEN: self.undecided}.get(self.verdict, self.why)
        return f"| {self.sentence} | {self.there} | {self.here} | {self.verdict.value} | {why} |\n"


def decided(holds: bool | None) -> ClaimVerdict:
    """The verdict on a claim that holds or does not."""
    return ClaimVerdict.OPEN if holds is None else ClaimVerdict.HOLDS if holds else ClaimVerdict.FAILS


def within(mean: Range, least: float, most: float) -> bool | None:
    """Whether a mean lies between two numbers, which belong to the span; ``None`` where that is not known."""
    low, high = mean
    return True if least <= low and high <= most else False if high < least or low > most else None


def form(number: float | None) -> str:
    """How a number is written."""
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
    """A claim that is either true or not, seed by seed."""
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


def table(claims: Sequence[Claim], who: str = "the paper says") -> str:
    """All claims as Markdown, and whose they are."""
    if not claims:
        return ""
    head = f"| {who} | there | here | verdict | why |\n| --- | ---: | ---: | --- | --- |\n"
    return head + "".join(claim.markdown() for claim in claims)
