"""Who was given what, and what may come back: over several lives of a server."""

import pytest

from spyker.node.rejection import Rejection
from spyker.node.task_tokens import CONTENT, MOST_RESENT, TaskTokens

SECRET = b"s" * 32


def restarted(task_tokens: TaskTokens, life: int) -> TaskTokens:
    """The ledger that the next life restores from this one's checkpoint."""
    fresh = TaskTokens(SECRET, life)
    fresh.restore(task_tokens.numbers())
    return fresh


def rejection(task_tokens: TaskTokens, ticket: bytes, client: int = 0) -> str | None:
    try:
        task_tokens.verify(client, ticket)
    except Rejection as refused:
        return refused.reason
    return None


def test_numbers_rise_over_all_lives() -> None:
    first = TaskTokens(SECRET, 1)
    tickets = [(first, first.issue(0, 0.0, 0)) for _ in range(3)]
    second = restarted(first, 2)
    tickets += [(second, second.issue(0, 0.0, 0)) for _ in range(3)]
    numbers = [CONTENT.unpack(ticket[: CONTENT.size])[0] for _, ticket in tickets]
    assert numbers == sorted(set(numbers))


def test_a_ticket_says_what_was_given() -> None:
    task_tokens = TaskTokens(SECRET, 1)
    read = task_tokens.verify(0, task_tokens.issue(0, 1.5, 7))
    assert (read.age, read.version) == (1.5, 7)


def test_a_task_of_an_earlier_life_that_the_checkpoint_does_not_know_is_taken_once() -> None:
    first = TaskTokens(SECRET, 1)
    saved = restarted(first, 2)  # the checkpoint was taken before the task was given
    ticket = first.issue(0, 1.0, 1)
    saved.redeem(0, saved.verify(0, ticket).number)
    assert rejection(saved, ticket) == "replayed"


def test_a_task_of_an_earlier_life_gives_way_to_one_of_this_life() -> None:
    first = TaskTokens(SECRET, 1)
    saved = restarted(first, 2)
    ticket = first.issue(0, 1.0, 1)
    saved.issue(0, 0.0, 0)
    assert rejection(saved, ticket) == "superseded"


def test_an_answer_that_was_taken_and_not_handled_is_offered_again_after_a_crash() -> None:
    first = TaskTokens(SECRET, 1)
    ticket = first.issue(0, 1.0, 1)
    number = first.verify(0, ticket).number
    first.redeem(0, number)
    assert rejection(restarted(first, 2), ticket) is None
    first.entry(0).applied = number
    assert rejection(restarted(first, 2), ticket) == "replayed"


def test_of_two_that_arrive_at_once_one_is_taken() -> None:
    task_tokens = TaskTokens(SECRET, 1)
    ticket = task_tokens.issue(0, 1.0, 1)
    numbers = [task_tokens.verify(0, ticket).number for _ in range(2)]  # both passed before either has arrived in full
    task_tokens.redeem(0, numbers[0])
    with pytest.raises(Rejection, match="replayed"):
        task_tokens.redeem(0, numbers[1])


def test_the_ticket_of_another_server_or_client_is_worth_nothing() -> None:
    task_tokens = TaskTokens(SECRET, 1)
    assert rejection(task_tokens, TaskTokens(b"t" * 32, 1).issue(0, 1.0, 1)) == "unknown-task"
    assert rejection(task_tokens, task_tokens.issue(1, 1.0, 1), client=0) == "unknown-task"


@pytest.mark.parametrize("position", range(0, CONTENT.size + 32, 5))
def test_a_ticket_cannot_be_changed(position: int) -> None:
    task_tokens = TaskTokens(SECRET, 1)
    ticket = bytearray(task_tokens.issue(0, 1.0, 1))
    ticket[position] ^= 1
    assert rejection(task_tokens, bytes(ticket)) == "unknown-task"


@pytest.mark.parametrize("ticket", [b"", b"\0" * 10, b"\0" * CONTENT.size, b"\0" * 1000])
def test_what_is_no_ticket_is_refused(ticket: bytes) -> None:
    assert rejection(TaskTokens(SECRET, 1), ticket) == "unknown-task"


@pytest.mark.parametrize("forgotten", [2, 5])
def test_a_client_that_answers_a_life_which_a_restored_disk_knows_nothing_of_gets_tasks_it_can_answer(
    forgotten: int,
) -> None:
    first = TaskTokens(SECRET, 1)
    first.issue(0, 0.0, 0)
    lost = restarted(first, forgotten)
    tickets = [lost.issue(0, 0.0, 0) for _ in range(4)]
    restored = restarted(first, 2)
    restored.redeem(0, restored.verify(0, tickets[-1]).number)
    assert rejection(restored, restored.issue(0, 0.0, 0)) is None
    again = restarted(restored, 3)
    assert rejection(again, again.issue(0, 0.0, 0)) is None


def test_updates_that_a_crash_lost_are_asked_for_in_their_order_in_place_of_tasks() -> None:
    first = TaskTokens(SECRET, 1)
    tickets = []
    for _ in range(3):
        tickets.append(first.issue(0, 0.0, 0))
        number = first.verify(0, tickets[-1]).number
        first.redeem(0, number)
        first.handled(0, number)
        if len(tickets) == 1:
            saved = restarted(first, 2)
    assert saved.hold(0, reversed(tickets)) == (True, None)
    for ticket in tickets[1:]:
        assert saved.ask(0)
        saved.redeem(0, saved.verify(0, ticket).number)
    assert not saved.ask(0)
    assert [rejection(saved, ticket) for ticket in tickets] == ["replayed"] * 3
    assert rejection(saved, saved.issue(0, 0.0, 0)) is None


def test_an_update_counts_as_saved_once_a_checkpoint_holds_it() -> None:
    task_tokens = TaskTokens(SECRET, 1)
    tickets = [task_tokens.issue(0, 0.0, 0) for _ in range(2)]
    numbers = [CONTENT.unpack(ticket[: CONTENT.size])[0] for ticket in tickets]
    assert task_tokens.handled(0, numbers[0]) == 1
    task_tokens.begin_checkpoint()
    assert task_tokens.handled(0, numbers[1]) == 2
    assert task_tokens.entry(0).saved == 0
    assert task_tokens.checkpoint_saved() == {0: 2}
    entry = task_tokens.entry(0)
    assert (entry.saved, entry.unsaved) == (numbers[0], 1)


def test_tokens_of_another_server_are_not_held() -> None:
    keep, refused = TaskTokens(SECRET, 1).hold(0, [TaskTokens(b"t" * 32, 1).issue(0, 1.0, 1)])
    assert not keep
    assert refused is not None
    assert refused.reason == "unknown-task"


def test_updates_for_tasks_of_earlier_processes_are_sent_again_and_those_of_this_process_are_not() -> None:
    first = TaskTokens(SECRET, 1)
    second = restarted(first, 2)
    number = first.verify(0, first.issue(0, 1.0, 1)).number
    assert second.is_resent(0, number)
    assert not second.is_resent(0, second.verify(0, second.issue(0, 1.0, 1)).number)


def test_a_client_that_collects_tokens_sends_no_more_updates_again_than_an_honest_one_keeps() -> None:
    first = TaskTokens(SECRET, 1)
    numbers = [CONTENT.unpack(first.issue(0, 1.0, 1)[: CONTENT.size])[0] for _ in range(MOST_RESENT + 5)]
    second = restarted(first, 2)
    assert [second.is_resent(0, number) for number in numbers] == [True] * MOST_RESENT + [False] * 5
