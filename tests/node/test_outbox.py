"""Messages between servers: each once, in order, and not before it is saved."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from spyker.algorithms.spyker import Spyker
from spyker.node.outbox import Outbox
from spyker.node.rejection import Rejection
from spyker.protocol.codec import Sizes
from spyker.protocol.messages import Age, Count, PeerMessage, PeerModel, Token
from spyker.protocol.state import Unpacker


@dataclass(frozen=True, slots=True)
class Counted(PeerMessage):
    """One of many, each of which matters."""

    number: Count


def filled(count: int) -> Outbox:
    """An outbox with messages that may be sent."""
    box = Outbox()
    for number in range(1, count + 1):
        box.post(Counted(number))
    box.commit(box.last)
    return box


def everything(box: Outbox, after: int = 0) -> list[int]:
    """What may be sent after a message."""
    numbers = []
    while (posted := box.next(after)) is not None:
        after = posted.sequence
        numbers.append(after)
    return numbers


def test_nothing_is_sent_before_it_is_saved_and_nothing_forgotten_before_it_is_acknowledged() -> None:
    box = Outbox()
    box.post(Token(0, 1, (0.0, 0.0)))
    assert box.next(0) is None
    assert box.commit(box.last)
    assert not box.commit(box.last), "that is no news"
    posted = box.next(0)
    assert posted is not None
    assert box.next(posted.sequence) is None
    assert box.next(0) is posted, "it may have to be sent again, if the connection broke"
    box.acknowledge(posted.sequence)
    assert not box.entries


def test_what_was_posted_after_a_checkpoint_waits_for_the_next() -> None:
    box = filled(2)
    box.post(Age(1.0))
    assert everything(box) == [1, 2]
    box.commit(3)
    assert everything(box, 2) == [3]


def test_an_announcement_that_was_never_sent_gives_way_to_a_newer_one() -> None:
    box = Outbox()
    for age in range(1000):
        box.post(Age(float(age)))
    [posted] = box.entries
    assert posted.message == Age(999.0)


def test_whoever_stays_away_finds_the_latest_age_model_and_token_and_no_more() -> None:
    box = Outbox()
    for bid in range(1, 100):
        box.post(Age(float(bid)))
        box.post(Token(0, bid, (0.0,)))
        box.post(PeerModel(np.full(2, bid, np.float32), 1.0, bid))
        box.commit(box.last)
    assert [posted.sequence for posted in box.entries] == [295, 296, 297]
    assert [type(posted.message) for posted in box.entries] == [Age, Token, PeerModel]


@pytest.mark.parametrize(("received", "whose"), [(2, "its state is an older one"), (6, "of this server is an older")])
def test_a_rollback_is_noticed_and_changes_nothing(received: int, whose: str) -> None:
    box = filled(5)
    box.acknowledge(3)
    with pytest.raises(Rejection, match=whose):
        box.check_received(1, received)
    assert everything(box) == [4, 5]


@pytest.mark.parametrize("received", [3, 4, 5])
def test_a_peer_that_has_what_it_saved_or_more_is_told_the_rest(received: int) -> None:
    box = filled(5)
    box.acknowledge(3)
    box.check_received(1, received)
    assert everything(box, received) == list(range(received + 1, 6))


def test_an_outbox_survives_a_checkpoint() -> None:
    box, vectors = Outbox(), {}
    for bid in range(1, 4):
        box.post(PeerModel(np.full(2, bid, np.float32), 1.0, bid))
    box.acknowledge(2)
    box.post(Token(0, 4, (1.0, 2.0)))
    numbers = json.loads(json.dumps(box.numbers("outbox-1", vectors)))
    again = Outbox()
    again.restore(numbers, Unpacker(vectors, Spyker.kinds(), Sizes(2, 2)))
    assert (again.acked, again.last, again.committed) == (2, 4, 4)
    model, token = (posted.message for posted in again.entries)
    assert isinstance(model, PeerModel)
    assert model.weights.tolist() == [3.0, 3.0]
    assert token == Token(0, 4, (1.0, 2.0))
    again.check_received(1, 2)
    assert everything(again, 2) == [3, 4]


def test_a_token_is_on_its_way_until_the_receiver_has_saved_it() -> None:
    box = Outbox()
    box.post(PeerModel(np.zeros(2, np.float32), 1.0, 1))
    assert not box.has_token
    box.post(Token(0, 2, (1.0, 1.0)))
    box.commit(box.last)
    assert box.has_token
    box.acknowledge(1)
    assert box.has_token
    box.acknowledge(2)
    assert not box.has_token
