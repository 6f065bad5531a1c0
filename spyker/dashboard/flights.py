"""Messages under way, as they follow from facts: records tell what arrived and what was decided, not what was sent.

- The *token* was sent by its last holder, one latency before it arrived.
- A *model* of a peer was sent when its server first took part in that exchange, by a ``sync`` or a ``merge`` with its
  number; where that is not known, one latency before it was merged.
- *Ages* leave with ``announce`` and take one latency.
- A client's *update* arrives when it is counted (at the end of a round, where there are rounds) and its *answer* leaves
  then; both take the latency between the client's region and its server's.
- HierFAVG's edges send to the *cloud* when they end a round, and hear from it one latency after it has averaged.

Latencies are those of the scenario: in a deployment they are what its author expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from spyker.dashboard.run_state import RunState
from spyker.dashboard.topology import RunTopology
from spyker.protocol.facts import AgeAnnounced, CloudRoundEnded, Merged, RoundEnded, TokenArrived, UpdateApplied
from spyker.records import Fact

NEAR = 0.01  # seconds: what is faster than this cannot be seen travelling
FEWEST, MOST = 1e-4, 30.0  # seconds that anything is shown under way


class Flight(NamedTuple):
    """A message: its kind, who sent it to whom (``s2`` is a server, ``r0`` a region's clients), and when."""

    kind: str
    sender: str
    receiver: str
    left: float
    arrived: float

    def payload(self) -> list[Any]:
        """As a browser is told it."""
        return [self.kind, self.sender, self.receiver, round(self.left, 6), round(self.arrived, 6)]


def flights(world: RunTopology, state: RunState, t: float, fact: Fact, first_holder: int | None) -> Iterator[Flight]:
    """The messages that a fact tells of; ``state`` is the one before it."""
    match fact:
        case TokenArrived():
            holder = first_holder if state.token is None else state.token
            if holder is not None and holder != fact.server:
                yield server_flight("token", holder, fact.server, t - world.between(holder, fact.server), t)
        case Merged():
            left = state.calls.get(fact.bid, {}).get(fact.peer)
            if left is None:
                left = t - world.between(fact.peer, fact.server)
            yield server_flight("model", fact.peer, fact.server, left, t)
        case AgeAnnounced():
            for peer in range(len(world.server_regions)):
                if peer not in (fact.server, world.cloud):
                    yield server_flight("age", fact.server, peer, t, t + world.between(fact.server, peer))
        case UpdateApplied():
            region, home = world.client_region(fact.client, fact.server), world.server_region(fact.server)
            up, down = world.latency[region][home], world.latency[home][region]
            if up > NEAR:
                yield Flight("update", f"r{region}", f"s{fact.server}", t - up, t)
            if down > NEAR:
                yield Flight("answer", f"s{fact.server}", f"r{region}", t, t + down)
        case RoundEnded() if world.cloud not in (None, fact.server) and fact.round % world.edge_rounds == 0:
            assert world.cloud is not None
            yield server_flight("model", fact.server, world.cloud, t, t + world.between(fact.server, world.cloud))
        case CloudRoundEnded() if world.cloud is not None:
            for edge in range(len(world.server_regions)):
                if edge != world.cloud:
                    yield server_flight("model", world.cloud, edge, t, t + world.between(world.cloud, edge))


def server_flight(kind: str, sender: int, receiver: int, left: float, arrived: float) -> Flight:
    """A message between servers, shown for a while that can be seen."""
    left = max(left, arrived - MOST)
    return Flight(kind, f"s{sender}", f"s{receiver}", min(left, arrived - FEWEST), arrived)
