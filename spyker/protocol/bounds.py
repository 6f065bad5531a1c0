"""What keeps one client from ruining a server: no answer counts for much more than those of the others.

Theory of operation
-------------------
How *far* an answer goes is its distance from the server's model as it is now, or, where clients answer with
differences, its length. That is what it would move, in whatever way an algorithm averages; so no model need be kept
for any client. What is *usual* is the median over clients of how far their last answers went, or their first ones if
that is more: late in a run, those who have nothing left to learn hardly move, and must not shut out who still has.

Honest answers, also of clients with two labels or a region of its own, hardly ever go beyond twice the usual. One
beyond ``limit`` times the usual is shortened to that. One beyond ``refuse`` times is no training at all, and refused:
to the algorithm its client has left and joined again. The median is over clients and not over answers, so that who
answers often has no more say in it. It counts what was refused as well: if trainings become longer everywhere, the
usual follows.

An answer in the opposite direction has an honest length. What gives it away is :mod:`~spyker.protocol.conduct`.

Whatever is too far or contrary is a strike, and every other answer takes one back. A client with ``strikes`` of them is
quarantined, which to the algorithm is a departure too. After a while it joins again, and is judged anew; but it then
has one strike less than it takes. ``docs/bounds.md`` has what was measured.
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

ENOUGH = 3  # clients whose median says what is usual; before that, an answer may go as far as the model is long
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
    limit: float = parameter(5.0, "an answer that goes so many times as far as is usual is shortened to that", above=1)
    refuse: float = parameter(15.0, "and one that goes so many times as far is refused", above=1)
    strikes: int = parameter(
        5, "with so many more answers that are too far or contrary than proper ones a client is quarantined", at_least=1
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
        self.first, self.last = Ranks(), Ranks()  # how far each client's first and last answer went
        self.conduct = Conduct()
        self.strikes: dict[int, int] = {}
        self.out: dict[int, bool] = {}  # who is in quarantine, and whether to let it in afterwards

    @property
    def usual(self) -> float:
        """How far answers usually go; 0 while too few are known, or none goes anywhere."""
        return max(self.first.median, self.last.median) if len(self.last.numbers) >= ENOUGH else 0.0

    def judge(self, client: int, far: float, model: Callable[[], float], *, contrary: bool) -> tuple[Verdict, float]:
        """What to do with an answer that goes so far; and how far it may go.

        While nothing is usual, that is measured by how long the model is, or by 1 if that is more. The model is looked
        at only by those who go farther than the latter allows.
        """
        assert self.parameters is not None
        p = self.parameters
        usual = self.usual or (1.0 if far <= p.limit else max(1.0, model()))
        limit, strikes = p.limit * usual, self.strikes.get(client, 0)
        if client not in self.first.numbers:
            self.first.put(client, far)
        self.last.put(client, far)
        if far <= limit and not contrary:
            self._strike(client, strikes - 1)
            return Verdict.PROPER, limit
        if strikes + 1 >= p.strikes:
            self._strike(client, p.strikes - 1)
            self.conduct.forget(client)
            self.out[client] = True
            return Verdict.QUARANTINED, limit
        self._strike(client, strikes + 1)
        if far <= limit:
            return Verdict.PROPER, limit
        return Verdict.SHORTENED if far <= p.refuse * usual else Verdict.REFUSED, limit

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
        return [self.sizes, self.first.numbers, self.last.numbers, self.strikes, self.out, self.conduct]

    def put_back(self, kept: Any) -> None:
        """Go on from there."""
        if kept is None:
            return
        self.sizes, first, last, self.strikes, self.out, conduct = kept
        self.first, self.last = Ranks(first), Ranks(last)
        self.conduct.put_back(conduct)


# --- At work ----------------------------------------------------------------------------------------------------------


def admit(server: Server, k: int, message: ClientMessage) -> None:
    """Hand a client's message to the algorithm, unless it goes too far or its client is in quarantine."""
    bounds = server.bounds
    if isinstance(message, Join):
        bounds.sizes[k] = message.size
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
    bounds, weights = server.bounds, update.weights
    assert bounds.parameters is not None
    model = server.weights.snapshot()
    origin = zeros(weights) if server.client.difference else model
    far = distance(weights, origin)
    contrary = bounds.conduct.contrary(k, update.version, weights, difference=server.client.difference)
    verdict, limit = bounds.judge(k, far, lambda: distance(model, zeros(model)), contrary=contrary)
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
        server.record(Quarantined(server.id, k, "far" if far > limit else "contrary", seconds))
        server.receive(k, Leave())
        server.start_timer(f"{QUARANTINE}{k}", seconds)


def gave(bounds: Bounds, actions: Iterable[Action]) -> None:
    """Take note of who is given what."""
    for action in actions:
        if isinstance(action, ToClient) and isinstance(action.message, Model):
            bounds.conduct.gave(action.client, action.message.version, action.message.weights)


def release(server: Server, timer: str) -> None:
    """A quarantine is over: if the client is still there, it joins."""
    k = int(timer.removeprefix(QUARANTINE))
    if server.bounds.out.pop(k, False):
        server.receive(k, Join(server.bounds.sizes.get(k, 1)))


def zeros(like: Vector) -> Vector:
    """Nothing, as far as a vector is long; in no memory."""
    return np.broadcast_to(np.float32(0), like.shape)
