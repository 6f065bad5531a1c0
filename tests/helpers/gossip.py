"""An algorithm and a task that remember everything: which answers were applied where, and who was told of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Action, ClientMessage, Join, PeerMessage, Update, Whole
from spyker.protocol.server import Server, Setup
from spyker.tasks.task import Task
from spyker.vectors import Vector

FLUSH, SECONDS = "flush", 0.1


def number(client: int, step: int) -> int:
    """An answer's number."""
    return 1000 * client + step


class Numbered(Task):
    """What a client trains says who trained it, and which of its trainings it was."""

    trivial = True

    def initial(self) -> Vector:
        return np.zeros(2, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        return np.array([client, step], np.float32)

    def evaluate(self, weights: Vector) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class Note(PeerMessage):
    """I have applied these answers."""

    answers: tuple[Whole, ...]


class Gossip(Server):
    """Applies answers, and tells all other servers about them every now and then."""

    receives = (Note,)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.applied: list[int] = []
        self.told = 0  # so many of these
        self.heard: dict[int, list[int]] = {j: [] for j in self.ring if j != id}

    def start(self) -> Iterator[Action]:
        yield from super().start()
        self.start_timer(FLUSH, SECONDS)
        actions, self._actions = self._actions, []
        yield from actions

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        match message:
            case Update(weights):
                self.applied.append(number(int(weights[0]), int(weights[1])))
                self.version += 1
                self.record(UpdateApplied(self.id, sender, 0.0, 1.0, self.age, self.version, self.rate))
                self.send_client(sender, self.model(self.rate))
            case Join():
                self.send_client(sender, self.model(self.rate))
            case Note(answers):
                self.heard[sender].extend(answers)

    def expired(self, timer: str) -> None:
        assert timer == FLUSH
        if self.applied[self.told :]:
            self.send_all_servers(Note(tuple(self.applied[self.told :])))
        self.told = len(self.applied)
        self.start_timer(FLUSH, SECONDS)
