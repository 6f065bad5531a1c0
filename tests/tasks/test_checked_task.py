"""What engines make of a task that is somebody else's code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from remembering_task import Remembering

from spyker.engines.engine import EvaluateJob, InProcessEngine, TrainJob
from spyker.errors import TaskError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.task import Task, TrainingResult

START = np.zeros(3, np.float32)


class Saying(Task):
    """A task that returns whatever it was told to return."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def initial(self) -> Any:
        return START.copy()

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Any, rate: float, step: int) -> Any:
        return self.answer() if callable(self.answer) else self.answer

    def evaluate(self, weights: Any) -> float:
        return 1 / float(weights.sum())


def test_plain_weights_are_handed_on_as_they_are() -> None:
    weights = np.ones(3, np.float32)
    assert CheckedTask(Saying(weights)).train(0, START, 0.1, 0) is weights


def test_a_job_holds_what_a_training_left_besides_weights() -> None:
    job = TrainJob(4, START, 0.1, 0)
    assert InProcessEngine(Remembering(0)).trained(job)[0] == np.float32(0.05)
    assert (job.examples, job.metrics) == (14, {"count": 1.0})
    assert isinstance(job.new_state, bytes)
    again = TrainJob(4, START, 0.1, 1, job.new_state)
    assert InProcessEngine(Remembering(0)).trained(again)[0] == np.float32(0.1)
    # The state was a copy: the same training a second time finds what the first one found.
    assert InProcessEngine(Remembering(0)).trained(again)[0] == np.float32(0.1)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, r"None \(NoneType\)\. Return a NumPy array of 3 float32"),
        ([0.0, 0.0, 0.0], "list"),
        (np.zeros(3), "an array of float64"),
        (np.zeros(4, np.float32), r"in the shape \(4,\)"),
        (np.zeros((3, 1), np.float32), r"in the shape \(3, 1\)"),
        (TrainingResult(np.zeros(4, np.float32)), r"in the shape \(4,\)"),
        (TrainingResult(START, examples=0), "examples = 0. Give their number"),
        (TrainingResult(START, examples=2.5), "examples = 2.5"),  # type: ignore[arg-type]
        (TrainingResult(START, metrics={"loss": float("nan")}), "the metric 'loss': nan. Give finite numbers"),
        (TrainingResult(START, metrics={"loss": "low"}), "the metric 'loss': 'low'"),  # type: ignore[dict-item]
        (TrainingResult(START, metrics=0.5), "metrics = 0.5"),  # type: ignore[arg-type]
        (TrainingResult(START, metrics={str(n): 0.5 for n in range(129)}), "Give a dict of up to 128 numbers"),
        (TrainingResult(START, metrics={f"{n:0250}": 0.5 for n in range(20)}), "Use at most 4,096 bytes for all names"),
        (
            TrainingResult(START, state=1),
            r"a state, and train has no parameter for it. Declare train\(…, step, state=None\)",
        ),
    ],
)
def test_a_wrong_answer_is_refused_with_task_client_and_remedy(answer: Any, complaint: str) -> None:
    with pytest.raises(TaskError, match=f"^task Saying, training client 7: (returned )?.*{complaint}"):
        CheckedTask(Saying(answer)).train(7, START, 0.1, 0)


def test_numpys_numbers_are_numbers() -> None:
    answer = CheckedTask(Saying(TrainingResult(START, metrics={"loss": np.float32(0.5)}))).train(7, START, 0.1, 0)  # type: ignore[dict-item]
    assert isinstance(answer, TrainingResult)
    assert answer.metrics == {"loss": 0.5}
    assert type(answer.metrics["loss"]) is float


def test_an_error_of_the_task_has_its_own_traceback_and_the_client() -> None:
    def fall() -> None:
        raise ArithmeticError("cursed")

    with pytest.raises(TaskError) as failure:
        CheckedTask(Saying(fall)).train(7, START, 0.1, 0)
    text = str(failure.value)
    assert text.startswith("task Saying, training client 7:\nTraceback")
    assert text.endswith("ArithmeticError: cursed")
    assert "in fall" in text
    assert "tasks/guard.py" not in text


def test_a_state_that_cannot_be_pickled_is_refused() -> None:
    class Locked(Saying):
        def train(self, client: int, weights: Any, rate: float, step: int, state: Any = None) -> Any:
            return TrainingResult(weights, state=(n for n in range(3)))

    with pytest.raises(TaskError, match=r"pickling the state of client 2:(.|\n)*generator"):
        CheckedTask(Locked(None)).train(2, START, 0.1, 0)


def test_an_evaluation_that_fails_says_so() -> None:
    job = EvaluateJob(START)
    with pytest.raises(TaskError, match=r"task Saying, evaluating a model:(.|\n)*ZeroDivisionError"):
        InProcessEngine(Saying(START)).submit(job, due=0)


def test_a_worker_refuses_the_same_way(fragile: Callable[..., Any]) -> None:
    from spyker.engines.worker_processes import ProcessPoolEngine

    with ProcessPoolEngine(fragile(returns="nothing"), 3, 1) as workers:
        job = TrainJob(7, START, 0.1, 0)
        workers.submit(job, due=0)
        with pytest.raises(TaskError, match="task Fragile, training client 7: returned None"):
            workers.trained(job)
