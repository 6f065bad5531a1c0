"""What the servers of all algorithms have in common."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spyker.protocol.facts import Fact
from spyker.protocol.messages import (
    Action,
    ClientMessage,
    Model,
    PeerMessage,
    Record,
    ServeAgain,
    ToClient,
    ToServer,
)
from spyker.protocol.weights import Weights
from spyker.vectors import Mix, Vector, mix


@dataclass(frozen=True, slots=True)
class Setup:
    """What every server is told before it starts. All servers of a deployment get the same one."""

    rosters: tuple[Mapping[int, int], ...]
    """For each server, its clients and the number of data points each has."""
    weights: Vector
    """W⁰: one and the same for all."""
    rate: float
    """η_init, the learning rate of a client that is not slowed down."""
    parameters: Any
    """An instance of the algorithm's own parameter class."""
    seed: int = 0
    """For algorithms that choose at random."""
    mix: Mix = mix
    """How to mix one vector into another, if the host has a faster way."""
    empty: Callable[[Vector], Vector] = np.empty_like
    """Where a mix finds memory for its result, if the host has some that was used before."""

    @property
    def servers(self) -> int:
        """n, the number of servers that have clients."""
        return len(self.rosters)

    @property
    def clients(self) -> int:
        """n_C, the number of clients of all servers together."""
        return sum(len(roster) for roster in self.rosters)

    def generator(self, server: int) -> np.random.Generator:
        """The random numbers of one server."""
        return np.random.default_rng((self.seed, server))


class Work(enum.Enum):
    """How heavy it is to handle a message. What each costs in time is the host's affair."""

    NOTHING = "nothing"
    MIX = "mix"
    AVERAGE = "average"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Everything that a server knows at one moment and was not told by its :class:`Setup`."""

    numbers: dict[str, Any]
    """What JSON can hold. Python writes and reads floats in it without loss."""
    vectors: dict[str, Vector]
    """Float32 vectors that nobody writes to afterwards."""


class Server(ABC):
    """A state machine that is told what happened and answers with actions.

    Subclasses write their procedures as the papers do, "send this, then do that": what they send and record is
    collected and becomes the answer of :meth:`handle`.
    """

    def __init__(self, id: int, setup: Setup) -> None:
        self.id = id
        self.n = setup.servers
        self.rate = setup.rate
        self.weights = Weights(setup.weights, setup.mix, setup.empty)
        self.age: float = 0.0
        self.version = 0
        self._actions: list[Action] = []

    @abstractmethod
    def start(self) -> Iterator[Action]:
        """Yield the first actions, once, before anything is handled."""

    @abstractmethod
    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """React to a message: change state, send, record."""

    @abstractmethod
    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """How heavy handling ``message`` would be if it were handled now."""

    def handle(self, sender: int, message: ClientMessage | PeerMessage) -> list[Action]:
        """React to a message and return what is to be done."""
        self.receive(sender, message)
        actions, self._actions = self._actions, []
        return actions

    def state(self) -> State:
        """What a fresh server must be given to go on from here, as if it were this one.

        It costs next to nothing: vectors are snapshots. A host takes it between two messages; messages that the
        server asked to be served again have been served by then, for they are no longer part of it.
        """
        return State({"age": self.age, "version": self.version}, {"weights": self.weights.snapshot()})

    def restore(self, state: State) -> None:
        """Go on from ``state``, in place of ``start()``. The setup must be the one that the saved server had."""
        weights, expected = state.vectors["weights"], self.weights.snapshot().size
        if weights.size != expected:
            raise ValueError(f"the saved model has {weights.size:,} weights, and this server's has {expected:,}")
        self.weights.replace(weights)
        self.age, self.version = state.numbers["age"], state.numbers["version"]

    def model(self, rate: float) -> Model:
        """The current model, ready to be sent to a client."""
        return Model(self.weights.snapshot(), self.age, self.version, rate)

    def send_client(self, client: int, message: Model) -> None:
        """Send to one client."""
        self._actions.append(ToClient(client, message))

    def send_server(self, server: int, message: PeerMessage) -> None:
        """Send to one other server."""
        self._actions.append(ToServer(server, message))

    def send_all_servers(self, message: PeerMessage) -> None:
        """Send to every other server that has clients, in the order of ids."""
        self._actions.extend(ToServer(j, message) for j in range(self.n) if j != self.id)

    def record(self, fact: Fact) -> None:
        """State a fact."""
        self._actions.append(Record(fact))

    def serve_again(self, messages: tuple[tuple[int, ClientMessage], ...]) -> None:
        """Have stored client messages served before anything that arrived after them."""
        self._actions.append(ServeAgain(messages))
