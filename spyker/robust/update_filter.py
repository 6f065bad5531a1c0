"""Robust filtering of client updates: norm clipping, rejection and quarantine, so that no client can ruin a model.

Theory of operation
-------------------
The *norm* of an update is its distance from the server's current model or, where clients send differences, its length:
how far it could move the model, in whatever way an algorithm averages. It is compared with the *median norm*: the
median over clients of the norms of their last updates, or of their first updates if that is higher. Late in a run,
clients that have nothing left to learn hardly move, and must not cause the updates of others to be clipped. Updates
trained with less than half of the highest learning rate in use are left out. The median is over clients and not over
updates, so that clients that answer often have no more influence on it. It includes rejected updates: if trainings
become longer everywhere, the median follows.

An update is clipped if its norm is above ``clip × median``. Clipping is no offence: a clipped update counts for no
more than one just below the threshold. An update is rejected if its norm is above ``reject × median + drift``: while a
client trains, the server's model moves, as it merges other servers' models or is restored from an older checkpoint.
This *drift* is no part of the training.

A rejected update is a strike if it can be compared: the norms of at least three clients are known, its task is known,
and at least half of the clients have answered since the client's last strike. So a fast client is not quarantined
because trainings have become longer before slow clients could show it. Before three clients have answered, the norm of
the model replaces the median; where a server has fewer than three clients, updates are clipped and never rejected.

A sign-flipped update has an inconspicuous norm. :mod:`~spyker.robust.sign_flips` detects it, and it is a strike, too.
Each proper update removes a strike. A client with ``strikes`` of them is quarantined. After the quarantine it may join
again, and restarts one strike below the threshold. ``docs/reports/robustness.md`` has measurements.

Two more bounds are relative to the other clients: on the data size that a client claims
(:mod:`~spyker.robust.claimed_sizes`) and on the rate of its updates (:mod:`~spyker.robust.update_rates`). The excess
of the latter is dropped before anything else is computed.

The caller reports joins, departures and assigned tasks, passes each update to :meth:`UpdateFilter.check`, and applies
the verdict: to an algorithm, a rejected client leaves and joins again, one whose update was dropped leaves until
:meth:`UpdateFilter.released` returns it, and a quarantined one leaves until :meth:`UpdateFilter.end_quarantine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from spyker.parameters import parameter
from spyker.robust.claimed_sizes import ClaimedData, ClaimedSizes, bounded_data
from spyker.robust.order_statistics import OrderStatistics
from spyker.robust.sign_flips import SignFlipDetector
from spyker.robust.update_rates import UpdateRates
from spyker.vectors import Vector, distance, mix

MIN_CLIENTS = 3  # with a known norm, before there is a median; until then the norm of the model replaces it
ALWAYS, DEPLOYED, NEVER = "always", "deployed", "never"


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """Thresholds of the update filter: the keys of ``[robust]``."""

    when: str = parameter(
        DEPLOYED,
        "where servers filter client updates: deployed (in deployments only), always (also in emulations) or never",
        choices=(DEPLOYED, ALWAYS, NEVER),
    )
    clip: float = parameter(2.0, "clip the norm of an update to this multiple of the median over clients", above=1)
    reject: float = parameter(15.0, "reject an update whose norm exceeds this multiple of the median", above=1)
    strikes: int = parameter(
        5,
        "quarantine a client when its bad updates, rejected or sign-flipped, minus its good ones reach this",
        at_least=1,
    )
    quarantine: float = parameter(60.0, "length of a quarantine in seconds", above=0)
    size: float = parameter(
        2.0,
        "weight a client as if it had at most this multiple of the median number of examples, and no more than all "
        "others together",
        at_least=1,
    )
    rate: float = parameter(
        5.0, "drop updates of a client that sends more than this many while the median client sends one", at_least=2
    )

    def on(self, *, deployed: bool) -> FilterParameters | None:
        """Return the parameters if filtering is on in this world, else ``None``."""
        return self if self.when == ALWAYS or (deployed and self.when == DEPLOYED) else None


class FilterDecision(Enum):
    """What happens to an update, and to its client."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"
    REJECTED = "rejected"
    DROPPED = "dropped"
    QUARANTINED = "quarantined"


class Verdict(NamedTuple):
    """The result of checking an update."""

    decision: FilterDecision
    weights: Vector
    """The update for the algorithm: as it was sent or, if it was clipped, the clipped one."""
    norm: float
    """The norm of the update as it was sent."""
    limit: float
    """The norm that the update would be clipped to."""
    sign_flipped: bool
    """Whether the client's updates are sign-flipped."""


class UpdateFilter:
    """Checks the updates of a server's clients."""

    def __init__(self, parameters: FilterParameters | None, sizes: Mapping[int, int]) -> None:
        """Create a filter that has seen no updates.

        Args:
            parameters: thresholds; None switches the filter off.
            sizes: number of data points of each client that the server starts with.

        """
        self.parameters = parameters
        self.on = parameters is not None
        self.sizes = ClaimedSizes(1.0 if parameters is None else parameters.size, sizes if self.on else {})
        self.rates = UpdateRates(*(1.0, 1.0) if parameters is None else (parameters.rate, parameters.clip))
        self.first, self.last = OrderStatistics(), OrderStatistics()  # norms of each client's first and last update
        self.sign_flips = SignFlipDetector()
        self.strikes: dict[int, int] = {}
        self.out: dict[int, bool] = {}  # clients in quarantine, and whether they join when it ends
        self.updates = 0  # that were checked
        self.answered = OrderStatistics()  # the number of each client's last update
        self.struck: dict[
            int, int
        ] = {}  # by client, the number of the last update that was a strike because of its norm

    @property
    def median_norm(self) -> float:
        """The median norm; 0 while fewer than three clients are known, or if most updates have no length."""
        return max(self.first.median, self.last.median) if len(self.last.numbers) >= MIN_CLIENTS else 0.0

    @property
    def limits_rates(self) -> bool:
        """Whether there are clients to compare a rate with. Of two, either may be the unusual one."""
        return len(self.sizes.clients) >= MIN_CLIENTS

    # --- Clients -----------------------------------------------------------------------------------------------------

    def join(self, client: int, size: int) -> bool:
        """Note that a client with ``size`` data points joins; return False if it must wait.

        It waits for the end of its quarantine or, if an update of it was dropped, of the period.
        """
        self.sizes.claim(client, size)
        return self.admits(client) and client not in self.rates.held

    def leave(self, client: int) -> bool:
        """Note that a client leaves; return False if it is quarantined, and so has left the algorithm already."""
        self.sizes.drop(client)
        self.answered.drop(client)
        if client in self.out:
            self.out[client] = False
            return False
        self.sign_flips.left(client)
        return True

    def admits(self, client: int) -> bool:
        """Note that a client is connected; return False if it is quarantined, and its messages must be ignored."""
        if client in self.out:
            self.out[client] = True
            return False
        return True

    def assigned(self, client: int, version: int, rate: float, weights: Vector) -> None:
        """Note that a client is assigned the task to train these weights with this learning rate."""
        self.sign_flips.assigned(client, version, rate, weights)

    def end_quarantine(self, client: int) -> int | None:
        """End the quarantine of a client; return the number of its data points if it joins now, None if it has left."""
        return self.sizes.bounded(client) if self.out.pop(client, False) else None

    def released(self, *, overdue: bool = False) -> list[int]:
        """Return the clients that join again because the period has ended in which an update of them was dropped.

        A period that is ``overdue`` ends now.
        """
        if not (overdue or self.rates.may_end(len(self.sizes.clients) - len(self.out))):
            return []
        clients = self.sizes.clients.keys() - self.out.keys()
        held = self.rates.end_period() if overdue else self.rates.released(clients)
        return [k for k in held if k in clients]

    def resized(self, *claimed: int) -> list[int]:
        """Return the clients whose bounded size has changed because of what other clients claim, and ``claimed``."""
        changed = sorted({*self.sizes.changed(), *claimed})
        return [k for k in changed if k not in self.out and k not in self.rates.held]

    def bounded_data(self, claims: Mapping[int, ClaimedData]) -> dict[int, int]:
        """Return the bounded number of examples of each server; without a filter, the claimed one."""
        if self.parameters is None:
            return {j: data.examples for j, data in claims.items()}
        return bounded_data(claims, self.parameters.size)

    # --- Updates -----------------------------------------------------------------------------------------------------

    def check(self, client: int, weights: Vector, version: int, model: Vector, *, difference: bool = False) -> Verdict:
        """Check an update, and count it in the statistics of its client.

        Args:
            client: the sender of the update, which must not be in quarantine.
            weights: the update: a model or, if ``difference``, a difference from the task's model.
            version: the version of the task that it answers.
            model: the server's current model.
            difference: whether clients send differences.

        Returns:
            The decision, the update that the algorithm may use, and the numbers that led to the decision.

        """
        if self.limits_rates and not self.rates.admits(client):
            self.sign_flips.pop_task(client, version)
            return Verdict(FilterDecision.DROPPED, weights, 0.0, 0.0, sign_flipped=False)
        norm, sign_flips = distance(weights, None if difference else model), self.sign_flips
        norm = math.inf if math.isnan(norm) else norm  # an update that is not finite exceeds every threshold
        task = sign_flips.pop_task(client, version)
        sign_flipped = task is not None and sign_flips.sign_flipped(client, task, weights, difference=difference)
        decision, limit = self.judge(
            client,
            norm,
            lambda: distance(model, None),
            drift=float if difference or task is None else lambda: sign_flips.drift(task, model),
            known=difference or task is not None,
            counts=task is None or sign_flips.full_rate(task),
            sign_flipped=sign_flipped,
        )
        if decision is FilterDecision.CLIPPED:
            clipped = np.empty_like(weights)
            mix(zeros(weights) if difference else model, weights, limit / norm, clipped)
            weights = clipped
        return Verdict(decision, weights, norm, limit, sign_flipped)

    def admits_masked(self, client: int, version: int) -> bool:
        """Count a masked update, whose norm is not known; return False if its client sends too many."""
        self.sign_flips.pop_task(client, version)
        if self.limits_rates and not self.rates.admits(client):
            return False
        self._spend(client, 0.0)
        self.updates += 1
        self.answered.put(client, self.updates)
        return True

    def judge(
        self,
        client: int,
        norm: float,
        model_norm: Callable[[], float],
        *,
        drift: Callable[[], float] = float,
        known: bool = True,
        counts: bool = True,
        sign_flipped: bool = False,
    ) -> tuple[FilterDecision, float]:
        """Decide what happens to an update of a given norm.

        Args:
            client: the sender of the update.
            norm: the norm of the update.
            model_norm: computes the norm of the server's current model; called only if the decision depends on it.
            drift: computes the distance that the model has moved since the task was assigned; likewise.
            known: whether the task, and so the drift, is known.
            counts: whether the median includes the norm.
            sign_flipped: whether the update is sign-flipped.

        Returns:
            The decision, and the norm that the update is clipped to.

        """
        assert self.parameters is not None
        p, median = self.parameters, self.median_norm
        early = (
            len(self.last.numbers) < MIN_CLIENTS <= len(self.sizes.clients)
        )  # there will be others to compare it with
        median_norm = median or (1.0 if norm <= p.clip else max(1.0, model_norm()))
        most = min(p.clip, self.rates.left(client)[1]) if median > 0 and self.limits_rates else p.clip
        limit, strikes, rejected = most * median_norm, self.strikes.get(client, 0), False
        self._count(client, norm, counts=counts)
        if norm > min(limit, p.reject * median_norm):  # below both thresholds the drift makes no difference
            moved = drift()
            rejected = norm > p.reject * median_norm + moved and (median > 0 or early)
        self._spend(client, 0.0 if rejected or not median else min(norm / median, most))
        offence = sign_flipped
        if rejected and median > 0 and known and self.answered.median > self.struck.get(client, 0):
            self.struck[client], offence = self.updates, True
        if offence and strikes + 1 >= p.strikes:
            self._set_strikes(client, p.strikes - 1)
            self.sign_flips.forget(client)
            self.answered.drop(client)
            self.out[client] = True
            return FilterDecision.QUARANTINED, limit
        if offence:
            self._set_strikes(client, strikes + 1)
        elif norm <= limit:
            self._set_strikes(client, strikes - 1)
        if rejected:
            return FilterDecision.REJECTED, limit
        return FilterDecision.ACCEPTED if norm <= limit else FilterDecision.CLIPPED, limit

    def _spend(self, client: int, norm: float) -> None:
        """Charge an update. While rates are not limited no period ends, so charges would only add up."""
        if self.limits_rates:
            self.rates.spend(client, norm)
        else:
            self.rates.resent.discard(client)

    def _count(self, client: int, norm: float, *, counts: bool) -> None:
        self.updates += 1
        self.answered.put(client, self.updates)
        if counts:
            if client not in self.first.numbers:
                self.first.put(client, norm)
            self.last.put(client, norm)

    def _set_strikes(self, client: int, strikes: int) -> None:
        if strikes > 0:
            self.strikes[client] = strikes
        else:
            self.strikes.pop(client, None)

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the state for a checkpoint; None if the filter is off."""
        if not self.on:
            return None
        norms = [self.first.numbers, self.last.numbers, self.answered.numbers, self.updates, self.struck]
        return [self.sizes, norms, self.strikes, self.out, self.sign_flips, self.rates]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        if state is None:
            return
        sizes, (first, last, answered, self.updates, self.struck), self.strikes, self.out, sign_flips, rates = state
        self.sizes.restore(sizes)
        self.rates.restore(rates)
        self.first, self.last, self.answered = map(OrderStatistics, (first, last, answered))
        self.sign_flips.restore(sign_flips)


def zeros(like: Vector) -> Vector:
    """Return zeros of a vector's shape, without memory for them."""
    return np.broadcast_to(np.float32(0), like.shape)
