"""What the servers of all algorithms have in common, and what an algorithm says about itself."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from spyker.placement import Topology, following
from spyker.protocol.client import Client
from spyker.protocol.codec import Sizes
from spyker.protocol.facts import ClientReported, Fact
from spyker.protocol.messages import (
    Action,
    BootstrapState,
    ClientMessage,
    Join,
    Leave,
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
from spyker.protocol.state import ServerState, Stateful, Unpacker, pack
from spyker.protocol.weights import Weights
from spyker.robust.update_filter import (
    QUARANTINE,
    FilterParameters,
    UpdateFilter,
    end_quarantine,
    filter_message,
    note_assignments,
)
from spyker.vectors import Mix, Vector, mix


@dataclass(frozen=True, slots=True)
class Setup:
    """What every server is told before it starts. All servers get the same one, in both worlds."""

    servers: int
    """n, the number of servers that have clients."""
    clients: int
    """n_C, the number of clients of all servers together."""
    weights: Vector
    """W⁰: one and the same for all."""
    rate: float
    """η_init, the learning rate of a client that is not slowed down."""
    parameters: Any
    """An instance of the algorithm's own parameter class."""
    seed: int = 0
    """For algorithms that choose at random."""
    mix: Mix = mix
    """How to mix one vector into another, if the driver has a faster way."""
    empty: Callable[[Vector], Vector] = np.empty_like
    """Where a mix finds memory for its result, if the driver has some that was used before."""
    now: Callable[[], float] = float
    """Seconds on a clock that never goes back, for algorithms that measure how long something takes."""
    bounds: FilterParameters | None = None
    """How far a client's answer may go, if there is a limit."""
    buffers: int = 0
    """How many numbers at the end of the weights no gradient moves; see :mod:`~spyker.protocol.buffers`."""

    def generator(self, server: int) -> np.random.Generator:
        """The random numbers of one server."""
        return np.random.default_rng((self.seed, server))


@dataclass(frozen=True, slots=True)
class NoParameters:
    """Of an algorithm that has none."""


EPOCH_BITS = 32


def first_bid(epoch: int) -> int:
    """The number of the first exchange in an epoch: higher than all of those before it."""
    return (epoch << EPOCH_BITS) + 1


def epoch_of(bid: int) -> int:
    """The epoch that an exchange belongs to."""
    return bid >> EPOCH_BITS


class Work(enum.Enum):
    """How heavy it is to handle a message. What each costs in time is the driver's affair."""

    NOTHING = "nothing"
    MIX = "mix"
    AVERAGE = "average"
    __hash__ = object.__hash__  # a driver asks for the cost of each message, and Enum's own is slow


class Server(ABC):
    """A state machine that is told what happened and answers with actions.

    Subclasses write their procedures as the papers do, "send this, then do that": what they send and record is
    collected and becomes the answer of :meth:`handle`. A subclass *is* an algorithm: what a driver must know of it, it
    says in the class attributes below.

    Its state is its attributes, all but those that :class:`Setup` gave and those whose names begin with an underscore.
    """

    name: ClassVar[str]
    """How it is called in scenarios and folders; by default the class's name in lower case."""
    title: ClassVar[str]
    """How it is called in tables and figures; by default the class's name."""
    section: ClassVar[str]
    """The section of a scenario file that holds its parameters; by default its name."""
    topology: ClassVar[Topology] = Topology.FLAT
    """Which servers it wants."""
    Parameters: ClassVar[type[Any]] = NoParameters
    """Its parameters: a frozen dataclass whose fields were made with :func:`spyker.parameters.parameter`."""
    receives: ClassVar[tuple[type[PeerMessage], ...]] = ()
    """What other servers may say to one."""
    sends: ClassVar[tuple[type[PeerMessage], ...]] = ()
    """What one says to other servers; by default what it hears."""
    answers: ClassVar[type[ClientMessage]] = Update
    """What its clients answer with."""
    client: ClassVar[type[Client]] = Client
    """What its clients do."""
    waits_for_all_clients: ClassVar[bool] = False
    """Whether it should not begin before all clients are there."""
    uses_token: ClassVar[bool] = False
    """Whether its servers have a token, which must be made anew if it is lost."""
    bootstrap: ClassVar[type[BootstrapState]] = ModelBootstrap
    """What a server that begins among others is given by one of them."""
    restored: int = 0
    """How often a server has restored an earlier model because training diverged."""
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
    def build(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """Make server number ``id``, which begins with these clients, of so many data points each."""
        return cls(id, setup, roster)

    @classmethod
    def between(cls, sender: int, receiver: int, servers: int) -> tuple[type[PeerMessage], ...]:
        """What one server may say to another, where so many have clients."""
        return cls.receives

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        self.id = id
        self.ring: Sequence[int] = tuple(range(setup.servers))  # the servers that have clients
        self.epoch = 0  # how often these, or their token, have changed
        self.suspected: frozenset[int] = frozenset()  # servers that seem to be out of reach
        self.rate = setup.rate
        self.parameters = setup.parameters
        self.weights = Weights(setup.weights, setup.mix, setup.empty)
        self.age: float = 0.0
        self.version = 0
        self.bounds = UpdateFilter(setup.bounds, roster)
        self._roster = roster
        self._actions: list[Action] = []
        self._may_lead: Callable[[], bool] = lambda: True  # whether a majority of the servers still listens to us

    @property
    def n(self) -> int:
        """How many servers have clients."""
        return len(self.ring)

    def start(self) -> Iterator[Action]:
        """Yield the first actions, once, before anything is handled: W⁰ goes to every client."""
        model = self.model(self.rate)
        if self.bounds.on:
            self._actions += [ToClient(k, model) for k in self._roster]
            return iter(self._taken())
        return (ToClient(k, model) for k in self._roster)

    @abstractmethod
    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """React to a message: change state, send, record."""

    def expired(self, timer: str) -> None:
        """React to a timer that was started and has run out."""
        raise NotImplementedError(f"{type(self).__name__} started the timer {timer!r} and has no expired()")

    def postpones(self, message: ClientMessage) -> bool:
        """Whether it would only store a client's message now, to have it served again."""
        return False

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """How heavy handling ``message`` would be if it were handled now; unless told otherwise, updates are mixed."""
        return Work.MIX if isinstance(message, Update) else Work.NOTHING

    def work_of(self, timer: str) -> Work:
        """How heavy it would be if a timer ran out now."""
        return Work.NOTHING

    def handle(self, sender: int, message: ClientMessage | PeerMessage) -> list[Action]:
        """React to a message and return what is to be done."""
        if self.bounds.on and isinstance(message, ClientMessage) and not self.postpones(message):
            filter_message(self, sender, message)
        else:
            self.receive(sender, message)
        if type(message) is Update and message.metrics is not None:
            report = ClientReported(self.id, sender, message.version, message.examples, dict(message.metrics))
            self.record(report)
        return self._taken()

    def expire(self, timer: str) -> list[Action]:
        """React to a timer and return what is to be done."""
        if timer.startswith(QUARANTINE):
            end_quarantine(self, timer)
        else:
            self.expired(timer)
        return self._taken()

    def _taken(self) -> list[Action]:
        actions, self._actions = self._actions, []
        if self.bounds.on:
            note_assignments(self.bounds, actions)
        return actions

    # --- Servers that come and go ----------------------------------------------------------------------------------

    def reform(self, epoch: int, ring: Sequence[int], *, leads: bool) -> list[Action]:
        """Another epoch begins: these are the servers that have clients now, and one of them makes its token."""
        before, self.ring, self.epoch = self.ring, tuple(ring), epoch
        self.reformed(before, leads=leads)
        return self._taken()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:  # noqa: B027 - nothing, by default
        """React to that. Whatever token there was before is void."""

    def suspect(self, servers: frozenset[int]) -> list[Action]:
        """These servers, and no others, are out of reach for now."""
        self.suspected = servers
        self.sighted()
        return self._taken()

    def sighted(self) -> None:  # noqa: B027 - nothing, by default
        """React to that: nobody need wait for who is out of reach."""

    def complete(self, heard: Iterable[int]) -> bool:
        """Whether all servers that are within reach were heard."""
        return self.suspected.issuperset(set(self.ring).difference(heard))

    @property
    def handles_nonfinite(self) -> bool:
        """Whether it wants clients' answers that are not finite, to react to them: by a lower learning rate, say.

        Otherwise an emulation excludes their clients, and a deployment refuses them.
        """
        return False

    @property
    def has_token(self) -> bool:
        """Whether it is here."""
        return False

    def bootstrap_state(self) -> BootstrapState:
        """What another server needs to begin among us, with a model as good as this one."""
        return ModelBootstrap(self.weights.snapshot(), self.age)

    def bootstrap_from(self, bootstrap: Any) -> None:
        """Begin with what another server gave."""
        self.weights.replace(bootstrap.weights)
        self.age = bootstrap.age

    # --- A restart -------------------------------------------------------------------------------------------------

    def state(self) -> ServerState:
        """What a fresh server must be given to go on from here, as if it were this one.

        It costs next to nothing: vectors are snapshots. A driver takes it between two messages; messages that the
        server asked to be served again are no longer part of it, but the driver's.
        """
        vectors: dict[str, Any] = {}
        return ServerState({name: pack(getattr(self, name), name, vectors) for name in self._state_names()}, vectors)

    def restore(self, state: ServerState) -> None:
        """Go on from ``state``, in place of ``start()``. The setup must be the one that the saved server had."""
        expected, kept = self.weights.snapshot().size, self._state_names()
        if state.numbers.keys() != set(kept):
            unlike = sorted(state.numbers.keys() ^ set(kept))
            raise ValueError(f"the saved state is another version's: it differs in {', '.join(unlike)}")
        saved = Unpacker(state.vectors, self.kinds(), Sizes(expected, self.n))
        for name in kept:
            value, current = saved.unpack(state.numbers[name]), getattr(self, name)
            if isinstance(current, Stateful):
                current.restore(value)
            elif not isinstance(current, Weights):
                setattr(self, name, value)
            elif value.size != expected:
                raise ValueError(f"the saved model has {value.size:,} weights, and this server's has {expected:,}")
            else:
                current.replace(value)

    def _state_names(self) -> list[str]:
        return [name for name in vars(self) if name not in self.GIVEN and not name.startswith("_")]

    @classmethod
    def kinds(cls) -> dict[str, type[Message]]:
        """The messages that one may be told or say to other servers, by the names of their kinds."""
        kinds: tuple[type[Message], ...] = (cls.answers, Join, Leave, *cls.receives, *cls.sends, cls.bootstrap)
        return {kind.kind: kind for kind in kinds}

    # --- What subclasses say ---------------------------------------------------------------------------------------

    def model(self, rate: float) -> Model:
        """The current model, ready to be sent to a client."""
        return Model(self.weights.snapshot(), self.age, self.version, rate)

    def next_server(self) -> int:
        """Who follows on the ring, of those that are within reach."""
        return following([j for j in self.ring if j == self.id or j not in self.suspected], self.id)

    def send_client(self, client: int, message: ServerMessage) -> None:
        """Send to one client."""
        self._actions.append(ToClient(client, message))

    def send_server(self, server: int, message: PeerMessage) -> None:
        """Send to one other server."""
        self._actions.append(ToServer(server, message))

    def send_all_servers(self, message: PeerMessage) -> None:
        """Send to every other server that has clients, in the order of the ring."""
        self._actions.extend(ToServer(j, message) for j in self.ring if j != self.id)

    def record(self, fact: Fact) -> None:
        """State a fact."""
        self._actions.append(RecordFact(fact))

    def serve_again(self, messages: tuple[tuple[int, ClientMessage], ...]) -> None:
        """Have stored client messages served before anything that arrived after them."""
        self._actions.append(Requeue(messages))

    def start_timer(self, timer: str, seconds: float) -> None:
        """Have :meth:`expired` called in so many seconds, unless the timer is started again or stopped."""
        self._actions.append(StartTimer(timer, seconds))

    def stop_timer(self, timer: str) -> None:
        """Let a timer be."""
        self._actions.append(StopTimer(timer))
