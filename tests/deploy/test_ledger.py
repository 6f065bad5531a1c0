"""Who was given what, and what may come back: over several lives of a server."""

import pytest
from spyker.deploy.peers import Outbox, from_wire, to_wire
from spyker.deploy.tasks import Ledger

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.frames import Refusal
from spyker.protocol.messages import Age, Token

SECRET = b"s" * 32


def restarted(ledger: Ledger, life: int) -> Ledger:
    """The ledger that the next life restores from this one's checkpoint."""
    fresh = Ledger(SECRET, life)
    fresh.restore(ledger.numbers())
    return fresh


def refusal(ledger: Ledger, ticket: pb.Ticket, client: int = 0) -> str | None:
    try:
        ledger.check(client, ticket)
    except Refusal as refused:
        return refused.reason
    return None


def test_numbers_rise_over_all_lives() -> None:
    first = Ledger(SECRET, 1)
    numbers = [first.give(0, 0.0, 0).number for _ in range(3)]
    second = restarted(first, 2)
    numbers += [second.give(0, 0.0, 0).number for _ in range(3)]
    assert numbers == sorted(set(numbers))


def test_a_task_of_an_earlier_life_that_the_checkpoint_does_not_know_is_taken_once() -> None:
    first = Ledger(SECRET, 1)
    saved = restarted(first, 2)  # the checkpoint was taken before the task was given
    ticket = first.give(0, 1.0, 1)
    assert refusal(saved, ticket) is None
    saved.take(0, ticket)
    assert refusal(saved, ticket) == "replayed"


def test_a_task_of_an_earlier_life_gives_way_to_one_of_this_life() -> None:
    first = Ledger(SECRET, 1)
    saved = restarted(first, 2)
    ticket = first.give(0, 1.0, 1)
    saved.give(0, 0.0, 0)
    assert refusal(saved, ticket) == "superseded"


def test_an_answer_that_was_taken_and_not_handled_is_offered_again_after_a_crash() -> None:
    first = Ledger(SECRET, 1)
    ticket = first.give(0, 1.0, 1)
    first.take(0, ticket)
    assert refusal(restarted(first, 2), ticket) is None
    first.entry(0).applied = ticket.number
    assert refusal(restarted(first, 2), ticket) == "replayed"


def test_the_secret_of_another_server_is_worth_nothing() -> None:
    ticket = Ledger(b"t" * 32, 1).give(0, 1.0, 1)
    assert refusal(Ledger(SECRET, 1), ticket) == "unknown-task"


@pytest.mark.parametrize("field", ["number", "age", "version"])
def test_a_ticket_cannot_be_changed(field: str) -> None:
    ledger = Ledger(SECRET, 1)
    ticket = ledger.give(0, 1.0, 1)
    setattr(ticket, field, getattr(ticket, field) + 1)
    assert refusal(ledger, ticket) == "unknown-task"


def test_nothing_is_sent_before_it_is_saved_and_nothing_forgotten_before_it_is_acknowledged() -> None:
    box = Outbox()
    box.post(Token(0, 1, (0.0, 0.0)))
    assert box.next() is None
    box.commit(box.last)
    posted = box.next()
    assert posted is not None
    box.sent = posted.sequence
    assert box.next() is None
    assert box.entries, "it may have to be sent again"
    box.sent = 0  # the connection broke, and the other side has nothing
    assert box.next() is posted
    box.acknowledge(posted.sequence)
    assert not box.entries


def test_an_announcement_that_was_never_sent_gives_way_to_a_newer_one() -> None:
    box = Outbox()
    for age in range(1000):
        box.post(Age(float(age)))
    [posted] = box.entries
    assert from_wire(pb.Frame.FromString(posted.body).peer, None) == Age(999.0)


def test_an_announcement_that_may_have_been_sent_stays() -> None:
    box = Outbox()
    box.post(Age(1.0))
    box.commit(box.last)
    box.sent = box.last
    box.post(Age(2.0))
    assert [posted.sequence for posted in box.entries] == [1, 2]


@pytest.mark.parametrize("message", [Age(0.0), Age(1.5), Token(2, 3, (0.0, 1.5)), Token(0, 0, ())])
def test_messages_without_weights_survive_the_wire(message: Age | Token) -> None:
    body, vector = to_wire(7, message)
    assert vector is None
    peer = pb.Frame.FromString(body).peer
    assert peer.sequence == 7
    assert from_wire(peer, None) == message
