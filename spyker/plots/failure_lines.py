"""Warnings on standard error about clients that fail during a run."""

from __future__ import annotations

import sys

from spyker.records import ClientFailed, Fact

NAMED = 3  # failures reported individually


class FailureLines:
    """Prints one line for each of the first failed clients; the summary lists all of them."""

    def __init__(self, *, stop: bool) -> None:
        """With ``stop``, the first failure ends the run with an error that explains it."""
        self.failed, self.stop = 0, stop

    def fact(self, t: float, fact: Fact) -> None:
        """Process a fact."""
        if self.stop or not isinstance(fact, ClientFailed):
            return
        self.failed += 1
        if self.failed <= NAMED:
            text = f"client {fact.client} failed at t = {t:g} s and is excluded: {fact.reason}"
        elif self.failed == NAMED + 1:
            text = "more clients fail; failed_clients in summary.json names all of them"
        else:
            return
        print(f"spyker: warning: {text}", file=sys.stderr)
