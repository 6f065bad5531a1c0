"""Says on standard error which clients fail while a run goes on."""

from __future__ import annotations

import sys

from spyker.records import ClientFailed, Fact

NAMED = 3  # failures that have a line of their own


class FailureLines:
    """A line for each of the first clients that fail; the summary has all of them."""

    def __init__(self) -> None:
        self.failed = 0

    def fact(self, t: float, fact: Fact) -> None:
        """Take note of a fact."""
        if not isinstance(fact, ClientFailed):
            return
        self.failed += 1
        if self.failed <= NAMED:
            text = f"client {fact.client} failed at t = {t:g} s and is excluded: {fact.reason}"
        elif self.failed == NAMED + 1:
            text = "more clients fail; failed_clients in summary.json names all of them"
        else:
            return
        print(f"spyker: warning: {text}", file=sys.stderr)
