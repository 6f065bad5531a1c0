"""Workers that train in the memory that they share with this process compute what this process computes."""

import os
import signal
from typing import Any

import numpy as np
import pytest

from spyker.config.scenario import Evaluation, TaskChoice, Training, load
from spyker.engines.engine import Engine, EvaluateJob, InProcessEngine, Job, TrainJob
from spyker.engines.pool import DEPTH
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.records import Fact, line
from spyker.sim.simulate import simulate
from spyker.tasks import torch_training
from spyker.tasks.registry import TaskSpec, resolve, task_spec

CLIENTS = 6


@pytest.fixture(params=[True, False], ids=["large", "small"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(torch_training, "LARGE", torch_training.LARGE)  # the task sets it
    return bool(request.param)


def spec_of(large: bool) -> TaskSpec:
    choice = TaskChoice("renorming_task:Renorming", {"large": large})
    return TaskSpec(choice, CLIENTS, 1, Training(), Evaluation(by="both"))


def jobs_of(start: Any) -> list[TrainJob]:
    return [TrainJob(k, start, 5.0, step, evaluate=True) for step in range(3) for k in range(CLIENTS)]


def test_results_stay_as_they_are_while_workers_load_other_data_and_train_on(large: bool) -> None:
    """All results are kept, more than shared memory holds."""
    spec = spec_of(large)
    task = spec.make()
    here, start = InProcessEngine(task), task.initial()
    expected = [(here.trained(job), job.evaluation) for job in jobs_of(start)]
    with ProcessPoolEngine(spec, start.size, 2) as workers:
        jobs = jobs_of(start)
        assert len(jobs) > 3 * 2 * DEPTH
        for i, job in enumerate(jobs):
            workers.submit(job, due=i)
        found = [(workers.trained(job), job.evaluation) for job in jobs]
        scored = [EvaluateJob(weights) for weights, _ in found]
        for evaluation in scored:
            workers.submit(evaluation, due=100)
        scores = [workers.score(evaluation) for evaluation in scored]
    assert scores == [task.evaluate(weights) for weights, _ in expected]
    for (weights, evaluation), (right, right_evaluation) in zip(found, expected, strict=True):
        assert np.array_equal(weights, right), "also after the engine was closed"
        assert evaluation == right_evaluation


def test_a_model_that_writes_to_its_parameters_changes_no_model_that_is_evaluated(large: bool) -> None:
    spec = spec_of(large)
    task = spec.make()
    start = task.initial()
    with ProcessPoolEngine(spec, start.size, 1) as workers:
        memory = workers.memory()
        assert memory is not None
        np.copyto(memory, 4 * start)
        for _ in range(2):
            job = EvaluateJob(memory)
            workers.submit(job, due=0)
            assert workers.score(job) == task.evaluate(4 * start)
            assert np.array_equal(memory, 4 * start)


class Killing(ProcessPoolEngine):
    """It kills a worker that has just begun a training, once."""

    KILLED = 8

    trainings = 0

    def submit(self, job: Job, due: float) -> None:
        super().submit(job, due)
        self.trainings += isinstance(job, TrainJob)
        if isinstance(job, TrainJob) and self.trainings == self.KILLED:
            busy = next(worker for worker in self.workers if any(order.job is job for order in worker.in_flight))
            assert busy.process.pid is not None
            os.kill(busy.process.pid, signal.SIGKILL)


@pytest.mark.parametrize("large", [True], indirect=True)
@pytest.mark.parametrize("algorithm", ["stride", "fedavg"])
def test_runs_do_not_depend_on_the_number_of_workers_nor_on_a_killed_one(large: bool, algorithm: str) -> None:
    settings = {
        "duration": 1.5,
        "world.regions": ["Paris", "Sydney"],
        "algorithm": algorithm,
        "evaluation.interval": 0.25,
        "evaluation.by": "both",
        "task.large": large,
    }
    scenario = resolve(load(None, settings, task="renorming_task:Renorming", clients=CLIENTS))
    spec = task_spec(scenario)
    task = spec.make()

    def facts(engine: Engine) -> list[str]:
        lines: list[str] = []

        def sink(t: float, fact: Fact, queue: int | None) -> None:
            lines.append(line(t, fact, queue))

        models: list[bytes] = []

        def on_end(t: float, model_of: Any) -> None:
            models.extend(model_of(i).tobytes() for i in scenario.placement().learners)

        with engine:
            simulate(scenario, task, engine, sink, on_end=on_end)
        assert len(lines) > 35
        return [*lines, *map(repr, models)]

    size = task.initial().size
    right = facts(InProcessEngine(task))
    assert facts(ProcessPoolEngine(spec, size, 1)) == right
    engine = Killing(spec, size, 3)
    assert facts(engine) == right
    assert engine.trainings > Killing.KILLED
