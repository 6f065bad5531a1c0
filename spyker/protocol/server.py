"""The base class of all algorithms' servers, and their setup."""

from __future__ import annotations

import enum
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from spyker.compression.settings import CompressionSettings
from spyker.placement import Topology, following
from spyker.privacy.client_noise import ClientPrivacy
from spyker.privacy.masking import MaskingSetup
from spyker.protocol.client import Client
from spyker.protocol.codec import MOST_METRICS, Sizes
from spyker.protocol.coded_messages import with_coded
from spyker.protocol.facts import EXAMPLES, ClientEvaluated, ClientReported, Fact
from spyker.protocol.filtered_clients import HELD, QUARANTINE, FilteredClients
from spyker.protocol.messages import (
    Action,
    BootstrapState,
    ClientMessage,
    Join,
    Leave,
    MaskedUpdate,
    Message,
    Model,
    ModelBootstrap,
    PeerMessage,
    RecordFact,
    Requeue,
    ServerMessage,
    StartTimer,
    StopTimer,
    ToClient,
    ToServer,
    Update,
)
from spyker.protocol.server_coder import ServerCoder
from spyker.protocol.state import ServerState, Stateful, Unpacker, pack
from spyker.protocol.weights import Weights
from spyker.robust.update_filter import FilterParameters, UpdateFilter
from spyker.vectors import Mix, Vector, mix

P = TypeVar("P", bound=PeerMessage)


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a run, identical for all servers, in the emulator and in deployments."""

    servers: int
    """n: number of servers that have clients."""
    clients: int
    """n_C: total number of clients."""
    weights: Vector
    """W⁰: initial weights."""
    rate: float
    """η_init: initial learning rate of clients."""
    parameters: Any
    """An instance of the algorithm's ``Parameters`` class."""
    seed: int = 0
    """Seed of algorithms that draw random numbers."""
    mix: Mix = mix
    """Function that mixes one vector into another; a driver may supply a faster one."""
    empty: Callable[[Vector], Vector] = np.empty_like
    """Function that allocates the result of a mix; a driver may reuse memory."""
    now: Callable[[], float] = float
    """Monotonic clock in seconds, for algorithms that measure durations."""
    robust: FilterParameters | None = None
    """Parameters of the update filter; ``None``: updates are not filtered."""
    buffers: int = 0
    """Number of buffers at the end of the weights; see :mod:`~spyker.protocol.buffers`."""
    client_metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Metrics that clients evaluate, the main metric first, and the limits of their values; empty: evaluations by
    clients are ignored."""
    masking: MaskingSetup | None = None
    """Settings of secure aggregation; ``None``: clients do not mask their updates."""
    client_privacy: ClientPrivacy | None = None
    """Settings of client-level differential privacy; ``None``: sums have no noise."""
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    """Codes of vectors in messages."""

    def generator(self, server: int) -> np.random.Generator:
        """Return the random generator of a server."""
        return np.random.default_rng((self.seed, server))


@dataclass(frozen=True, slots=True)
class NoParameters:
    """The parameters of an algorithm that has none."""


EPOCH_BITS = 32
MOST_EXAMPLES = 1 << 53  # of a client's evaluation


def first_bid(epoch: int) -> int:
    """Return the number of the first exchange in an epoch; it is higher than all earlier numbers."""
    return (epoch << EPOCH_BITS) + 1


def epoch_of(bid: int) -> int:
    """Return the epoch of an exchange."""
    return bid >> EPOCH_BITS


class Work(enum.Enum):
    """The cost class of a message. The driver knows the time that each class takes."""

    NOTHING = "nothing"
    MIX = "mix"
    AVERAGE = "average"
    __hash__ = object.__hash__  # drivers look up the cost of each message; Enum's own hash is slow


class Server(FilteredClients):
    """A state machine that takes events and returns actions. A subclass is an algorithm.

    Subclasses call :meth:`send_client`, :meth:`send_server`, :meth:`record` and the like in the order of the paper's
    pseudocode. The calls are collected and returned by :meth:`handle`. Class attributes declare what a driver needs to
    know about the algorithm.

    The state consists of all attributes, except those from :class:`Setup` and names that start with an underscore.
    """

    name: ClassVar[str]
    """Name in scenario files and folders; default: the class name in lower case."""
    title: ClassVar[str]
    """Name in tables and figures; default: the class name."""
    section: ClassVar[str]
    """Section of its parameters in a scenario file; default: its name."""
    topology: ClassVar[Topology] = Topology.FLAT
    """The servers that it needs."""
    Parameters: ClassVar[type[Any]] = NoParameters
    """A frozen dataclass whose fields are declared with :func:`spyker.parameters.parameter`."""
    receives: ClassVar[tuple[type[PeerMessage], ...]] = ()
    """Message classes that it accepts from other servers."""
    sends: ClassVar[tuple[type[PeerMessage], ...]] = ()
    """Message classes that it sends to other servers; default: the same as ``receives``."""
    answers: ClassVar[type[ClientMessage]] = Update
    """Message class of its clients' updates."""
    client: ClassVar[type[Client]] = Client
    """Class of its clients."""
    waits_for_all_clients: ClassVar[bool] = False
    """Whether it starts only when all clients are connected."""
    uses_token: ClassVar[bool] = False
    """Whether its servers share a token, which is replaced after it was lost."""
    bootstrap: ClassVar[type[BootstrapState]] = ModelBootstrap
    """Message class of the state that a joining server receives."""
    supports_masking: ClassVar[bool] = False
    """Whether clients can mask their updates; see :mod:`~spyker.protocol.masked_server`."""
    supports_client_privacy: ClassVar[bool] = False
    """Whether it can add noise to sums of updates; see :mod:`~spyker.protocol.noisy_server`."""
    restored: int = 0
    """Number of times the server restored an earlier model because training diverged."""
    GIVEN: ClassVar[frozenset[str]] = frozenset({"id", "rate", "parameters", "suspected"})

    def __init_subclass__(cls) -> None:
        for attribute, default in (("name", cls.__name__.lower()), ("title", cls.__name__)):
            if attribute not in cls.__dict__:
                setattr(cls, attribute, default)
        if "section" not in cls.__dict__:
            cls.section = cls.name
        if "receives" in cls.__dict__ and "sends" not in cls.__dict__:
            cls.sends = cls.receives

    @classmethod
    def create(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """Create server number ``id``, for a driver: with bounds on what its initial clients claim.

        Args:
            id: number of the server.
            setup: settings of the run.
            roster: the initial clients, and the numbers of data points that they claim.

        """
        if setup.masking is not None and id in setup.masking.dedicated:
            from spyker.protocol.masked_server import HelperServer  # which imports this module

            return HelperServer(id, setup, {})
        if setup.client_privacy is not None:
            roster = dict.fromkeys(roster, 1)  # all clients have the same weight
        claims = UpdateFilter(setup.robust, roster)
        server = cls.build(id, setup, {k: claims.sizes.bounded(k) for k in roster} if claims.on else roster)
        server.update_filter.sizes = claims.sizes
        return server

    @classmethod
    def build(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """Create server number ``id``. ``roster`` maps its initial clients to their numbers of data points."""
        return cls(id, setup, roster)

    @classmethod
    def between(cls, sender: int, receiver: int, servers: int) -> tuple[type[PeerMessage], ...]:
        """Return the message classes that ``sender`` may send to ``receiver``."""
        return cls.receives

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        self.id = id
        self.ring: Sequence[int] = tuple(range(setup.servers))  # the servers that have clients
        self.epoch = 0  # incremented when the ring or the token changes
        self.suspected: frozenset[int] = frozenset()  # servers that the failure detector suspects
        self.rate = setup.rate
        self.parameters = setup.parameters
        self.weights = Weights(setup.weights, setup.mix, setup.empty)
        self.age: float = 0.0
        self.version = 0
        self.update_filter = UpdateFilter(setup.robust, roster)
        self._roster, self._client_metrics = roster, setup.client_metrics
        self._array_sizes = Sizes(setup.weights.size, setup.servers, setup.buffers)
        self._coder: ServerCoder | None = None
        if setup.compression.on:
            self._coder = ServerCoder(setup.compression, self._array_sizes, difference=self.client.difference)
        self._metric_names: dict[int, set[str]] = {}  # by client
        self._actions: list[Action] = []
        self._may_lead: Callable[[], bool] = lambda: True  # whether this server holds a majority lease

    @property
    def n(self) -> int:
        """Number of servers that have clients."""
        return len(self.ring)

    @property
    def array_sizes(self) -> Sizes:
        """Numbers that determine the lengths of arrays and tuples in messages."""
        return self._array_sizes._replace(servers=self.n)

    def reconnected(self, client: int) -> None:
        """Note that a client has a new connection, and may be a new process that remembers no message."""
        if self._coder is not None:
            self._coder.reconnected(client)

    def use_lease(self, may_lead: Callable[[], bool]) -> None:
        """Ask ``may_lead`` before the token is used: whether a majority of the servers still grants that."""
        self._may_lead = may_lead

    def start(self) -> Iterator[Action]:
        """Return the first actions: send W⁰ to every client. Called once, before any event."""
        model = self.model(self.rate)
        tasks = (ToClient(k, model) for k in self._roster)
        return iter(self._outgoing(list(tasks))) if self._edits_actions else tasks

    @abstractmethod
    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Process a message. Implemented by the algorithm."""

    def expired(self, timer: str) -> None:
        """Process the expiry of a timer. Implemented by algorithms that start timers."""
        raise NotImplementedError(f"{type(self).__name__}.expired() is missing: timer {timer!r} expired. Implement it")

    def resize(self, k: int, size: int) -> None:
        """Change the number of data points of a client, whose claim is bounded by those of other clients.

        Implemented by algorithms that weight clients also while no update of theirs has arrived.
        """

    def postpones(self, message: ClientMessage) -> bool:
        """Return whether the server would only store the message now, to requeue it later."""
        return False

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Return the cost class of ``message`` in the current state; default: one mix per update."""
        return Work.MIX if isinstance(message, Update) else Work.NOTHING

    def work_of(self, timer: str) -> Work:
        """Return the cost class of a timer's expiry in the current state."""
        return Work.NOTHING

    def handle(self, sender: int, message: ClientMessage | PeerMessage) -> list[Action]:
        """Process a message and return the actions."""
        if self._coder is not None:
            message = self._coder.decode(sender, message, self.weights.current)
        if self.update_filter.on and isinstance(message, ClientMessage) and not self.postpones(message):
            self._filter(sender, message)
        else:
            self.receive(sender, message)
        if type(message) is Update or type(message) is MaskedUpdate:
            if message.metrics is not None:
                metrics = self._known_metrics(sender, message.metrics)
                examples = message.examples if type(message) is Update else None
                self.record(ClientReported(self.id, sender, message.version, examples, metrics))
            if message.evaluation is not None:
                self._record_evaluation(sender, message.evaluation)
        return self._taken()

    def _known_metrics(self, client: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics that are recorded: those under the first names that this client used."""
        known = self._metric_names.setdefault(client, set())
        known.update(name for name in metrics if len(known) < MOST_METRICS)
        return {name: value for name, value in metrics.items() if name in known}

    def _record_evaluation(self, client: int, evaluation: Mapping[str, float]) -> None:
        """Record the known metrics of a client's evaluation that are within their limits.

        An evaluation without the main metric or a number of examples, or of a client in quarantine, is ignored.
        """
        examples, limits = evaluation.get(EXAMPLES, 0.0), self._client_metrics
        given = {name: evaluation.get(name, math.nan) for name in limits}
        scores = {name: value for name, value in given.items() if limits[name][0] <= value <= limits[name][1]}
        if (
            next(iter(limits), None) in scores
            and 1 <= examples < MOST_EXAMPLES
            and client not in self.update_filter.out
        ):
            self.record(ClientEvaluated(self.id, client, int(examples), scores))

    def expire(self, timer: str) -> list[Action]:
        """Process the expiry of a timer and return the actions."""
        if timer.startswith(QUARANTINE):
            self._end_quarantine(int(timer.removeprefix(QUARANTINE)))
        elif timer == HELD:
            self._release(self.update_filter.released(overdue=True))
        else:
            self.expired(timer)
        return self._taken()

    def _taken(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return self._outgoing(actions)

    @property
    def _edits_actions(self) -> bool:
        """Whether actions are not returned to the driver as the algorithm makes them."""
        return self._coder is not None or self.update_filter.on

    def _outgoing(self, actions: list[Action]) -> list[Action]:
        """Code vectors, and tell the filter which models clients train."""
        if not self._edits_actions:
            return actions
        return [self._encoded(action) for action in actions]

    def _encoded(self, action: Action) -> Action:
        if isinstance(action, ToServer) and isinstance(action.message, PeerMessage) and self._coder is not None:
            return ToServer(action.server, self._coder.encode_peer(action.message))
        if not (isinstance(action, ToClient) and isinstance(action.message, Model)):
            return action
        k, model = action.client, action.message
        weights = model.weights
        if self._coder is not None:
            model, weights = self._coder.encode_model(k, model)
        if self.update_filter.on:
            self.update_filter.assigned(k, model.version, model.rate, weights)
        return action if model is action.message else ToClient(k, model)

    # --- Membership changes ------------------------------------------------------------------------------------------

    def reform(self, epoch: int, ring: Sequence[int], *, leads: bool) -> list[Action]:
        """Start epoch ``epoch`` with these servers and return the actions. If it ``leads``, it creates the token."""
        before, self.ring, self.epoch = self.ring, tuple(ring), epoch
        self.reformed(before, leads=leads)
        return self._taken()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Process a new epoch. Tokens of earlier epochs are void."""

    def suspect(self, servers: frozenset[int]) -> list[Action]:
        """Set the servers that the failure detector suspects, and return the actions."""
        self.suspected = servers
        self.sighted()
        return self._taken()

    def sighted(self) -> None:
        """Process a change of the suspected servers. The algorithm no longer waits for them."""

    def complete(self, heard: Iterable[int]) -> bool:
        """Return whether ``heard`` contains all servers that are not suspected."""
        return self.suspected.issuperset(set(self.ring).difference(heard))

    @property
    def handles_nonfinite(self) -> bool:
        """Whether the algorithm accepts updates that are not finite, for example to lower the learning rate.

        Otherwise an emulation excludes their clients, and a deployment rejects the updates.
        """
        return False

    @property
    def has_token(self) -> bool:
        """Whether this server holds the token."""
        return False

    def bootstrap_state(self) -> BootstrapState:
        """Return the state that a joining server starts from."""
        return ModelBootstrap(self.weights.snapshot(), self.age)

    def bootstrap_from(self, bootstrap: Any) -> None:
        """Start from the state that another server sent."""
        self.weights.replace(bootstrap.weights)
        self.age = bootstrap.age

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> ServerState:
        """Return the state from which a new server can continue.

        The call is cheap: vectors are snapshots. A driver calls it between two messages. Requeued messages are not
        part of the state; the driver stores them.
        """
        vectors: dict[str, Any] = {}
        return ServerState({name: pack(getattr(self, name), name, vectors) for name in self._state_names()}, vectors)

    def restore(self, state: ServerState) -> None:
        """Continue from ``state``, in place of ``start()``. The setup must equal that of the saved server."""
        expected, kept = self.weights.snapshot().size, self._state_names()
        if state.numbers.keys() != set(kept):
            unlike = sorted(state.numbers.keys() ^ set(kept))
            raise ValueError(f"the checkpoint was written by another version: it differs in {', '.join(unlike)}")
        saved = Unpacker(state.vectors, self.kinds(), self.array_sizes)
        for name in kept:
            value, current = saved.unpack(state.numbers[name]), getattr(self, name)
            if isinstance(current, Stateful):
                current.restore(value)
            elif not isinstance(current, Weights):
                setattr(self, name, value)
            elif value.size != expected:
                raise ValueError(f"the saved model has {value.size:,} weights, but the task's model has {expected:,}")
            else:
                current.replace(value)

    def _state_names(self) -> list[str]:
        return [name for name in vars(self) if name not in self.GIVEN and not name.startswith("_")]

    @classmethod
    def kinds(cls) -> dict[str, type[Message]]:
        """Return the message classes that the server receives or sends, by kind, whatever the compression is."""
        return with_coded((cls.answers, Join, Leave, *cls.receives, *cls.sends, cls.bootstrap))

    # --- Methods for subclasses --------------------------------------------------------------------------------------

    def model(self, rate: float) -> Model:
        """Return the current model as a task for a client."""
        return Model(self.weights.snapshot(), self.age, self.version, rate)

    def next_server(self) -> int:
        """Return the successor on the ring, skipping suspected servers."""
        return following([j for j in self.ring if j == self.id or j not in self.suspected], self.id)

    def send_client(self, client: int, message: ServerMessage) -> None:
        """Send a message to a client."""
        self._actions.append(ToClient(client, message))

    def send_server(self, server: int, message: PeerMessage) -> None:
        """Send a message to another server."""
        self._actions.append(ToServer(server, message))

    def send_all_servers(self, message: PeerMessage) -> None:
        """Send a message to all other servers that have clients, in ring order."""
        self._actions.extend(ToServer(j, message) for j in self.ring if j != self.id)

    def as_sent(self, message: P) -> P:
        """Return a message to other servers as they will decode it, for what must be the same on all servers."""
        return message if self._coder is None else self._coder.as_sent(message)

    def record(self, fact: Fact) -> None:
        """Write a fact to the run record."""
        self._actions.append(RecordFact(fact))

    def serve_again(self, messages: tuple[tuple[int, ClientMessage], ...]) -> None:
        """Requeue stored client messages ahead of all messages that arrived later."""
        self._actions.append(Requeue(messages))

    def start_timer(self, timer: str, seconds: float) -> None:
        """Call :meth:`expired` after ``seconds``, unless the timer is restarted or stopped."""
        self._actions.append(StartTimer(timer, seconds))

    def stop_timer(self, timer: str) -> None:
        """Cancel a timer."""
        self._actions.append(StopTimer(timer))
