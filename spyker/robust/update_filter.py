"""Robust filtering of client updates: norm clipping, rejection and quarantine, so that no client can ruin a server.

Theory of operation
-------------------
The *norm* of an update is its distance from the server's model as it is now, or, where clients send differences, its
length. That is what it would move, in whatever way an algorithm averages. What is usual is the median over clients of
the norms of their last updates, or of their first ones if that is more: late in a run, clients that have nothing left
to learn hardly move, and must not shut out a client that still has. Updates trained with less than half of the highest
learning rate in use are left out of the median. It is over clients and not over updates, so that a client that answers
often has no more say in it. It counts what was rejected as well: if trainings become longer everywhere, it follows.

While a client trains, the server's model moves: it merges other servers' models, or it is restored from an older
checkpoint. This *drift* is no part of the training, and is granted on top: an update may be as long as ``clip`` times
the median plus the drift. A longer one is clipped to that, which is no offence: clipped, it counts for no more than one
that was just below the limit. One beyond ``reject`` times the median plus the drift is no training at all, and is
rejected: to the algorithm its client has left and joined again.

A rejected update is a strike, if it can be compared: at least three clients' norms are known, its task is known, and at
least half of the clients have answered since the client's last strike. So a fast client is not quarantined because
trainings have become longer before slow clients could show it. Before three clients have answered, the norm of the
model stands in for the median; where a server has fewer than three clients, nothing is rejected, only clipped.

A sign-flipped update has an honest norm. :mod:`~spyker.robust.sign_flips` detects it, and each is a strike, too. Every
proper update takes one strike back. A client with ``strikes`` of them is quarantined, which to the algorithm is a
departure. After a while it joins again, and is judged anew; it restarts one strike below the threshold.
``docs/bounds.md`` has what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from spyker.parameters import parameter
from spyker.protocol.facts import ClientQuarantined, UpdateClipped, UpdateRejected
from spyker.protocol.messages import Action, ClientMessage, Join, Leave, Model, ToClient, Update
from spyker.protocol.state import Stateful
from spyker.robust.order_statistics import OrderStatistics
from spyker.robust.sign_flips import SignFlipDetector
from spyker.vectors import Vector, distance, mix

if TYPE_CHECKING:
    from spyker.protocol.server import Server

ENOUGH = 3  # clients whose norms have a median; before that, the norm of the model stands in for it
QUARANTINE = "quarantine:"  # the beginning of a timer's name; the client's number follows
ALWAYS, DEPLOYED, NEVER = "always", "deployed", "never"


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """Thresholds of the update filter: the keys of ``[robust]``."""

    when: str = parameter(
        DEPLOYED,
        "where servers filter client updates: deployed, in deployments only; always, also in emulations; never",
        choices=(DEPLOYED, ALWAYS, NEVER),
    )
    clip: float = parameter(5.0, "clip the norm of an update to this multiple of the median over clients", above=1)
    reject: float = parameter(15.0, "reject an update whose norm exceeds this multiple of the median", above=1)
    strikes: int = parameter(
        5,
        "quarantine a client when its bad updates, rejected or sign-flipped, minus its good ones reach this",
        at_least=1,
    )
    quarantine: float = parameter(60.0, "length of a quarantine in seconds", above=0)

    def on(self, *, deployed: bool) -> FilterParameters | None:
        """Return the parameters if filtering is on in this world, else ``None``."""
        return self if self.when == ALWAYS or (deployed and self.when == DEPLOYED) else None


class FilterDecision(Enum):
    """What becomes of an answer."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"
    REJECTED = "rejected"
    QUARANTINED = "quarantined"


class UpdateFilter(Stateful):
    """What a server knows of its clients' conduct, and what it thinks of an answer."""

    def __init__(self, parameters: FilterParameters | None, sizes: Mapping[int, int]) -> None:
        """``sizes`` are those of the clients that the server begins with."""
        self.parameters = parameters
        self.on = parameters is not None
        self.sizes = dict(sizes) if self.on else {}  # with which a client joins again
        self.first, self.last = OrderStatistics(), OrderStatistics()  # the norms of each client's first and last update
        self.sign_flips = SignFlipDetector()
        self.strikes: dict[int, int] = {}
        self.out: dict[int, bool] = {}  # who is in quarantine, and whether to let it in afterwards
        self.updates = 0  # so many were judged
        self.answered = OrderStatistics()  # at which of them each client last answered
        self.struck: dict[int, int] = {}  # and at which it last had a strike for its norm

    @property
    def median_norm(self) -> float:
        """The median norm; 0 while too few are known, or nobody's update has any length."""
        return max(self.first.median, self.last.median) if len(self.last.numbers) >= ENOUGH else 0.0

    def judge(
        self,
        client: int,
        norm: float,
        model: Callable[[], float],
        *,
        drift: float = 0.0,
        known: bool = True,
        counts: bool = True,
        sign_flipped: bool = False,
    ) -> tuple[FilterDecision, float]:
        """Decide what to do with an update.

        Args:
            client: who sent it.
            norm: its distance from the server's model as it is now.
            model: the norm of that model, computed only if it decides.
            drift: how far the model has moved since the client was given its task.
            known: whether the task, and so the drift, is known.
            counts: whether its norm is one for the median.
            sign_flipped: whether the update is sign-flipped.

        Returns:
            The verdict, and the norm to which the update is clipped.

        """
        assert self.parameters is not None
        p, median = self.parameters, self.median_norm
        early = len(self.last.numbers) < ENOUGH <= len(self.sizes)  # there will be others to compare it with
        median_norm = median or (1.0 if norm <= p.clip else max(1.0, model()))
        limit, strikes = p.clip * median_norm + drift, self.strikes.get(client, 0)
        self._note(client, norm, counts=counts)
        rejected = norm > p.reject * median_norm + drift and (median > 0 or early)
        offence = sign_flipped
        if rejected and median > 0 and known and self.answered.median > self.struck.get(client, 0):
            self.struck[client], offence = self.updates, True
        if offence and strikes + 1 >= p.strikes:
            self._strike(client, p.strikes - 1)
            self.sign_flips.forget(client)
            self.answered.drop(client)
            self.out[client] = True
            return FilterDecision.QUARANTINED, limit
        if offence:
            self._strike(client, strikes + 1)
        elif norm <= limit:
            self._strike(client, strikes - 1)
        if rejected:
            return FilterDecision.REJECTED, limit
        return FilterDecision.ACCEPTED if norm <= limit else FilterDecision.CLIPPED, limit

    def _note(self, client: int, norm: float, *, counts: bool) -> None:
        self.updates += 1
        self.answered.put(client, self.updates)
        if counts:
            if client not in self.first.numbers:
                self.first.put(client, norm)
            self.last.put(client, norm)

    def _strike(self, client: int, strikes: int) -> None:
        if strikes > 0:
            self.strikes[client] = strikes
        else:
            self.strikes.pop(client, None)

    # --- A restart -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """For a checkpoint. Where nobody is judged, nothing is known."""
        if not self.on:
            return None
        norms = [self.first.numbers, self.last.numbers, self.answered.numbers, self.updates, self.struck]
        return [self.sizes, norms, self.strikes, self.out, self.sign_flips]

    def restore(self, kept: Any) -> None:
        """Go on from there."""
        if kept is None:
            return
        self.sizes, (first, last, filter_update, self.updates, self.struck), self.strikes, self.out, sign_flips = kept
        self.first, self.last, self.answered = (
            OrderStatistics(first),
            OrderStatistics(last),
            OrderStatistics(filter_update),
        )
        self.sign_flips.restore(sign_flips)


# --- At work ----------------------------------------------------------------------------------------------------------


def filter_message(server: Server, k: int, message: ClientMessage) -> None:
    """Hand a client's message to the algorithm, unless it goes too far or its client is in quarantine."""
    bounds = server.bounds
    if isinstance(message, Join):
        bounds.sizes[k] = message.size
    elif isinstance(message, Leave):
        bounds.sizes.pop(k, None)
        bounds.answered.drop(k)
    if k in bounds.out:
        bounds.out[k] = not isinstance(message, Leave)  # for the algorithm it has left already
    elif isinstance(message, Update):
        filter_update(server, k, message)
    else:
        if isinstance(message, Leave):
            bounds.sign_flips.part(k)
        server.receive(k, message)


def filter_update(server: Server, k: int, update: Update) -> None:
    """Judge an answer, and act upon that."""
    bounds, weights, difference = server.bounds, update.weights, server.client.difference
    sign_flips = bounds.sign_flips
    assert bounds.parameters is not None
    model = server.weights.snapshot()
    origin = zeros(weights) if difference else model
    norm = distance(weights, origin)
    task = sign_flips.answered(k, update.version)
    sign_flipped = task is not None and sign_flips.sign_flipped(k, task, weights, difference=difference)
    verdict, limit = bounds.judge(
        k,
        norm,
        lambda: distance(model, zeros(model)),
        drift=0.0 if difference or task is None else sign_flips.drift(task, model),
        known=difference or task is not None,
        counts=task is None or sign_flips.full(task),
        sign_flipped=sign_flipped,
    )
    if verdict is FilterDecision.ACCEPTED:
        server.receive(k, update)
    elif verdict is FilterDecision.CLIPPED:
        server.record(UpdateClipped(server.id, k, norm, limit))
        shorter = np.empty_like(weights)
        mix(origin, weights, limit / norm, shorter)
        server.receive(k, replace(update, weights=shorter))
    elif verdict is FilterDecision.REJECTED:
        server.record(UpdateRejected(server.id, k, norm, limit))
        server.receive(k, Leave())
        server.receive(k, Join(bounds.sizes.get(k, 1)))
    else:
        seconds = bounds.parameters.quarantine
        server.record(ClientQuarantined(server.id, k, "sign-flipped" if sign_flipped else "norm", seconds))
        server.receive(k, Leave())
        server.start_timer(f"{QUARANTINE}{k}", seconds)


def note_assignments(bounds: UpdateFilter, actions: Iterable[Action]) -> None:
    """Take note of who is given what."""
    for action in actions:
        if isinstance(action, ToClient) and isinstance(action.message, Model):
            message = action.message
            bounds.sign_flips.gave(action.client, message.version, message.rate, message.weights)


def end_quarantine(server: Server, timer: str) -> None:
    """A quarantine is over: if the client is still there, it joins."""
    k = int(timer.removeprefix(QUARANTINE))
    if server.bounds.out.pop(k, False):
        server.receive(k, Join(server.bounds.sizes.get(k, 1)))


def zeros(like: Vector) -> Vector:
    """Nothing, as far as a vector is long; in no memory."""
    return np.broadcast_to(np.float32(0), like.shape)
