"""What the paper claims, set beside what was measured.

Most claims have a direction ("Spyker is faster"), and many a size ("by 61 %"). The direction holds if every seed shows
it. The size holds if our effect is at least four fifths of the paper's: a larger one confirms it as well. Other claims
state a level ("around 300 updates"), which holds if our mean is within a fifth of it, or a limit ("only 1.21 times as
long"), which holds if our effect is at most five fourths of the paper's.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from spyker.experiments.numbers import Sample

ENOUGH = 0.8
NOT_REACHED = "a target was not reached"


class Verdict(enum.Enum):
    """What became of a claim."""

    HOLDS = "holds"
    DIRECTION = "holds in direction, not in size"
    FAILS = "does not hold"
    OPEN = "could not be decided"


class Kind(enum.Enum):
    """What a claim's number is."""

    EFFECT = "as large as the paper's, or larger"
    LEVEL = "about the paper's"
    LIMIT = "as small as the paper's, or smaller"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper and the numbers on both sides. Without a size, ``paper`` is ``None``."""

    sentence: str
    paper: float | None
    ours: Sample
    neutral: float = 0.0
    """The number that would mean no effect; the effect is what lies above it."""
    unit: str = ""
    why: str = ""
    """What explains a claim that does not hold."""
    kind: Kind = Kind.EFFECT
    yes_or_no: bool = False
    """Whether the numbers stand for true and false."""
    measured: Sample | None = None
    """For those, the numbers that were compared."""
    undecided: str = NOT_REACHED
    """Why a claim may remain open."""

    @property
    def verdict(self) -> Verdict:
        """Whether the claim holds here."""
        if not self.ours.whole or self.ours.mean is None:
            return Verdict.OPEN
        if self.paper is not None and self.kind is Kind.LEVEL:
            return Verdict.HOLDS if abs(self.ours.mean / self.paper - 1) <= 1 - ENOUGH else Verdict.FAILS
        if self.paper is not None and self.kind is Kind.LIMIT:
            effect, papers = self.ours.mean - self.neutral, self.paper - self.neutral
            return Verdict.HOLDS if ENOUGH * effect <= papers else Verdict.FAILS
        if not all(n > self.neutral for n in self.ours.known):
            return Verdict.FAILS
        if self.paper is not None and self.ours.mean - self.neutral < ENOUGH * (self.paper - self.neutral):
            return Verdict.DIRECTION
        return Verdict.HOLDS

    @property
    def here(self) -> str:
        """What was measured, for people."""
        if not self.yes_or_no or not self.ours.whole:
            return self.ours.text(form(self.ours.mean), self.unit)
        yes, seeds = sum(n > self.neutral for n in self.ours.known), len(self.ours.numbers)
        answer = "yes" if yes == seeds else "no" if not yes else f"in {yes} of {seeds} seeds"
        return answer if self.measured is None else f"{answer} ({self.measured.text('.3g')})"

    def markdown(self) -> str:
        """One row of a table."""
        paper = "–" if self.paper is None else f"{self.paper:{form(self.paper)}}{self.unit}"
        why = {Verdict.HOLDS: "", Verdict.OPEN: self.undecided}.get(self.verdict, self.why)
        return f"| {self.sentence} | {paper} | {self.here} | {self.verdict.value} | {why} |\n"


def form(number: float | None) -> str:
    """How a number is written."""
    return ",.0f" if number is not None and abs(number) >= 1000 else ".3g"


def truth(
    sentence: str,
    holds: Sequence[bool | None],
    why: str = "",
    measured: Sample | None = None,
    undecided: str = NOT_REACHED,
) -> Claim:
    """A claim that is either true or not, seed by seed."""
    numbers = Sample(tuple(None if h is None else float(h) for h in holds))
    return Claim(sentence, None, numbers, neutral=0.5, why=why, yes_or_no=True, measured=measured, undecided=undecided)


def table(claims: Sequence[Claim], who: str = "the paper says") -> str:
    """All claims as Markdown, and whose they are."""
    if not claims:
        return ""
    head = f"| {who} | there | here | verdict | why |\n| --- | ---: | ---: | --- | --- |\n"
    return head + "".join(claim.markdown() for claim in claims)
