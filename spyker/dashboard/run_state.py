"""The state of a run at a time, and its update by facts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from spyker.dashboard.fact_text import CONCERNS, RELIEFS, describe
from spyker.dashboard.topology import RunTopology
from spyker.protocol.facts import (
    CloudRoundEnded,
    EarlySyncStarted,
    Merged,
    RoundEnded,
    SyncStarted,
    TokenArrived,
    UpdateApplied,
)
from spyker.protocol.server import epoch_of, first_bid
from spyker.records import Evaluated, EvaluatedByClients, Fact, ServerResumed, UnknownFact, fields
from spyker.records.client_scores import combined_by_clients

BUCKETS = 18  # staleness: 0, up to 1, up to 2, up to 4, …
COLUMNS = 24  # histogram of updates per client
CONCERNS_KEPT, BIDS_KEPT = 100, 6


@dataclass(slots=True)
class ServerStatus:
    """The state of a server."""

    age: float = 0.0
    queue: int = 0
    updates: int = 0
    round: int = 0
    syncs: int = 0
    score: float | None = None

    def payload(self) -> list[Any]:
        """Return the JSON for the browser, in the order that the JavaScript expects."""
        return [round(self.age, 3), self.queue, self.updates, self.round, self.syncs, rounded(self.score)]


@dataclass(slots=True)
class RunState:
    """The state of a run; its size does not grow with the number of facts."""

    servers: list[ServerStatus]
    clients: array[int]
    """Number of updates of each client."""
    t: float = 0.0
    facts: int = 0
    token: int | None = None
    bid: int = 0
    updates: int = 0
    syncs: int = 0
    bytes: int = 0
    mean: float | None = None
    averaged: float | None = None
    by_clients: dict[int, EvaluatedByClients] = field(default_factory=dict)
    """The clients' evaluations of the metric, by server where each has its own record."""
    part_bytes: dict[int, int] = field(default_factory=dict)
    """Sent bytes by server, if each has its own record."""
    staleness: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    links: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Messages with a model: up (region, server), down (server, region) and peer (server, server)."""
    calls: dict[int, dict[int, float]] = field(default_factory=dict)
    """When each server sent its model, by number of the exchange."""
    concerns: dict[str, tuple[float, str, str]] = field(default_factory=dict)
    """Time, text and description of the latest concern, by client or server."""

    @classmethod
    def first(cls, world: RunTopology) -> RunState:
        """Return the initial state."""
        return cls([ServerStatus() for _ in world.start.servers], array("I", bytes(4 * max(0, world.start.clients))))

    def copy(self) -> RunState:
        """Return an independent copy."""
        return replace(
            self,
            servers=[replace(server) for server in self.servers],
            clients=self.clients[:],
            by_clients=dict(self.by_clients),
            part_bytes=dict(self.part_bytes),
            staleness=self.staleness[:],
            links=dict(self.links),
            calls={bid: dict(sent) for bid, sent in self.calls.items()},
            concerns=dict(self.concerns),
        )

    def server(self, id: int) -> ServerStatus:
        """Return the state of a server, which may have been added during the run."""
        while not 0 <= id < len(self.servers) and 0 <= id < 1024:
            self.servers.append(ServerStatus())
        return self.servers[id] if 0 <= id < len(self.servers) else ServerStatus()


class StateReducer:
    """Applies facts to a state."""

    def __init__(self, world: RunTopology) -> None:
        self.world = world
        self._handlers: dict[type[Fact], Callable[[RunState, float, Any, int | None, int], None]] = {
            UpdateApplied: self._update,
            TokenArrived: self._token,
            SyncStarted: self._sync,
            EarlySyncStarted: self._sync,
            Merged: self._merge,
            RoundEnded: self._round,
            CloudRoundEnded: self._cloud,
            Evaluated: self._evaluation,
            EvaluatedByClients: self._by_clients,
            ServerResumed: self._resumed,
        }
        self._edges = [s.id for s in world.start.servers if s.clients is not None]

    def apply(self, state: RunState, t: float, fact: Fact, queue: int | None = None, by: int = 0) -> None:
        """Apply a fact; ``by`` is the server whose record contains it, if each has its own."""
        state.facts += 1
        state.t = max(state.t, t)
        handler = self._handlers.get(type(fact))
        if handler is not None:
            handler(state, t, fact, queue, by)
        elif fact.kind in CONCERNS or fact.kind in RELIEFS:
            self._concern(state, t, fact)

    def _update(self, state: RunState, t: float, fact: UpdateApplied, queue: int | None, by: int) -> None:
        server = state.server(fact.server)
        server.age, server.updates, server.queue = fact.age, server.updates + 1, queue or 0
        state.updates += 1
        if 0 <= fact.client < len(state.clients):
            state.clients[fact.client] += 1
        tau = fact.staleness
        state.staleness[0 if not tau > 0 else min(BUCKETS - 1, 1 + max(0, math.ceil(math.log2(min(tau, 1e9)))))] += 1
        region = self.world.client_region(fact.client, fact.server)
        links = state.links
        up, down = ("up", region, fact.server), ("down", fact.server, region)
        links[up] = links.get(up, 0) + 1
        links[down] = links.get(down, 0) + 1

    def _token(self, state: RunState, t: float, fact: TokenArrived, queue: int | None, by: int) -> None:
        state.token, state.bid = fact.server, fact.bid

    def _sync(
        self, state: RunState, t: float, fact: SyncStarted | EarlySyncStarted, queue: int | None, by: int
    ) -> None:
        state.server(fact.server).syncs += 1
        state.syncs = max(state.syncs, fact.bid - first_bid(epoch_of(fact.bid)) + 1)  # in this epoch
        self._called(state, t, fact.server, fact.bid)

    def _called(self, state: RunState, t: float, server: int, bid: int) -> None:
        state.calls.setdefault(bid, {}).setdefault(server, t)
        while len(state.calls) > BIDS_KEPT:
            del state.calls[min(state.calls)]

    def _merge(self, state: RunState, t: float, fact: Merged, queue: int | None, by: int) -> None:
        state.server(fact.server).age = fact.age
        self._called(state, t, fact.server, fact.bid)
        link = ("peer", fact.peer, fact.server)
        state.links[link] = state.links.get(link, 0) + 1

    def _round(self, state: RunState, t: float, fact: RoundEnded, queue: int | None, by: int) -> None:
        state.server(fact.server).round = fact.round

    def _cloud(self, state: RunState, t: float, fact: CloudRoundEnded, queue: int | None, by: int) -> None:
        state.syncs = max(state.syncs, fact.round)
        cloud = self.world.cloud
        if cloud is None:
            return
        state.server(cloud).round = fact.round
        for edge in self._edges:
            for link in (("peer", edge, cloud), ("peer", cloud, edge)):
                state.links[link] = state.links.get(link, 0) + 1

    def _evaluation(self, state: RunState, t: float, fact: Evaluated, queue: int | None, by: int) -> None:
        if self.world.start.server is None:
            scored = [id for id, s in enumerate(self.world.start.servers) if s.clients is not None]
            for id, score in zip(scored, fact.servers, strict=False):
                state.server(id).score = score
            state.mean, state.averaged, state.bytes = fact.mean, fact.averaged, fact.bytes
            return
        state.server(by).score = fact.mean  # a server of a deployment evaluates only its own model
        state.part_bytes[by] = fact.bytes
        state.bytes = sum(state.part_bytes.values())
        known = [s.score for s in state.servers if s.score is not None]
        state.mean, state.averaged = (sum(known) / len(known) if known else None), None

    def _by_clients(self, state: RunState, t: float, fact: EvaluatedByClients, queue: int | None, by: int) -> None:
        if fact.name == self.world.start.metric:
            state.by_clients[by] = fact

    def _resumed(self, state: RunState, t: float, fact: ServerResumed, queue: int | None, by: int) -> None:
        server = state.server(fact.server)
        server.updates = max(0, server.updates - fact.lost_updates)
        state.updates = max(0, state.updates - fact.lost_updates)
        self._concern(state, t, fact)

    def _concern(self, state: RunState, t: float, fact: Fact) -> None:
        """Set or clear the concern about a client or server."""
        values = fields(fact)
        node = next((f"{key} {values[key]}" for key in ("client", "peer", "server") if values.get(key) is not None), "")
        state.concerns.pop(node, None)
        if fact.kind in CONCERNS:
            state.concerns[node] = (t, CONCERNS[fact.kind], describe(self.world, fact))
            while len(state.concerns) > CONCERNS_KEPT:
                del state.concerns[next(iter(state.concerns))]


def known_server(fact: Fact) -> int | None:
    """Return the server that a fact is about, or ``None``."""
    found = fact.fields.get("server") if isinstance(fact, UnknownFact) else getattr(fact, "server", None)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def rounded(score: float | None) -> float | None:
    """Round a score for JSON; ``None`` if it is not finite."""
    return None if score is None or not math.isfinite(score) else round(score, 6)


def state_payload(state: RunState, world: RunTopology) -> dict[str, Any]:
    """Return the JSON of a state for the browser."""
    models = sum(state.links.values())
    size = state.bytes / models if models else 0.0
    names = world.server_name
    links = []
    for (way, a, b), count in sorted(state.links.items(), key=lambda link: (-link[1], link[0])):
        ends = {
            "up": lambda a=a, b=b: (f"clients of {world.regions[a]}", names(b)),
            "down": lambda a=a, b=b: (names(a), f"clients of {world.regions[b]}"),
            "peer": lambda a=a, b=b: (names(a), names(b)),
        }[way]()
        links.append({"way": way, "a": a, "b": b, "from": ends[0], "to": ends[1], "messages": count,
                      "bytes": round(count * size)})  # fmt: skip
    return {
        "t": state.t,
        "facts": state.facts,
        "token": state.token,
        "bid": state.bid,
        "updates": state.updates,
        "syncs": state.syncs,
        "bytes": state.bytes,
        "mean": rounded(state.mean),
        "averaged": rounded(state.averaged),
        "byClients": by_clients_payload(state),
        "servers": [server.payload() for server in state.servers],
        "staleness": list(state.staleness),
        "counts": counts_payload(state, world),
        "links": links[:400],
        "concerns": [
            {"who": node, "t": t, "what": what, "text": text} for node, (t, what, text) in state.concerns.items()
        ],
    }


def by_clients_payload(state: RunState) -> dict[str, Any] | None:
    """Return the clients' evaluations as they are sent to the browser."""
    if not state.by_clients:
        return None
    found = combined_by_clients([state.by_clients[by] for by in sorted(state.by_clients)])
    return {
        "clients": found.clients,
        "weightedMean": rounded(found.weighted_mean),
        "mean": rounded(found.mean),
        "worstDecile": rounded(found.worst_decile) if found.worst_decile_clients else None,
        "worstDecileClients": found.worst_decile_clients,
        "regions": [[each.region, each.clients, rounded(each.value)] for each in found.regions],
    }


def counts_payload(state: RunState, world: RunTopology) -> dict[str, Any]:
    """Return the histogram of updates per client, by region."""
    counts = state.clients
    low, high = (min(counts), max(counts)) if counts else (0, 0)
    step = max(1, math.ceil((high - low + 1) / COLUMNS))
    columns = [[0] * ((high - low) // step + 1) for _ in world.regions]
    first = 0
    for region, number in enumerate(world.clients):
        for count in counts[first : first + number]:
            columns[region][(count - low) // step] += 1
        first += number
    return {"low": low, "step": step, "regions": columns}
