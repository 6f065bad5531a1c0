"""Numbers of epochs and exchanges, and which view may follow another."""

import msgspec
import pytest

from spyker.node.views import Member, MembershipChange, View, first_view
from spyker.protocol.codec import Sizes, as_json, decode, encode
from spyker.protocol.messages import Token
from spyker.protocol.server import epoch_of, first_bid

FIRST = first_view([0, 1, 2], [0, 1, 2])
LAST = (1 << 31) - 1


@pytest.mark.parametrize("epoch", [0, 1 << 20, 1 << 21, LAST])
def test_the_exchanges_of_every_epoch_have_numbers_that_messages_carry(epoch: int) -> None:
    view = msgspec.json.decode(msgspec.json.encode(View(epoch, FIRST.members, 0)), type=View)
    token = Token(view.epoch, first_bid(view.epoch) + 1000, (0.0, 0.0))
    numbers, arrays = encode(token)
    again = decode(Token, as_json(numbers), arrays, Sizes(1, 2))
    assert isinstance(again, Token)
    assert epoch_of(again.bid) == epoch


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        (FIRST.following(1), True),
        (FIRST.following(2, MembershipChange(0, None)), True),
        (FIRST.following(2, MembershipChange(7, Member("seven"), "a certificate")), True),
        (FIRST.following(7), False),
        (View(1, {**FIRST.members, 7: Member("x"), 8: Member("y")}, 0), False),
        (View(2, FIRST.members, 0), False),
        (View(0, FIRST.members, 0), False),
        (View(1, FIRST.members, 0, ("a", "b")), False),
    ],
)
def test_a_view_differs_from_the_one_before_it_in_one_entry(change: View, follows: bool) -> None:
    assert FIRST.is_followed_by(change) is follows
    if change.revoked:
        assert not change.is_followed_by(View(2, change.members, 0)), "what was revoked stays so"
