"""A task that wants to know how old the models are that it trains is told, wherever it trains."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

import spyker
from spyker.net.training_thread import TrainingThread
from spyker.protocol.facts import ClientReported, UpdateApplied
from spyker.protocol.messages import Train
from spyker.tasks.task import Metric, Task, TrainingResult
from spyker.vectors import Vector


class Ageing(Task):
    """Tells the age of what it was given."""

    metric = Metric("sum")

    def initial(self) -> Vector:
        return np.zeros(3, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int, age: float) -> TrainingResult:
        return TrainingResult(weights + np.float32(1), metrics={"age": age})

    def evaluate(self, weights: Vector) -> float:
        return float(weights.sum())


def make(clients: int, seed: int, training: object) -> Task:
    return Ageing()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_age_is_that_of_the_model(tmp_path: Path, workers: int) -> None:
    settings = {"world.regions": ["Paris"], "world.clients": [3]}
    run = spyker.run(
        algorithm="spyker",
        task=make,
        duration=2,
        settings=settings,
        out=tmp_path / "run",
        workers=workers,
        progress=False,
    )
    facts = [stated.fact for stated in run.record.facts()]
    told = [fact.metrics["age"] for fact in facts if isinstance(fact, ClientReported)]
    applied = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert told == [fact.age - 1 - fact.staleness for fact in applied]  # this algorithm ages by one per update
    assert max(told) > 2


def test_a_deployed_client_is_told_the_age_too() -> None:
    order = Train(np.zeros(3, np.float32), 0.1, 0, 4.5)
    assert asyncio.run(TrainingThread(Ageing()).train(0, order)).metrics == {"age": 4.5}
