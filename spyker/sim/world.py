"""The world: drives the protocol's nodes over links and processors in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from spyker.engines.engine import Engine, TrainJob
from spyker.errors import ClientTrainingError
from spyker.protocol.client import Client
from spyker.protocol.codec import schema_of, size_in_bytes
from spyker.protocol.facts import ClientReported, UpdateApplied
from spyker.protocol.messages import (
    Action,
    ClientMessage,
    Leave,
    Message,
    Model,
    PeerMessage,
    RecordFact,
    StartTimer,
    StopTimer,
    ToClient,
    ToServer,
    Train,
)
from spyker.protocol.server import Server, Work
from spyker.records import ClientFailed, Fact
from spyker.records.summary import synchronised
from spyker.sim.adversaries import Adversaries
from spyker.sim.client_failures import ClientFailure, ClientFailures
from spyker.sim.clock import Clock
from spyker.sim.links import Links
from spyker.sim.processor import Processor, QueueServer
from spyker.tasks.evaluation_schedule import EvaluationSchedule
from spyker.vectors import Vector, is_finite

Sink: TypeAlias = Callable[[float, Fact, int | None], None]
"""Takes a fact: its time, the fact itself and, for an update, the length of the server's queue."""


class Simulation(ABC):
    """What happens between nodes, whatever they are made of. ``sink`` is told every fact."""

    processors: Sequence[QueueServer]

    def __init__(
        self,
        servers: int,
        clients: int,
        *,
        links: Links,
        delays: Sequence[float],
        costs: Mapping[Work, float],
        engine: Engine,
        clock: Clock,
        sink: Sink,
        adversaries: Adversaries | None = None,
        failures: ClientFailures | None = None,
        evaluation_interval: float | None = None,
    ) -> None:
        """Clients that fail are added to ``failures`` and excluded. Without it the first exception ends the run, and
        servers are sent weights that are not finite. With ``evaluation_interval``, each client evaluates the model that
        it receives, at most once in this time.
        """
        self.evaluation_schedule = EvaluationSchedule(evaluation_interval)
        self.adversaries, self.failures = adversaries, failures
        self.clock, self.links, self.engine, self.delays, self.sink = clock, links, engine, delays, sink
        self.costs = costs
        self.states: dict[int, bytes | None] = {}  # of those clients that keep one
        self.reports: dict[int, dict[str, float]] = {}  # what clients reported last
        self.broken: tuple[float, TrainJob] | None = None  # the first training that led to what is not finite
        self.messages: Counter[str] = Counter()
        self._sizes: dict[type[Message], int] = {}  # of those kinds of messages that are all of one size
        self.updates = 0
        self.updates_per_client = array("q", bytes(8 * clients))
        self.updates_per_server = [0] * servers
        self.synchronisations = 0

    @abstractmethod
    def start(self) -> None:
        """At time 0 every server does what it does first."""

    def _size(self, message: Message) -> int:
        """Count a message and return its size in bytes."""
        kind = type(message)
        self.messages[kind.kind] += 1
        size = self._sizes.get(kind)
        if size is None:
            size = size_in_bytes(message)
            if schema_of(kind).fixed:
                self._sizes[kind] = size
        return size

    def _record(self, fact: Fact, queue: int) -> None:
        """Count a fact and hand it on. So many messages wait at its server."""
        if isinstance(fact, UpdateApplied):
            self.updates += 1
            self.updates_per_client[fact.client] += 1
            self.updates_per_server[fact.server] += 1
            self.sink(self.clock.now, fact, queue)
            return
        if isinstance(fact, ClientReported) and fact.metrics:
            self.reports[fact.client] = fact.metrics
        self.synchronisations = synchronised(self.synchronisations, fact)
        self.sink(self.clock.now, fact, None)

    def _train(self, k: int, order: Train, ended: Callable[[Any, TrainJob], None], trainee: Any) -> None:
        """A client begins to train. The training is submitted now and its result awaited when it is due."""
        due = self.clock.now + self.delays[k]
        if due <= self.clock.end:
            evaluate = self.evaluation_schedule.due(k, self.clock.now)
            job = TrainJob(k, order.weights, order.rate, order.step, self.states.get(k), order.age, evaluate)
            self.engine.submit(job, due)
            self.clock.at(due, ended, trainee, job)

    def _trained(self, job: TrainJob, server: Server) -> Vector | None:
        """What came of a training, which is an answer for ``server``; none if it failed and its client is excluded.

        What its client keeps for the next one stays here.
        """
        try:
            weights = self.engine.trained(job)
        except ClientTrainingError as error:
            if self.failures is None or self.failures.stop:
                raise
            self._exclude(server, self.failures.raised(self.clock.now, job, error))
            return None
        if not is_finite(weights):
            # If the server's own model is not finite, that is no fault of the client: the next evaluation says so.
            passed_on = server.handles_nonfinite or not is_finite(job.weights)
            if self.failures is not None and not passed_on:
                self._exclude(server, self.failures.diverged(self.clock.now, job, self.broken))
                return None
            self.broken = self.broken or (self.clock.now, job)
        elif self.failures is not None:
            self.failures.trained = True
        if job.state is not job.left:
            self.states[job.client] = job.left
        return weights if self.adversaries is None else self.adversaries.answer(job, weights)

    def _exclude(self, server: Server, failure: ClientFailure) -> None:
        """Go on without a client that failed, if there is another left."""
        self.sink(self.clock.now, ClientFailed(server.id, failure.client, failure.reason), None)
        if self.failures is not None:
            self.failures.check()

    def excluded(self, client: int) -> bool:
        """Whether a client has failed."""
        return self.failures is not None and client in self.failures.by_client


class BareServerSimulation(Simulation):
    """Servers that never die, their clients, and connections that never break."""

    processors: Sequence[Processor]

    def __init__(self, servers: Sequence[Server], clients: Sequence[Client], **surroundings: Any) -> None:
        """What surrounds them is that of every :class:`Simulation`."""
        super().__init__(len(servers), len(clients), **surroundings)
        self.clients = clients
        self.processors = [Processor(server, self.clock, self.costs, self._perform) for server in servers]

    def start(self) -> None:
        """At time 0 every server does what it does first."""
        for processor in self.processors:
            self._perform(processor, processor.server.start())

    def _perform(self, processor: Processor, actions: Iterable[Action]) -> None:
        """Do what a server asked for."""
        now, clock, me = self.clock.now, self.clock, processor.id
        for action in actions:
            if isinstance(action, ToClient):
                arrival = self.links.down(now, me, action.client, self._size(action.message))
                clock.at(arrival, self.model_arrives, action.client, action.message)
            elif isinstance(action, RecordFact):
                self._record(action.fact, len(processor.queue))
            elif isinstance(action, ToServer):
                arrival = self.links.between(now, me, action.server, self._size(action.message))
                clock.at(arrival, self.processors[action.server].receive, me, action.message)
            elif isinstance(action, StartTimer):
                processor.start_timer(action.timer, action.seconds)
            elif isinstance(action, StopTimer):
                processor.stop_timer(action.timer)

    def model_arrives(self, k: int, model: Model) -> None:
        """A client does what its server asks for."""
        if self.excluded(k):
            return  # its departure is still on its way
        client = self.clients[k]
        for action in client.handle(client.server, model):
            if isinstance(action, Train):
                self._train(k, action, self.training_ends, client)

    def training_ends(self, client: Client, job: TrainJob) -> None:
        """A client answers its server, or leaves it, if its training failed."""
        weights = self._trained(job, self.processors[client.server].server)
        if weights is None:
            self._send_up(client.id, client.server, Leave())
            return
        for action in client.trained(weights, job.examples, job.metrics, job.reported_evaluation):
            if isinstance(action, ToServer):
                self._send_up(client.id, action.server, action.message)

    def _send_up(self, client: int, server: int, message: ClientMessage | PeerMessage) -> None:
        arrival = self.links.up(self.clock.now, client, server, self._size(message))
        self.clock.at(arrival, self.processors[server].receive, client, message)
