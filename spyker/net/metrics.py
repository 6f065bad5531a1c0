"""What Prometheus can ask a server: made from its facts, and from what its node tells about links and checkpoints.

Numbers are kept as plain numbers, because a server counts far more often than it is asked; they become metrics when
somebody asks. Rates are Prometheus' business (``rate(spyker_updates_total[1m])``); here are counters. Every series
carries the label ``server``, so that those of a deployment can be told apart and summed up.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from spyker.errors import UsageError
from spyker.protocol.facts import (
    ClientQuarantined,
    CloudRoundEnded,
    EarlySyncStarted,
    Merged,
    RoundEnded,
    SyncStarted,
    TokenArrived,
    UpdateApplied,
    UpdateClipped,
    UpdateRejected,
)
from spyker.protocol.messages import Token
from spyker.records import Evaluated, Fact
from spyker.records.run_warnings import COLLAPSED, NO_PROGRESS, NO_UPDATES

STALENESS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
TOKEN = Token.kind
GAUGES = {
    "age": "age of the model: the amount of training in it",
    "version": "number of client updates in the model",
    "score": "score of the last evaluation; NaN before the first",
    "queue_length": "messages queued or in service at the last update",
    "connected_clients": "clients connected now",
    "token_held": "1 on the server that holds the token",
    "saved_version": "model version in the last checkpoint",
}
COUNTERS = {
    "updates": "client updates applied",
    "merges": "models of other servers merged",
    "synchronisations": "synchronisations started by this server",
    "rounds": "rounds ended by a server, an edge or the cloud, or buffer flushes",
    "dropped_facts": "facts missing from the run record: rotated out, or the disk was full",
    "clipped_updates": "client updates whose norm was clipped",
    "rejected_updates": "client updates rejected because of their norm",
    "quarantines": "clients quarantined because of rejected or sign-flipped updates",
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


class Histogram:
    """How often values up to each of some bounds were seen."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = (*bounds, float("inf"))
        self.counts = [0] * len(self.bounds)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        return list(zip(map(floatToGoString, self.bounds), accumulate(self.counts), strict=True))


class Metrics(Collector):
    """The metrics of one server, in a registry of their own."""

    def __init__(self, server_id: int, algorithm: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._algorithm = str(server_id), algorithm
        self._clock = clock
        self._sync_began: float | None = None
        self._round_began = clock()
        self._gauges: dict[str, float] = dict.fromkeys(GAUGES, 0) | {"score": math.nan}
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._page: tuple[WSGIServer, Thread] | None = None
        self._distributions = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self._traffic: dict[tuple[str, str], list[int]] = defaultdict(
            lambda: [0, 0]
        )  # by way and kind: messages, bytes
        self._rejections: Counter[str] = Counter()
        self._warned: frozenset[str] = frozenset()
        self._tokens = False  # whether the algorithm has one
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def fact(self, fact: Fact, queue: int | None = None) -> None:
        """The server stated a fact."""
        match fact:
            case UpdateApplied():
                self._counters["updates"] += 1
                self._distributions["staleness"].observe(fact.staleness)
                gauges = self._gauges
                gauges["age"] = fact.age
                gauges["version"] = fact.version
                if queue is not None:
                    gauges["queue_length"] = queue
            case Merged():
                self._counters["merges"] += 1
                self._gauges["age"] = fact.age
                if not self._tokens:  # all merges come at once, at the end
                    self._sync_ended()
            case TokenArrived():
                self.token(held=True)
            case UpdateClipped():
                self._counters["clipped_updates"] += 1
            case UpdateRejected():
                self._counters["rejected_updates"] += 1
            case ClientQuarantined():
                self._counters["quarantines"] += 1
            case SyncStarted() | EarlySyncStarted():
                self._counters["synchronisations"] += 1
                self._sync_began = self._clock()
            case Evaluated():
                self._gauges["score"] = fact.mean
            case RoundEnded() | CloudRoundEnded():
                self._counters["rounds"] += 1
                now = self._clock()
                self._distributions["round_seconds"].observe(now - self._round_began)
                self._round_began = now

    def began(self, *, token: object) -> None:
        """The server began, or went on: with its token, without it (``None``), or, ``False``, it knows of no token.

        Later, facts and messages tell.
        """
        self._tokens = token is not False
        self.token(held=bool(token))

    def token(self, *, held: bool) -> None:
        """Whether the server holds the token."""
        self._gauges["token_held"] = held

    def sent(self, kind: str, nbytes: int) -> None:
        """A message went out."""
        self._count("sent", kind, nbytes)
        if kind == TOKEN:
            self.token(held=False)
            self._sync_ended()

    def received(self, kind: str, nbytes: int) -> None:
        """A message came in."""
        self._count("received", kind, nbytes)

    def _count(self, way: str, kind: str, nbytes: int) -> None:
        carried = self._traffic[way, kind]
        carried[0] += 1
        carried[1] += nbytes

    def rejected(self, reason: str) -> None:
        """Count a rejection. ``reason`` is one of a small fixed set, never text from the network."""
        self._rejections[reason] += 1

    def learning(self, warned: frozenset[str]) -> None:
        """Warnings of these kinds hold now, and no others."""
        self._warned = warned

    def clients(self, n: int) -> None:
        """So many clients are connected now."""
        self._gauges["connected_clients"] = n

    def saved(self, version: int, seconds: float) -> None:
        """A checkpoint with this version is on the disk; it took so long."""
        self._gauges["saved_version"] = version
        self._distributions["checkpoint_seconds"].observe(seconds)

    def lost(self, n: int) -> None:
        """So many updates were lost in a crash."""
        self._counters["lost_updates"] += n

    def dropped(self, n: int) -> None:
        """So many facts are not, or no longer, in the record."""
        self._counters["dropped_facts"] += n

    def _sync_ended(self) -> None:
        """A synchronisation that this server started is over."""
        if self._sync_began is not None:
            self._distributions["synchronisation_seconds"].observe(self._clock() - self._sync_began)
            self._sync_began = None

    # --- When somebody asks ----------------------------------------------------------------------------------------

    def serve(self, node: str, port: int) -> int:
        """Answer ``GET /metrics`` in a thread of its own, and return the port: a free one if ``port`` is 0."""
        try:
            server, _ = self._page = start_http_server(port, node, self.registry)
        except OSError as error:
            raise UsageError(
                "deploy.metrics", f"cannot listen on {node}:{port} ({error.strerror})", "Choose an address that is free"
            ) from None
        return int(server.server_port)

    def close(self) -> None:
        """Answer no more, and let go of the port."""
        if self._page is not None:
            server, thread = self._page
            server.shutdown()
            server.server_close()
            thread.join()

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now. Another thread asks; copies are taken before anything is looked through."""
        mine = [self._server]
        info = InfoMetricFamily("spyker_server", "which algorithm a server runs", labels=["server"])
        info.add_metric(mine, {"algorithm": self._algorithm})
        yield info
        for name, doc in GAUGES.items():
            gauge = GaugeMetricFamily(f"spyker_{name}", doc, labels=["server"])
            gauge.add_metric(mine, self._gauges[name])
            yield gauge
        for name, doc in COUNTERS.items():
            counter = CounterMetricFamily(f"spyker_{name}", doc, labels=["server"])
            counter.add_metric(mine, self._counters[name])
            yield counter
        traffic = dict(self._traffic)
        for way in ("sent", "received"):
            for i, unit in enumerate(("messages", "bytes")):
                counter = CounterMetricFamily(f"spyker_{way}_{unit}", f"{unit} {way}", labels=["server", "kind"])
                for (direction, kind), carried in traffic.items():
                    if direction == way:
                        counter.add_metric([*mine, kind], carried[i])
                yield counter
        counter = CounterMetricFamily(
            "spyker_rejections", "rejected messages and connections", labels=["server", "reason"]
        )
        for reason, count in dict(self._rejections).items():
            counter.add_metric([*mine, reason], count)
        yield counter
        warnings = GaugeMetricFamily(
            "spyker_learning_warnings", "1 while the server has this learning warning", labels=["server", "kind"]
        )
        warned = self._warned
        for kind in (NO_UPDATES, NO_PROGRESS, COLLAPSED):
            warnings.add_metric([*mine, kind], kind in warned)
        yield warnings
        for name, (doc, _) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(f"spyker_{name}", doc, labels=["server"])
            distribution = self._distributions[name]
            histogram.add_metric(mine, distribution.buckets(), distribution.total)
            yield histogram
