"""What a client keeps until its answer is known to have arrived."""

import numpy as np

from spyker.node.pending_update import PendingUpdate
from spyker.protocol.client import Client
from spyker.protocol.messages import Model, Update

MODEL = Model(np.zeros(1, np.float32), 3.0, 7, 0.5)
TRAINED = np.ones(1, np.float32)


def holding(*, trained: bool = False) -> PendingUpdate:
    """Of a client with a task."""
    held = PendingUpdate(Client(4, 0))
    task = held.assigned("here", b"ticket", MODEL)
    if trained:
        held.trained(task, TRAINED, 12, {"loss": 0.5})
    return held


def test_who_comes_first_has_nothing_to_offer() -> None:
    held = PendingUpdate(Client(4, 0))
    assert held.connect("here") is None
    held.welcomed(2, keep=False)
    assert held.offer() is None


def test_an_answer_is_offered_once_for_each_connection() -> None:
    held = holding(trained=True)
    offered = held.offer()
    assert offered is not None
    ticket, answer = offered
    assert isinstance(answer, Update)
    assert (ticket, answer.age, answer.version, answer.examples, answer.metrics) == (
        b"ticket", 3.0, 7, 12, {"loss": 0.5},
    )  # fmt: skip
    assert held.offer() is None
    assert held.connect("here") == b"ticket"
    held.welcomed(0, keep=True)
    assert held.offer() == (ticket, answer)


def test_a_task_at_work_goes_on_over_a_new_connection() -> None:
    held = holding()
    task = held.task
    assert task is not None
    assert held.connect("here") == b"ticket"
    held.welcomed(0, keep=True)
    assert held.offer() is None
    held.trained(task, TRAINED)
    assert held.offer() is not None


def test_what_is_not_wanted_is_dropped() -> None:
    held = holding(trained=True)
    held.connect("here")
    held.welcomed(0, keep=False)
    assert held.offer() is None


def test_another_server_knows_nothing_of_a_task() -> None:
    held = holding(trained=True)
    assert held.connect("elsewhere") is None
    assert held.task is None


def test_the_result_of_a_training_that_nobody_wants_any_more_is_dropped() -> None:
    held = holding()
    old = held.task
    assert old is not None
    held.assigned("here", b"next", MODEL)
    held.trained(old, TRAINED)
    assert held.offer() is None


def test_a_new_task_counts_as_the_next_step() -> None:
    held = holding()
    assert held.assigned("here", b"next", MODEL).order.step == 1
