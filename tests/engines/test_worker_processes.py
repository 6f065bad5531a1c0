import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spyker.config.scenario import TaskChoice, Training, from_table
from spyker.engines.engine import Engine, EvaluateJob, InProcessEngine, TrainJob
from spyker.engines.pool import MAX_LOSSES, QueuedJob
from spyker.engines.start_engine import start_engine
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.errors import TaskError, WorkerCrashedError
from spyker.records import line
from spyker.sim.simulate import simulate
from spyker.tasks.built_in.digits import Options
from spyker.tasks.registry import TaskSpec, resolve

RECIPE = TaskSpec(TaskChoice("digits", Options()), clients=10, seed=1, training=Training())


def kill(workers: ProcessPoolEngine, number: int) -> None:
    pid = workers.workers[number].process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_workers_compute_what_this_process_computes() -> None:
    task = RECIPE.make()
    here = InProcessEngine(task)
    start_engine = task.initial()
    jobs = [TrainJob(k % 10, start_engine, 0.1, step) for step in range(3) for k in range(10)]
    with ProcessPoolEngine(RECIPE, start_engine.size, 2) as workers:
        for i, job in enumerate(jobs):
            workers.submit(job, due=-i)  # the other way round: order must not matter
        score = EvaluateJob(start_engine)
        workers.submit(score, due=0)
        for job in jobs:
            assert np.array_equal(workers.trained(job), here.trained(job))
        assert workers.score(score) == task.evaluate(start_engine)


def test_a_task_may_load_its_data_in_processes_of_its_own() -> None:
    start_engine = np.zeros(3, np.float32)
    job = TrainJob(0, start_engine, 0.1, 0)
    spec = TaskSpec(TaskChoice("loading_task:make"), clients=1, seed=1, training=Training())
    with ProcessPoolEngine(spec, start_engine.size, 1) as workers:
        workers.submit(job, 0.0)
        assert workers.trained(job).tolist() == [4, 4, 4]


def test_a_worker_killed_in_mid_run_is_replaced_and_changes_no_byte(
    digits: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = ProcessPoolEngine(digits.spec, digits.parameters, 2)
    with workers:
        first = workers.workers[0].process
        assert digits.run(workers, mishap=lambda: kill(workers, 0)) == digits.right
        assert first.exitcode == -signal.SIGKILL
        assert workers.workers[0].process.is_alive()
    warning = capfd.readouterr().err
    assert "training worker 0 was killed (exit code -9; if the machine ran out of memory" in warning
    assert warning.count("\n") == 1


def test_as_many_deaths_as_you_like_if_jobs_are_finished_in_between(fragile: Callable[..., TaskSpec]) -> None:
    start_engine = np.zeros(3, np.float32)
    with ProcessPoolEngine(fragile(), start_engine.size, 1) as workers:
        assert isinstance(workers, ProcessPoolEngine)
        for step in range(MAX_LOSSES + 1):
            job = TrainJob(step, start_engine, 0.1, step)
            workers.submit(job, due=step)
            assert np.array_equal(workers.trained(job), np.full(3, step, np.float32))
            kill(workers, 0)


def test_a_task_that_cannot_be_made_ends_the_run_at_once(
    fragile: Callable[..., TaskSpec], capfd: pytest.CaptureFixture[str]
) -> None:
    with ProcessPoolEngine(fragile(raises="the making"), 3, 2) as workers:
        job = TrainJob(0, np.zeros(3, np.float32), 0.1, 0)
        workers.submit(job, due=0)
        with pytest.raises(TaskError, match=r"^task fragile:make, creating it:\n(.|\n)*Error: the making is cursed$"):
            workers.trained(job)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("dies", ["the making", "client 4"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_that_dies_again_and_again_ends_the_run(
    fragile: Callable[..., TaskSpec], capfd: pytest.CaptureFixture[str], dies: str, count: int
) -> None:
    jobs = [TrainJob(k, np.zeros(3, np.float32), 0.1, 0) for k in range(10)]

    def work(workers: Engine) -> None:
        for job in jobs:
            workers.submit(job, due=job.client)
        for job in jobs:
            workers.trained(job)

    with (
        ProcessPoolEngine(fragile(dies=dies), 3, count) as workers,
        pytest.raises(WorkerCrashedError, match=r"was killed \(exit code -9.*fewer --workers.*3 times"),
    ):
        work(workers)
    assert capfd.readouterr().err.count("a new worker replaces it") in range(MAX_LOSSES - 1, count * MAX_LOSSES)


def test_a_training_that_fails_ends_the_run_with_its_own_error(
    fragile: Callable[..., TaskSpec], capfd: pytest.CaptureFixture[str]
) -> None:
    with ProcessPoolEngine(fragile(raises="client 7"), 3, 2) as workers:
        job = TrainJob(7, np.zeros(3, np.float32), 0.1, 0)
        workers.submit(job, due=0)
        with pytest.raises(TaskError) as failure:
            workers.trained(job)
    assert capfd.readouterr().err == ""
    text = str(failure.value)
    assert text.startswith("task Fragile, training client 7:\nTraceback")
    assert 'fragile.py", line ' in text
    assert text.endswith("ArithmeticError: client 7 is cursed")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("ballast", [0, 1 << 20])
def test_a_clients_state_comes_back_whoever_trains_it(count: int, ballast: int) -> None:
    """With a megabyte each, too, which no pipe holds: neither side may wait for the other."""
    scenario = resolve(
        from_table(
            {
                "duration": 1.0,
                "task": {"name": "remembering_task:make", "ballast": ballast},
                "world": {"regions": ["Paris"], "clients": [7]},
            }
        )
    )
    task, here = start_engine(scenario, workers=0)

    def facts(engine: Engine) -> list[str]:
        lines: list[str] = []
        with engine:
            simulate(scenario, task, engine, lambda t, fact, queue: lines.append(line(t, fact, queue)))
        return lines

    right = facts(here)
    assert sum('"client": 3' in text for text in right) > 3
    assert facts(start_engine(scenario, workers=count)[1]) == right


def test_cancelled_jobs_do_not_delay_the_next_run() -> None:
    start_engine = RECIPE.make().initial()
    with ProcessPoolEngine(RECIPE, start_engine.size, 1) as workers:
        assert isinstance(workers, ProcessPoolEngine)
        for step in range(10_000):
            workers._waiting.append(QueuedJob(0.0, step, TrainJob(0, start_engine, 0.1, step)))
        workers.cancel()
        job = TrainJob(1, start_engine, 0.1, 0)
        workers.submit(job, due=1.0)
        assert workers.trained(job).size == start_engine.size
        assert not workers._waiting
