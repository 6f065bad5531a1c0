from collections.abc import Callable
from pathlib import Path

import pytest

from spyker.config.scenario import TaskChoice, Training, load
from spyker.engines.engine import Engine, InProcessEngine
from spyker.records import Fact, line
from spyker.sim.simulate import simulate
from spyker.tasks.registry import TaskSpec, resolve, task_spec

FRAGILE = """
import os, signal
import numpy as np
from spyker.tasks.task import Task

class Fragile(Task):
    def __init__(self, raises, dies, returns):
        self.raises, self.dies, self.returns = raises, dies, returns
        self.meet("the making")

    def meet(self, what):
        if what == self.raises:
            raise ArithmeticError(f"{what} is cursed")
        if what == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)

    def initial(self):
        return np.zeros(3, np.float32)

    def size(self, client):
        return 1

    def train(self, client, weights, rate, step):
        self.meet(f"client {client}")
        return None if self.returns else weights + np.float32(client)

    def evaluate(self, weights):
        return float(weights.sum())

def make(clients, seed, training, raises=None, dies=None, returns=None):
    return Fragile(raises, dies, returns)
"""


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TaskSpec]:
    """A task that raises an error, or dies, when it is made or when it trains a certain client."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.chdir(tmp_path)
    return lambda **options: TaskSpec(TaskChoice("fragile:make", options), clients=10, seed=1, training=Training())


class Digits:
    """A short run on digits."""

    def __init__(self) -> None:
        self.scenario = resolve(load(None, {"duration": 1.0}, clients=40))
        self.spec = task_spec(self.scenario)
        self.task = self.spec.make()
        self.parameters = self.task.initial().size
        self.right = self.run(InProcessEngine(self.task))

    def run(self, engine: Engine, mishap: Callable[[], None] | None = None) -> list[str]:
        """The facts as they stand in a record; ``mishap`` happens in the middle."""
        lines: list[str] = []

        def sink(t: float, fact: Fact, queue: int | None) -> None:
            lines.append(line(t, fact, queue))
            if len(lines) == 60 and mishap is not None:
                mishap()

        simulate(self.scenario, self.task, engine, sink)
        assert len(lines) > 150
        return lines


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits()
