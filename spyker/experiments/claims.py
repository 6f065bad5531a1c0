"""What the paper claims, set beside what was measured.

A claim has a direction ("Spyker is faster") and mostly a size ("by 61 %"). The direction holds if every seed shows it.
The size holds if our effect is at least four fifths of the paper's: a larger one confirms it as well.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spyker.experiments.numbers import Sample

ENOUGH = 0.8


class Verdict(enum.Enum):
    """What became of a claim."""

    HOLDS = "holds"
    DIRECTION = "holds in direction, not in size"
    FAILS = "does not hold"
    OPEN = "could not be decided: a target was not reached"


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
    yes_or_no: bool = False
    """Whether the numbers stand for true and false."""

    @property
    def verdict(self) -> Verdict:
        """Whether the claim holds here."""
        if not self.ours.whole or self.ours.mean is None:
            return Verdict.OPEN
        if not all(n > self.neutral for n in self.ours.known):
            return Verdict.FAILS
        if self.paper is not None and self.ours.mean - self.neutral < ENOUGH * (self.paper - self.neutral):
            return Verdict.DIRECTION
        return Verdict.HOLDS

    @property
    def here(self) -> str:
        """What was measured, for people."""
        if not self.yes_or_no or not self.ours.whole:
            return self.ours.text(".3g", self.unit)
        yes, seeds = sum(n > self.neutral for n in self.ours.known), len(self.ours.numbers)
        return "yes" if yes == seeds else "no" if not yes else f"in {yes} of {seeds} seeds"

    def markdown(self) -> str:
        """One row of a table."""
        paper = "–" if self.paper is None else f"{self.paper:.3g}{self.unit}"
        why = self.why if self.verdict is not Verdict.HOLDS and self.why else ""
        return f"| {self.sentence} | {paper} | {self.here} | {self.verdict.value} | {why} |\n"


def truth(sentence: str, holds: list[bool | None], why: str = "") -> Claim:
    """A claim that is either true or not, seed by seed."""
    numbers = Sample(tuple(None if h is None else float(h) for h in holds))
    return Claim(sentence, None, numbers, neutral=0.5, why=why, yes_or_no=True)


def table(claims: list[Claim]) -> str:
    """All claims as Markdown."""
    if not claims:
        return ""
    head = "| the paper says | there | here | verdict | why |\n| --- | ---: | ---: | --- | --- |\n"
    return head + "".join(claim.markdown() for claim in claims)
