"""What a client keeps until its server's checkpoint holds it."""

import numpy as np

from spyker.node.pending_updates import MOST_UNSAVED, PendingUpdates, most_unsaved
from spyker.protocol.client import Client
from spyker.protocol.messages import Model, Update

MODEL = Model(np.zeros(1, np.float32), 3.0, 7, 0.5)
TRAINED = np.ones(1, np.float32)


def holding(*, trained: bool = False) -> PendingUpdates:
    """Of a client with a task."""
    held = PendingUpdates(Client(4, 0))
    held.connect("here")
    task = held.assigned("here", 1, b"ticket", MODEL)
    if trained:
        held.trained(task, TRAINED, 12, {"loss": 0.5})
    return held


def answer(held: PendingUpdates, number: int, *, saved: int = 0) -> bytes | None:
    """Be given a task, train it, and return the token of the update that is sent, if any."""
    held.trained(held.assigned("here", number, b"%d" % number, MODEL, saved), TRAINED)
    offered = held.offer()
    return None if offered is None else offered[0]


def after_crash(held: PendingUpdates, *, received: int = 0) -> list[bytes]:
    """Reconnect to a server that asks for updates as long as there are any, and return their tokens."""
    held.connect("here")
    held.welcomed(0, keep=True, received=received, ask=True)
    sent = []
    while (offered := held.offer()) is not None:
        sent.append(offered[0])
        held.told(0, ask=True)
    return sent


def test_who_comes_first_has_nothing_to_offer() -> None:
    held = PendingUpdates(Client(4, 0))
    assert held.connect("here") == []
    held.welcomed(2, keep=False)
    assert held.offer() is None


def test_an_answer_is_offered_once_for_each_connection() -> None:
    held = holding(trained=True)
    offered = held.offer()
    assert offered is not None
    ticket, update = offered
    assert isinstance(update, Update)
    assert (ticket, update.age, update.version, update.examples, update.metrics) == (
        b"ticket", 3.0, 7, 12, {"loss": 0.5},
    )  # fmt: skip
    assert held.offer() is None
    assert held.connect("here") == [b"ticket"]
    held.welcomed(0, keep=True, ask=True)
    assert held.offer() == (ticket, update)


def test_a_task_at_work_goes_on_over_a_new_connection() -> None:
    held = holding()
    task = held.task
    assert task is not None
    assert held.connect("here") == [b"ticket"]
    held.welcomed(0, keep=True, ask=True)
    assert held.offer() is None
    held.trained(task, TRAINED)
    assert held.offer() is not None


def test_updates_are_kept_until_they_are_saved() -> None:
    held = PendingUpdates(Client(4, 0))
    held.connect("here")
    assert [answer(held, number) for number in (1, 2, 3)] == [b"1", b"2", b"3"]
    assert after_crash(held) == [b"1", b"2", b"3"], "the server that crashed has saved none of them"
    held.told(2)
    assert after_crash(held) == [b"3"]
    assert answer(held, 4, saved=3) == b"4"
    assert held.connect("here") == [b"4"]


def test_what_the_server_has_is_not_sent_again_and_still_kept() -> None:
    held = PendingUpdates(Client(4, 0))
    held.connect("here")
    for number in (1, 2, 3):
        answer(held, number)
    assert after_crash(held, received=2) == [b"3"], "only the connection was lost"
    assert after_crash(held) == [b"1", b"2", b"3"], "now the server has crashed"


def test_an_update_waits_until_the_server_asks() -> None:
    held = holding(trained=True)
    held.connect("here")
    held.welcomed(0, keep=True)
    assert held.offer() is None
    held.told(0, ask=True)
    assert held.offer() is not None


def test_a_client_with_too_many_unsaved_updates_waits_for_a_checkpoint() -> None:
    held = PendingUpdates(Client(4, 0))
    held.connect("here")
    sent = [answer(held, number) for number in range(1, MOST_UNSAVED + 2)]
    assert sent == [b"%d" % number for number in range(1, MOST_UNSAVED + 1)] + [None]
    held.told(1)
    offered = held.offer()
    assert offered is not None
    assert offered[0] == b"%d" % (MOST_UNSAVED + 1)


def test_large_updates_are_few() -> None:
    assert [most_unsaved(parameters) for parameters in (1, 22_000, 1_200_000, 25_000_000)] == [64, 64, 13, 2]


def test_what_is_not_wanted_is_dropped() -> None:
    held = holding(trained=True)
    held.connect("here")
    held.welcomed(0, keep=False, ask=True)
    assert held.offer() is None


def test_what_was_rejected_is_dropped_and_nothing_else() -> None:
    held = PendingUpdates(Client(4, 0))
    held.connect("here")
    for number in (1, 2):
        answer(held, number)
    held.rejected()
    assert after_crash(held) == [b"1"]


def test_another_server_is_not_offered_an_update_which_is_kept_for_the_return() -> None:
    held = holding(trained=True)
    assert held.connect("elsewhere") == []
    assert held.elsewhere == {"here"}
    held.welcomed(1, keep=False, ask=True)
    assert held.offer() is None
    held.trained(held.assigned("elsewhere", 5, b"other", MODEL), TRAINED)
    assert after_crash(held) == [b"ticket"]
    assert held.elsewhere == {"elsewhere"}


def test_nobody_returns_to_a_server_that_was_left_and_not_lost() -> None:
    held = holding(trained=True)
    held.offer()
    held.leave()
    held.connect("elsewhere")
    assert not held.elsewhere
    assert after_crash(held) == [b"ticket"]


def test_another_server_ends_a_training() -> None:
    held = holding()
    assert held.connect("elsewhere") == []
    assert not held.tasks


def test_what_is_kept_for_other_servers_is_bounded() -> None:
    held = PendingUpdates(Client(4, 0))
    for place in range(3):
        held.connect(place)
        for number in range(MOST_UNSAVED):
            held.trained(held.assigned(place, number + 1, b"", MODEL), TRAINED)
            held.offer()
    assert len(held.tasks) <= 2 * MOST_UNSAVED


def test_the_result_of_a_training_that_nobody_wants_any_more_is_dropped() -> None:
    held = holding()
    old = held.task
    assert old is not None
    held.assigned("here", 2, b"next", MODEL)
    held.trained(old, TRAINED)
    assert held.offer() is None


def test_a_new_task_counts_as_the_next_step() -> None:
    order = holding().assigned("here", 2, b"next", MODEL).order
    assert order is not None
    assert order.step == 1


def test_under_client_level_privacy_no_update_is_sent_twice() -> None:
    held = PendingUpdates(Client(4, 0), resends=False)
    held.connect("here")
    assert [answer(held, number) for number in (1, 2)] == [b"1", b"2"]
    held.assigned("here", 3, b"3", MODEL)
    task = held.task
    assert task is not None
    assert held.connect("here") == [b"3"], "its update was not sent yet"
    held.welcomed(0, keep=True, ask=True)
    held.trained(task, TRAINED)
    assert held.offer() is not None
    assert held.connect("here") == []
    assert held.connect("there") == []
