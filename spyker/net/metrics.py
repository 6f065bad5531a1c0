"""The Prometheus metrics of a server.

Most are counters; Prometheus computes rates from them (``rate(spyker_updates_total[1m])``). Every series has the label
``server``. What changes with every update is a plain number until somebody asks: a counter of the library takes as long
as ten additions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from spyker.net.channels import listen_error
from spyker.net.metrics_port import MetricsPort
from spyker.protocol.facts import (
    ClientAtTwoServers,
    ClientQuarantined,
    CloudRoundEnded,
    EarlySyncStarted,
    Merged,
    NoiseAdded,
    RoundEnded,
    SavingFailed,
    SavingResumed,
    ServerDuplicated,
    SumDiscarded,
    SumOpened,
    SyncStarted,
    UpdateApplied,
    UpdateClipped,
    UpdateDropped,
    UpdateRejected,
)
from spyker.records import Evaluated, EvaluatedByClients, Fact
from spyker.records.run_warnings import COLLAPSED, NO_PROGRESS, NO_UPDATES

STALENESS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
GAUGES = {
    "age": "age of the model: the amount of training in it",
    "version": "number of client updates in the model",
    "score": "score of the last evaluation; NaN before the first",
    "queue_length": "messages queued or in service at the last update",
    "connected_clients": "clients connected now",
    "token_held": "1 on the server that holds the token",
    "saved_version": "model version in the last checkpoint",
    "cannot_save": "1 while no checkpoint reaches the disk: the other servers continue without this one",
}
EVERY_UPDATE = ("age", "version", "queue_length")  # of the gauges
CLIENT_SCORES = {
    "weighted_mean": "mean of the clients' evaluations, weighted by their examples",
    "mean": "mean of the clients' evaluations",
    "median": "median of the clients' evaluations",
    "worst_decile": "mean of the worst tenth of the clients' evaluations",
}
COUNTERS = {
    "updates": "client updates applied",
    "merges": "models of other servers merged",
    "synchronisations": "synchronisations started by this server",
    "rounds": "rounds ended by a server, an edge or the cloud, or buffer flushes",
    "dropped_facts": "facts missing from the run record: rotated out, or the disk was full",
    "clipped_updates": "client updates whose norm was clipped",
    "rejected_updates": "client updates rejected because of their norm",
    "dropped_updates": "client updates dropped because of their rate",
    "quarantines": "clients quarantined because of rejected or sign-flipped updates, seals or spoilt sums",
    "opened_sums": "sums of masked updates that were opened",
    "discarded_sums": "sums of masked updates that were discarded, with the trainings behind them",
    "noisy_sums": "sums of updates to which noise was added, for differential privacy of whole clients",
    "client_replacements": "connections of clients that were replaced by one from another address",
    "clients_at_two_servers": "alerts, at most one per minute and client, that a client is at another server, too",
    "duplicate_servers": "alerts, at most one per minute and server, that two processes act for one server",
    "lost_updates": "updates applied after the last checkpoint and lost in a crash",
}
HISTOGRAMS = {
    "staleness": ("staleness of client updates", STALENESS),
    "synchronisation_seconds": (
        "duration of synchronisations started here: until the last merge or until the token is passed on",
        SECONDS,
    ),
    "round_seconds": ("duration of rounds", SECONDS),
    "checkpoint_seconds": ("duration of checkpoint writes", SECONDS),
}


disable_created_metrics()  # type: ignore[no-untyped-call]  # no second series per counter with its creation time


class OnScrape(Collector):
    """A collector without metrics, which is registered first and brings the others up to date."""

    def __init__(self, update: Callable[[], None]) -> None:
        self._update = update

    def collect(self) -> Iterable[Metric]:
        """Update the metrics."""
        self._update()
        return ()

    def describe(self) -> Iterable[Metric]:
        """Return no metrics."""
        return ()


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self, server_id: int, algorithm: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._clock = str(server_id), clock
        self._sync_began: float | None = None
        self._round_began = clock()
        self._endpoint: MetricsPort | None = None
        self._holds_token = False
        self._largest_epsilon = 0.0
        self.registry = registry = CollectorRegistry()
        registry.register(OnScrape(self._bring_up_to_date))
        self._updates = 0
        self._now: dict[str, float] = dict.fromkeys(EVERY_UPDATE, 0.0)
        self._carried: dict[tuple[str, str], list[int]] = {}  # messages and bytes by way and kind
        self._counted: dict[object, int] = {}  # what the counters have of these
        own, kinds, me = ["server"], ["server", "kind"], self._server
        Info("spyker_server", "algorithm of the server", own, registry=registry).labels(me).info(
            {"algorithm": algorithm}
        )
        self._gauges = {n: Gauge(f"spyker_{n}", doc, own, registry=registry).labels(me) for n, doc in GAUGES.items()}
        self._gauges["score"].set(math.nan)
        for name in EVERY_UPDATE:
            self._gauges[name].set_function(partial(self._now.__getitem__, name))
        metrics, self._evaluated = ["server", "metric"], set[str]()
        self._client_scores = {
            n: Gauge(f"spyker_client_score_{n}", doc, metrics, registry=registry) for n, doc in CLIENT_SCORES.items()
        }
        self._evaluating = Gauge(
            "spyker_evaluating_clients", "clients whose evaluations count", metrics, registry=registry
        )
        self._counters = {
            n: Counter(f"spyker_{n}", doc, own, registry=registry).labels(me) for n, doc in COUNTERS.items()
        }
        self._histograms = {
            n: Histogram(f"spyker_{n}", doc, own, buckets=bounds, registry=registry).labels(me)
            for n, (doc, bounds) in HISTOGRAMS.items()
        }
        self._traffic = {
            way: [Counter(f"spyker_{way}_{u}", f"{u} {way}", kinds, registry=registry) for u in ("messages", "bytes")]
            for way in ("sent", "received")
        }
        self._rejections = Counter(
            "spyker_rejections", "rejected messages and connections", ["server", "reason"], registry=registry
        )
        self._epsilon = Gauge(
            "spyker_privacy_epsilon",
            "largest ε of a client from its part in this server's sums",
            ["server", "unit"],
            registry=registry,
        )
        self._warnings = Gauge(
            "spyker_learning_warnings", "1 while the server has this learning warning", kinds, registry=registry
        )
        self.learning(frozenset())

    def fact(self, fact: Fact, queue: int | None = None) -> None:
        """Update the metrics that follow from a fact."""
        match fact:
            case UpdateApplied():
                self._updates += 1
                self._histograms["staleness"].observe(fact.staleness)
                now = self._now
                now["age"], now["version"] = fact.age, fact.version
                if queue is not None:
                    now["queue_length"] = queue
            case Merged():
                self._counters["merges"].inc()
                self._now["age"] = fact.age
                if not self._holds_token:  # a holder's synchronisation ends when it passes the token on
                    self._sync_ended()
            case UpdateClipped():
                self._counters["clipped_updates"].inc()
            case UpdateRejected():
                self._counters["rejected_updates"].inc()
            case UpdateDropped():
                self._counters["dropped_updates"].inc()
            case SumOpened():
                self._counters["opened_sums"].inc()
            case NoiseAdded():
                self._counters["noisy_sums"].inc()
                self._largest_epsilon = max(self._largest_epsilon, fact.epsilon)
                self._epsilon.labels(self._server, "client").set(self._largest_epsilon)
            case SumDiscarded():
                self._counters["discarded_sums"].inc()
            case ClientQuarantined():
                self._counters["quarantines"].inc()
            case ClientAtTwoServers():
                self._counters["clients_at_two_servers"].inc()
            case ServerDuplicated():
                self._counters["duplicate_servers"].inc()
            case SyncStarted() | EarlySyncStarted():
                self._counters["synchronisations"].inc()
                self._sync_began = self._clock()
            case SavingFailed() | SavingResumed():
                self._gauges["cannot_save"].set(isinstance(fact, SavingFailed))
            case Evaluated():
                self._gauges["score"].set(fact.mean)
            case RoundEnded() | CloudRoundEnded():
                self._counters["rounds"].inc()
                ended = self._clock()
                self._histograms["round_seconds"].observe(ended - self._round_began)
                self._round_began = ended

    def evaluated_by_clients(self, found: Sequence[EvaluatedByClients]) -> None:
        """Set the clients' evaluations. Metrics that no client evaluates any more are removed.

        Of masked scores only the weighted mean is known; the others are NaN.
        """
        for fact in found:
            for name, gauge in self._client_scores.items():
                known = fact.worst_decile_clients or name == "weighted_mean"
                gauge.labels(self._server, fact.name).set(getattr(fact, name) if known else math.nan)
            self._evaluating.labels(self._server, fact.name).set(fact.clients)
        names = {fact.name for fact in found}
        for gone in self._evaluated - names:
            for gauge in (*self._client_scores.values(), self._evaluating):
                gauge.remove(self._server, gone)
        self._evaluated = names

    def token(self, *, held: bool) -> None:
        """Set whether the server holds the token. When it passes the token on, its synchronisation is over."""
        if held == self._holds_token:
            return
        if not held:
            self._sync_ended()
        self._holds_token = held
        self._gauges["token_held"].set(held)

    def sent(self, kind: str, nbytes: int) -> None:
        """Count a sent message."""
        self._count("sent", kind, nbytes)

    def received(self, kind: str, nbytes: int) -> None:
        """Count a received message."""
        self._count("received", kind, nbytes)

    def _count(self, way: str, kind: str, nbytes: int) -> None:
        counts = self._carried.get((way, kind))
        if counts is None:
            counts = self._carried[way, kind] = [0, 0]
        counts[0] += 1
        counts[1] += nbytes

    def _bring_up_to_date(self) -> None:
        """Add to the counters what was counted since the last scrape. Called in the endpoint's thread."""
        self._add("updates", self._updates, self._counters["updates"])
        for (way, kind), counts in list(self._carried.items()):
            for unit, counter, count in zip(("messages", "bytes"), self._traffic[way], counts, strict=True):
                self._add((way, kind, unit), count, counter.labels(self._server, kind))

    def _add(self, key: object, total: int, counter: Counter) -> None:
        counter.inc(total - self._counted.get(key, 0))
        self._counted[key] = total

    def rejected(self, reason: str) -> None:
        """Count a rejection. ``reason`` is one of a small fixed set, never text from the network."""
        self._rejections.labels(self._server, reason).inc()

    def learning(self, warned: frozenset[str]) -> None:
        """Set the kinds of learning warnings that are active."""
        for kind in (NO_UPDATES, NO_PROGRESS, COLLAPSED):
            self._warnings.labels(self._server, kind).set(kind in warned)

    def clients(self, n: int) -> None:
        """Set the number of connected clients."""
        self._gauges["connected_clients"].set(n)

    def saved(self, version: int, seconds: float) -> None:
        """Set the version in the last checkpoint, which was written in so many seconds."""
        self._gauges["saved_version"].set(version)
        self._histograms["checkpoint_seconds"].observe(seconds)

    def replaced(self) -> None:
        """Count a client whose connection was replaced by one from another address."""
        self._counters["client_replacements"].inc()

    def lost(self, n: int) -> None:
        """Count updates that were lost in a crash."""
        self._counters["lost_updates"].inc(n)

    def dropped(self, n: int) -> None:
        """Count facts that are missing from the run record."""
        self._counters["dropped_facts"].inc(n)

    def _sync_ended(self) -> None:
        """Observe the duration of a synchronisation that this server started, if one was in progress."""
        if self._sync_began is not None:
            self._histograms["synchronisation_seconds"].observe(self._clock() - self._sync_began)
            self._sync_began = None

    # --- The endpoint ----------------------------------------------------------------------------------------------

    def serve(self, host: str, port: int) -> int:
        """Serve ``GET /metrics`` in a thread, and return the port: a free one if ``port`` is 0."""
        try:
            self._endpoint = MetricsPort(self.registry, host, port)
        except OSError as error:
            raise listen_error(f"{host}:{port}", "deploy.metrics", error) from None
        return self._endpoint.port

    def close(self) -> None:
        """Close the endpoint."""
        if self._endpoint is not None:
            self._endpoint.close()
