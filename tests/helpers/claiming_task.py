"""The quadratic task, whose first client claims as many examples as a server accepts."""

from spyker.config.scenario import Training
from spyker.tasks.built_in.quadratic import Options, Quadratic
from spyker.tasks.task import Task


class Claiming(Quadratic):
    """Client 0 lies about its size."""

    def size(self, client: int) -> int:
        return 1 << 31 if client == 0 else 10


def make(clients: int, seed: int, training: Training) -> Task:
    """The task."""
    return Claiming(Options(dimension=32), clients, seed, training)
