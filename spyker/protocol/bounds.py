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
checkpoint. This *drift* is no part of the training, and is granted on top: an update may be as long as ``limit`` times
the median plus the drift. A longer one is clipped to that, which is no offence: clipped, it counts for no more than one
that was just below the limit. One beyond ``refuse`` times the median plus the drift is no training at all, and is
rejected: to the algorithm its client has left and joined again.

A rejected update is a strike, if it can be compared: at least three clients' norms are known, its task is known, and at
least half of the clients have answered since the client's last strike. So a fast client is not quarantined because
trainings have become longer before slow clients could show it. Before three clients have answered, the norm of the
model stands in for the median; where a server has fewer than three clients, nothing is rejected, only clipped.

A sign-flipped update has an honest norm. :mod:`~spyker.protocol.conduct` detects it, and each is a strike, too. Every
proper update takes one strike back. A client with ``strikes`` of them is quarantined, which to the algorithm is a
departure. After a while it joins again, and is judged anew; it restarts one strike below the threshold.
``docs/reports/robustness.md`` has what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from spyker.parameters import parameter
from spyker.protocol.conduct import Conduct
from spyker.protocol.facts import Quarantined, Refused, Shortened
from spyker.protocol.messages import Action, ClientMessage, Join, Leave, Model, ToClient, Update
from spyker.protocol.ranks import Ranks
from spyker.protocol.saving import Kept
from spyker.vectors import Vector, distance, mix

if TYPE_CHECKING:
    from spyker.protocol.server import Server

ENOUGH = 3  # clients whose norms have a median; before that, the norm of the model stands in for it
QUARANTINE = "quarantine:"  # the beginning of a timer's name; the client's number follows
ALWAYS, DEPLOYED, NEVER = "always", "deployed", "never"


@dataclass(frozen=True, slots=True)
class BoundsParameters:
    """How far a server lets its clients go."""

    when: str = parameter(
        DEPLOYED,
        "in which world servers bound what clients answer: deployed, in that alone; always, in both; never",
        choices=(DEPLOYED, ALWAYS, NEVER),
    )
    limit: float = parameter(5.0, "clip the norm of an update to this multiple of the median over clients", above=1)
    refuse: float = parameter(15.0, "reject an update whose norm is this multiple of the median", above=1)
    strikes: int = parameter(
        5, "quarantine a client with so many more rejected or sign-flipped updates than proper ones", at_least=1
    )
    quarantine: float = parameter(60.0, "seconds after which it is tried again", above=0)

    def on(self, *, deployed: bool) -> BoundsParameters | None:
        """These, if they hold in this world."""
        return self if self.when == ALWAYS or (deployed and self.when == DEPLOYED) else None


class Verdict(Enum):
    """What becomes of an answer."""

    PROPER = "proper"
    SHORTENED = "shortened"
    REFUSED = "refused"
    QUARANTINED = "quarantined"


class Bounds(Kept):
    """What a server knows of its clients' conduct, and what it thinks of an answer."""

    def __init__(self, parameters: BoundsParameters | None, sizes: Mapping[int, int]) -> None:
        """``sizes`` are those of the clients that the server begins with."""
        self.parameters = parameters
        self.on = parameters is not None
        self.sizes = dict(sizes) if self.on else {}  # with which a client joins again
        self.first, self.last = Ranks(), Ranks()  # the norms of each client's first and last update
        self.conduct = Conduct()
        self.strikes: dict[int, int] = {}
        self.out: dict[int, bool] = {}  # who is in quarantine, and whether to let it in afterwards
        self.updates = 0  # so many were judged
        self.answered = Ranks()  # at which of them each client last answered
        self.struck: dict[int, int] = {}  # and at which it last had a strike for its norm

    @property
    def usual(self) -> float:
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
        contrary: bool = False,
    ) -> tuple[Verdict, float]:
        """Decide what to do with an update.

        Args:
            client: who sent it.
            norm: its distance from the server's model as it is now.
            model: the norm of that model, computed only if it decides.
            drift: how far the model has moved since the client was given its task.
            known: whether the task, and so the drift, is known.
            counts: whether its norm is one for the median.
            contrary: whether the update is sign-flipped.

        Returns:
            The verdict, and the norm to which the update is clipped.

        """
        assert self.parameters is not None
        p, median = self.parameters, self.usual
        early = len(self.last.numbers) < ENOUGH <= len(self.sizes)  # there will be others to compare it with
        usual = median or (1.0 if norm <= p.limit else max(1.0, model()))
        limit, strikes = p.limit * usual + drift, self.strikes.get(client, 0)
        self._note(client, norm, counts=counts)
        rejected = norm > p.refuse * usual + drift and (median > 0 or early)
        offence = contrary
        if rejected and median > 0 and known and self.answered.median > self.struck.get(client, 0):
            self.struck[client], offence = self.updates, True
        if offence and strikes + 1 >= p.strikes:
            self._strike(client, p.strikes - 1)
            self.conduct.forget(client)
            self.answered.drop(client)
            self.out[client] = True
            return Verdict.QUARANTINED, limit
        if offence:
            self._strike(client, strikes + 1)
        elif norm <= limit:
            self._strike(client, strikes - 1)
        if rejected:
            return Verdict.REFUSED, limit
        return Verdict.PROPER if norm <= limit else Verdict.SHORTENED, limit

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

    def kept(self) -> Any:
        """For a checkpoint. Where nobody is judged, nothing is known."""
        if not self.on:
            return None
        norms = [self.first.numbers, self.last.numbers, self.answered.numbers, self.updates, self.struck]
        return [self.sizes, norms, self.strikes, self.out, self.conduct]

    def put_back(self, kept: Any) -> None:
        """Go on from there."""
        if kept is None:
            return
        self.sizes, (first, last, answered, self.updates, self.struck), self.strikes, self.out, conduct = kept
        self.first, self.last, self.answered = Ranks(first), Ranks(last), Ranks(answered)
        self.conduct.put_back(conduct)


# --- At work ----------------------------------------------------------------------------------------------------------


def admit(server: Server, k: int, message: ClientMessage) -> None:
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
        answered(server, k, message)
    else:
        if isinstance(message, Leave):
            bounds.conduct.part(k)
        server.receive(k, message)


def answered(server: Server, k: int, update: Update) -> None:
    """Judge an answer, and act upon that."""
    bounds, weights, difference = server.bounds, update.weights, server.client.difference
    conduct = bounds.conduct
    assert bounds.parameters is not None
    model = server.weights.snapshot()
    origin = zeros(weights) if difference else model
    far = distance(weights, origin)
    task = conduct.answered(k, update.version)
    contrary = task is not None and conduct.contrary(k, task, weights, difference=difference)
    verdict, limit = bounds.judge(
        k,
        far,
        lambda: distance(model, zeros(model)),
        drift=0.0 if difference or task is None else conduct.drift(task, model),
        known=difference or task is not None,
        counts=task is None or conduct.full(task),
        contrary=contrary,
    )
    if verdict is Verdict.PROPER:
        server.receive(k, update)
    elif verdict is Verdict.SHORTENED:
        server.record(Shortened(server.id, k, far, limit))
        shorter = np.empty_like(weights)
        mix(origin, weights, limit / far, shorter)
        server.receive(k, replace(update, weights=shorter))
    elif verdict is Verdict.REFUSED:
        server.record(Refused(server.id, k, far, limit))
        server.receive(k, Leave())
        server.receive(k, Join(bounds.sizes.get(k, 1)))
    else:
        seconds = bounds.parameters.quarantine
        server.record(Quarantined(server.id, k, "contrary" if contrary else "far", seconds))
        server.receive(k, Leave())
        server.start_timer(f"{QUARANTINE}{k}", seconds)


def gave(bounds: Bounds, actions: Iterable[Action]) -> None:
    """Take note of who is given what."""
    for action in actions:
        if isinstance(action, ToClient) and isinstance(action.message, Model):
            message = action.message
            bounds.conduct.gave(action.client, message.version, message.rate, message.weights)


def release(server: Server, timer: str) -> None:
    """A quarantine is over: if the client is still there, it joins."""
    k = int(timer.removeprefix(QUARANTINE))
    if server.bounds.out.pop(k, False):
        server.receive(k, Join(server.bounds.sizes.get(k, 1)))


def zeros(like: Vector) -> Vector:
    """Nothing, as far as a vector is long; in no memory."""
    return np.broadcast_to(np.float32(0), like.shape)
