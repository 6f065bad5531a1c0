"""Limits on the rate of each client's updates, and on their sum, relative to the median client.

Time is counted in *periods*. A period ends when more than half of the clients have sent two updates in it. If answers
are spread evenly, the median client takes one and a half times as long as for one update. (With one update, it would be
half as long: by then, half of the clients have sent the updates of trainings that began earlier.) Each period gives
every client two allowances; the unused part is kept for one more period, so that irregular updates are tolerated. Per
update of the median client, the allowances are

- ``rate`` updates. The update of a client that has none left is dropped, and the client is given no task until the
  period ends. As it answers a task once, at most one update per client and period is dropped.
- ``reach`` times the median norm. Each update spends its norm, and is clipped to the rest of the allowance. So a client
  that sends many updates has no more influence with all of them than with one at the clipping threshold.

Updates that a client sends again after a crash of the server were admitted before it, and are not counted. Otherwise a
client that reconnects and sends all its unsaved updates at once would lose most of them.

Clients that are held count towards the period's end. If half of the clients do not answer at all, the others would wait
forever, so the server also ends a period that has held a client for long (:meth:`UpdateRates.end_period`).
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

COMPLETE = 2  # updates that a client sends in a period, before it counts towards the period's end
UPDATES = 1.5  # updates that the median client sends in a period
BURST = 2.0  # periods whose allowance a client may keep


class UpdateRates:
    """The allowances of a server's clients."""

    def __init__(self, rate: float, reach: float) -> None:
        """Create the limits.

        Args:
            rate: number of updates that a client may send in the time in which the median client sends one.
            reach: sum of their norms, as a multiple of the median norm.

        """
        self.rate, self.reach = UPDATES * rate, UPDATES * reach  # per period
        self.periods = 0
        self.sent: dict[int, int] = {}  # number of updates in this period, by client
        self.held: set[int] = set()  # clients that are given no task before it ends
        self._complete: set[int] = set()  # clients that are held, or have sent enough for the period's end
        self.spent: dict[int, tuple[int, float, float]] = {}  # as of a period: updates and norms above the allowance
        self.resent: set[int] = set()  # clients whose next update was sent before, to a process that crashed

    def left(self, client: int) -> tuple[float, float]:
        """Return a client's remaining allowances: a number of updates, and a multiple of the median norm."""
        if client in self.resent:
            return math.inf, math.inf
        updates, norms = self._owed(client)
        return BURST * self.rate - updates, BURST * self.reach - norms

    def _owed(self, client: int) -> tuple[float, float]:
        period, updates, norms = self.spent.get(client, (self.periods, 0.0, 0.0))
        passed = self.periods - period
        if not passed:
            return updates, norms
        return max(0.0, updates - self.rate * passed), max(0.0, norms - self.reach * passed)

    def admits(self, client: int) -> bool:
        """Count an update; return False, and hold its client, if the client may send none in this period."""
        sent = self.sent[client] = self.sent.get(client, 0) + 1
        updates, _ = self.left(client)
        if updates < 1:
            self.held.add(client)
        if updates < 1 or sent >= COMPLETE:
            self._complete.add(client)
        return updates >= 1

    def spend(self, client: int, norm: float) -> None:
        """Charge an update that was admitted; ``norm`` is a multiple of the median norm."""
        if client in self.resent:
            self.resent.remove(client)
            return
        updates, norms = self._owed(client)
        self.spent[client] = self.periods, updates + 1, min(norms + norm, BURST * self.reach)

    def may_end(self, clients: int) -> bool:
        """Return whether so many clients have sent enough that the period may end, if there are this many."""
        return 2 * len(self._complete) > clients

    def released(self, clients: Set[int]) -> list[int]:
        """End the period if more than half of these clients have sent enough; return those that were held."""
        if 2 * len(self._complete & clients) <= len(clients):
            return []
        return self.end_period()

    def end_period(self) -> list[int]:
        """End the period, and return the clients that were held."""
        held = sorted(self.held)
        self.periods += 1
        self.sent, self.held, self._complete = {}, set(), set()
        return held

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return [self.periods, self.sent, self.held, self.spent]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        self.periods, self.sent, self.held, self.spent = state
        self._complete = {k for k, sent in self.sent.items() if sent >= COMPLETE} | self.held
