"""Messages in flight, derived from facts: records contain arrivals and decisions, not sends.

- The *token* was sent by its last holder, one latency before its arrival.
- A peer's *model* was sent when that server first took part in the exchange (``sync`` or ``merge`` with its number); if
  this is unknown, one latency before it was merged.
- *Ages* are sent at ``announce`` and take one latency.
- A client's *update* arrives when it is applied (at the end of a round, if there are rounds), and the server's *answer*
  is sent at that time; both take the latency between the regions of client and server.
- HierFAVG's edges send to the *cloud* at the end of a round, and receive from it one latency after it has averaged.

Latencies are those of the scenario; in a deployment they are estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from spyker.dashboard.run_state import RunState
from spyker.dashboard.topology import RunTopology
from spyker.protocol.facts import AgeAnnounced, CloudRoundEnded, Merged, RoundEnded, TokenArrived, UpdateApplied
from spyker.records import Fact

NEAR = 0.01  # seconds; faster client messages are not shown
SHORTEST, LONGEST = 1e-4, 30.0  # seconds a message is shown


class Flight(NamedTuple):
    """A message in flight; ``s2`` is server 2 and ``r0`` are the clients of region 0."""

    kind: str
    sender: str
    receiver: str
    left: float
    arrived: float

    def payload(self) -> list[Any]:
        """Return the JSON for the browser."""
        return [self.kind, self.sender, self.receiver, round(self.left, 6), round(self.arrived, 6)]


def flights(world: RunTopology, state: RunState, t: float, fact: Fact, first_holder: int | None) -> Iterator[Flight]:
    """Yield the messages derived from a fact; ``state`` is the state before it."""
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
    """Return a message between servers, with a limited duration."""
    left = max(left, arrived - LONGEST)
    return Flight(kind, f"s{sender}", f"s{receiver}", min(left, arrived - SHORTEST), arrived)
