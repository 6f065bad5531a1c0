"""Simulation of servers and clients over links and processors in virtual time.

An update goes through :class:`BareServerSimulation` in this order: ``model_arrives`` lets the client handle the model,
``_train`` submits its training to the engine, ``training_ends`` awaits the result and sends the update over
:class:`~spyker.sim.links.Links`, a :class:`~spyker.sim.processor.Processor` queues it and passes it to the server's
``handle``, and ``_perform`` carries out the actions: the next model, messages to servers, facts.
"""

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
from spyker.records.summary import SyncCount
from spyker.sim.adversaries import Adversaries
from spyker.sim.client_failures import STOP_REMEDY, ClientFailure, ClientFailures
from spyker.sim.clock import Clock
from spyker.sim.links import Links
from spyker.sim.processor import Processor, QueueServer
from spyker.tasks.evaluation_schedule import EvaluationSchedule
from spyker.vectors import Vector, is_finite

Sink: TypeAlias = Callable[[float, Fact, int | None], None]
"""Called with time, fact and, for an update, the length of the server's queue."""


class Simulation(ABC):
    """Common parts of the simulations: counts, trainings and failures of clients."""

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
        """Create a simulation.

        Failed clients are added to ``failures`` and excluded. Without ``failures`` the first exception ends the run,
        and weights that are not finite are sent to servers.
        With ``evaluation_interval``, each client evaluates the model that it receives, at most once in this time.
        """
        self.evaluation_schedule = EvaluationSchedule(evaluation_interval)
        self.adversaries, self.failures = adversaries, failures
        self.clock, self.links, self.engine, self.delays, self.sink = clock, links, engine, delays, sink
        self.costs = costs
        self.states: dict[int, bytes | None] = {}  # of clients with a state
        self.reports: dict[int, dict[str, float]] = {}  # last reported metrics by client
        self.broken: tuple[float, TrainJob] | None = None  # the first training whose weights were not finite
        self.messages: Counter[str] = Counter()
        self._sizes: dict[type[Message], int] = {}  # of message types with a fixed size
        self.updates = 0
        self.updates_per_client = array("q", bytes(8 * clients))
        self.trainings = array("q", bytes(8 * clients))  # that have begun, by client
        self.updates_per_server = [0] * servers
        self.synchronisations = SyncCount()

    @abstractmethod
    def start(self) -> None:
        """Start all servers at time 0."""

    def _size(self, message: Message) -> int:
        """Count a message and return the bytes that it has when it is encoded; nothing is encoded in a simulation."""
        kind = type(message)
        self.messages[kind.kind] += 1
        size = self._sizes.get(kind)
        if size is None:
            size = size_in_bytes(message)
            if schema_of(kind).fixed:
                self._sizes[kind] = size
        return size

    def _record(self, fact: Fact, queue: int) -> None:
        """Count a fact and pass it to ``sink``; ``queue`` is the number of messages waiting at its server."""
        if isinstance(fact, UpdateApplied):
            self.updates += 1
            self.updates_per_client[fact.client] += 1
            self.updates_per_server[fact.server] += 1
            self.sink(self.clock.now, fact, queue)
            return
        if isinstance(fact, ClientReported) and fact.metrics:
            self.reports[fact.client] = fact.metrics
        self.synchronisations.fact(fact)
        self.sink(self.clock.now, fact, None)

    def _train(self, k: int, order: Train, ended: Callable[[Any, TrainJob], None], trainee: Any) -> None:
        """Submit a client's training now, and call ``ended(trainee, job)`` when the client's delay has passed."""
        due = self.clock.now + self.delays[k]
        if due <= self.clock.end:
            evaluate = self.evaluation_schedule.due(k, self.clock.now)
            job = TrainJob(k, order.weights, order.rate, order.step, self.states.get(k), order.age, evaluate)
            if self._has_spent(job):
                self.clock.at(self.clock.now, ended, trainee, job)
                return
            self.trainings[k] += 1
            self.engine.submit(job, due)
            self.clock.at(due, ended, trainee, job)

    def _has_spent(self, job: TrainJob) -> bool:
        """Return whether the client has no privacy budget for this training."""
        return self.failures is not None and self.failures.has_spent(job.client, job.step)

    def _trained(self, job: TrainJob, server: Server) -> Vector | None:
        """Await a training. Return its weights for ``server``, or ``None`` if it failed and its client is excluded.

        The client's state is stored for its next training.
        """
        if self.failures is not None and self._has_spent(job):
            self._exclude(server, self.failures.spent(self.clock.now, job.client, job.step))
            return None
        try:
            weights = self.engine.trained(job)
        except ClientTrainingError as error:
            if self.failures is None:
                raise
            if self.failures.stop:
                raise ClientTrainingError(f"{error}\n{STOP_REMEDY}", error.reason) from error
            self._exclude(server, self.failures.raised(self.clock.now, job, error))
            return None
        if not is_finite(weights):
            # If the model was not finite before training, the client is not at fault; the next evaluation reports it.
            passed_on = server.handles_nonfinite or not is_finite(job.weights)
            if self.failures is not None and not passed_on:
                self._exclude(server, self.failures.diverged(self.clock.now, job, self.broken))
                return None
            self.broken = self.broken or (self.clock.now, job)
        elif self.failures is not None:
            self.failures.trained = True
        if job.state is not job.new_state:
            self.states[job.client] = job.new_state
        if self.adversaries is None:
            return weights
        job.examples = self.adversaries.examples(job)
        return self.adversaries.answer(job, weights)

    def _exclude(self, server: Server, failure: ClientFailure) -> None:
        """Record a failed client; raise its error if no client is left."""
        self.sink(self.clock.now, ClientFailed(server.id, failure.client, failure.reason), None)
        if self.failures is not None:
            self.failures.check()

    def excluded(self, client: int) -> bool:
        """Return whether a client has failed."""
        return self.failures is not None and client in self.failures.by_client


class BareServerSimulation(Simulation):
    """Simulation of servers and connections without faults."""

    processors: Sequence[Processor]

    def __init__(self, servers: Sequence[Server], clients: Sequence[Client], **surroundings: Any) -> None:
        """Create the simulation; ``surroundings`` are arguments of :class:`Simulation`."""
        super().__init__(len(servers), len(clients), **surroundings)
        self.clients = clients
        self.processors = [Processor(server, self.clock, self.costs, self._perform) for server in servers]

    def start(self) -> None:
        """Start all servers at time 0."""
        for processor in self.processors:
            self._perform(processor, processor.server.start())

    def _perform(self, processor: Processor, actions: Iterable[Action]) -> None:
        """Carry out a server's actions: send messages, record facts, start and stop timers."""
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
        """Deliver a model to a client, which starts to train."""
        if self.excluded(k):
            return  # its Leave message is still in flight
        client = self.clients[k]
        for action in client.handle(client.server, model):
            if isinstance(action, Train):
                self._train(k, action, self.training_ends, client)

    def training_ends(self, client: Client, job: TrainJob) -> None:
        """Send a client's update to its server, or ``Leave`` if its training failed."""
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
