"""What Prometheus can ask a server: made from its facts, and from what its host tells about links and checkpoints.

Rates are Prometheus' business (``rate(spyker_updates_total[1m])``); here are counters. Every series carries the label
``server``, so that those of a deployment can be told apart and summed up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, start_http_server

from spyker.config.sections import ScenarioError
from spyker.protocol.facts import CloudRoundEnded, Merged, RoundEnded, SyncStarted, TokenArrived, UpdateApplied
from spyker.records import Fact

STALENESS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
TOKEN = "token"


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, server_id: int, algorithm: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._server, self._algorithm = str(server_id), algorithm
        self._clock = clock
        self._found: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._sync_began: float | None = None
        self._round_began = clock()
        info = Info("spyker_server", "which algorithm a server runs", ["server"], registry=self.registry)
        info.labels(self._server).info({"algorithm": algorithm})
        self._age = self._gauge("age", "how much training the model embodies")
        self._version = self._gauge("version", "client updates in the model")
        self._queue = self._gauge("queue_length", "messages that waited or were in service at the last update")
        self._clients = self._gauge("connected_clients", "clients connected now")
        self._token = self._gauge("token_held", "1 on the server that holds Spyker's token")
        self._saved_version = self._gauge("saved_version", "the version that the last checkpoint holds")
        self._updates = self._counter("updates", "client updates applied")
        self._merges = self._counter("merges", "models of other servers merged")
        self._syncs = self._counter("synchronisations", "synchronisations started by this server")
        self._rounds = self._counter("rounds", "rounds of FedAvg, of an edge or of HierFAVG's cloud")
        self._lost = self._counter("lost_updates", "updates that were applied, not saved, and lost in a crash")
        self._sent_bytes = self._counter("sent_bytes", "bytes sent", "kind")
        self._sent_messages = self._counter("sent_messages", "messages sent", "kind")
        self._received_bytes = self._counter("received_bytes", "bytes received", "kind")
        self._received_messages = self._counter("received_messages", "messages received", "kind")
        self._refusals = self._counter("refusals", "messages and connections refused", "reason")
        self._staleness = self._histogram("staleness", "by how much updates were too old", STALENESS)
        self._sync_seconds = self._histogram(
            "synchronisation_seconds", "from a start here to the last merge, or until the token is passed on", SECONDS
        )
        self._round_seconds = self._histogram("round_seconds", "from one round's end to the next", SECONDS)
        self._checkpoint_seconds = self._histogram("checkpoint_seconds", "how long a checkpoint took", SECONDS)
        self.token(held=server_id == 0 and algorithm == "spyker")

    def fact(self, fact: Fact, queue: int | None = None) -> None:
        """The server stated a fact."""
        match fact:
            case UpdateApplied():
                self._updates.inc()
                self._staleness.observe(fact.staleness)
                self._age.set(fact.age)
                self._version.set(fact.version)
                if queue is not None:
                    self._queue.set(queue)
            case Merged():
                self._merges.inc()
                self._age.set(fact.age)
                if self._algorithm == "sync-spyker":  # all merges come at once, at the end
                    self._sync_ended()
            case TokenArrived():
                self.token(held=True)
            case SyncStarted():
                self._syncs.inc()
                self._sync_began = self._clock()
            case RoundEnded() | CloudRoundEnded():
                self._rounds.inc()
                now = self._clock()
                self._round_seconds.observe(now - self._round_began)
                self._round_began = now

    def token(self, *, held: bool) -> None:
        """Whether the server holds the token. After a resume only its host knows; later, facts and messages tell."""
        self._token.set(held)

    def sent(self, kind: str, nbytes: int) -> None:
        """A message went out; ``kind`` is the name of its type."""
        messages, size = self._traffic("sent", kind)
        messages.inc()
        size.inc(nbytes)
        if kind.lower() == TOKEN:
            self.token(held=False)
            self._sync_ended()

    def received(self, kind: str, nbytes: int) -> None:
        """A message came in."""
        messages, size = self._traffic("received", kind)
        messages.inc()
        size.inc(nbytes)

    def _traffic(self, way: str, kind: str) -> tuple[Any, Any]:
        """The counters of one kind of message, found once: finding them costs more than counting."""
        counters = self._found.get((way, kind))
        if counters is None:
            messages, size = (
                (self._sent_messages, self._sent_bytes)
                if way == "sent"
                else (self._received_messages, self._received_bytes)
            )
            counters = messages.labels(self._server, kind), size.labels(self._server, kind)
            self._found[way, kind] = counters
        return counters

    def refused(self, reason: str) -> None:
        """Something was refused. Reasons are few and our own words, never what a stranger sent."""
        self._refusals.labels(self._server, reason).inc()

    def clients(self, n: int) -> None:
        """So many clients are connected now."""
        self._clients.set(n)

    def saved(self, version: int, seconds: float) -> None:
        """A checkpoint with this version is on the disk; it took so long."""
        self._saved_version.set(version)
        self._checkpoint_seconds.observe(seconds)

    def lost(self, n: int) -> None:
        """So many updates were lost in a crash."""
        self._lost.inc(n)

    def serve(self, host: str, port: int) -> int:
        """Answer ``GET /metrics`` in a thread of its own, and return the port: a free one if ``port`` is 0."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ScenarioError(
                "deploy.metrics", f"cannot listen on {host}:{port} ({error.strerror})", "Choose an address that is free"
            ) from None
        return int(server.server_port)

    def _sync_ended(self) -> None:
        """A synchronisation that this server started is over."""
        if self._sync_began is not None:
            self._sync_seconds.observe(self._clock() - self._sync_began)
            self._sync_began = None

    def _gauge(self, name: str, doc: str) -> Any:
        return Gauge(f"spyker_{name}", doc, ["server"], registry=self.registry).labels(self._server)

    def _counter(self, name: str, doc: str, label: str | None = None) -> Any:
        if label is not None:
            return Counter(f"spyker_{name}", doc, ["server", label], registry=self.registry)
        return Counter(f"spyker_{name}", doc, ["server"], registry=self.registry).labels(self._server)

    def _histogram(self, name: str, doc: str, buckets: tuple[float, ...]) -> Any:
        return Histogram(f"spyker_{name}", doc, ["server"], registry=self.registry, buckets=buckets).labels(
            self._server
        )
