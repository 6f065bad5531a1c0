import os
import signal

import numpy as np
import pytest

from spyker.config.scenario import TaskChoice, Training
from spyker.learn.digits import Options
from spyker.learn.engine import EvaluateJob, Here, TrainJob
from spyker.learn.registry import Recipe
from spyker.learn.workers import WorkerDiedError, Workers

RECIPE = Recipe(TaskChoice("digits", Options()), clients=10, seed=1, training=Training())


def test_workers_compute_what_this_process_computes() -> None:
    task = RECIPE.make()
    here = Here(task)
    start = task.initial()
    jobs = [TrainJob(k % 10, start, 0.1, step) for step in range(3) for k in range(10)]
    with Workers(RECIPE, start.size, 2) as workers:
        for i, job in enumerate(jobs):
            workers.submit(job, due=-i)  # the other way round: order must not matter
        score = EvaluateJob(start)
        workers.submit(score, due=0)
        for job in jobs:
            assert np.array_equal(workers.trained(job), here.trained(job))
        assert workers.score(score) == task.evaluate(start)


def test_a_killed_worker_ends_the_run_with_a_clear_error() -> None:
    start = RECIPE.make().initial()
    with Workers(RECIPE, start.size, 1) as workers:
        jobs = [TrainJob(0, start, 0.1, step) for step in range(100)]
        for job in jobs:
            workers.submit(job, due=0)
        workers.trained(jobs[0])
        pid = workers._workers[0].process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"worker 0 .*exit code -9.*fewer --workers"):
            workers.trained(jobs[-1])


def test_cancelled_jobs_do_not_delay_the_next_run() -> None:
    start = RECIPE.make().initial()
    with Workers(RECIPE, start.size, 1) as workers:
        for step in range(10_000):
            workers._waiting.append((0.0, step, TrainJob(0, start, 0.1, step)))
        workers.cancel()
        job = TrainJob(1, start, 0.1, 0)
        workers.submit(job, due=1.0)
        assert workers.trained(job).size == start.size
        assert not workers._waiting
