"""An algorithm whose client 1 fails after its training, and a task whose last evaluation does."""

from collections.abc import Mapping

import numpy as np
from stub_task import Stub

from spyker.algorithms.fedasync import FedAsync
from spyker.protocol.client import Client
from spyker.protocol.messages import Action
from spyker.tasks.task import Task
from spyker.vectors import Vector


class Careless(Client):
    """One that forgets what it was given."""

    def trained(
        self,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> list[Action]:
        if self.id == 1:
            raise ArithmeticError("no difference can be taken")
        return super().trained(weights, examples, metrics, evaluation)


class Fails(FedAsync):
    """FedAsync with such clients."""

    section = "fedasync"
    client = Careless


class Judge(Stub):
    """Judges the first model only."""

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        return weights + np.float32(1)

    def evaluate(self, weights: Vector) -> float:
        if not np.array_equal(weights, self.initial()):
            raise ArithmeticError("this model is beyond judgement")
        return 0.0


def judge(clients: int, seed: int, training: object) -> Task:
    return Judge(8)
