"""Who comes, who must stop, and who may act: one host among three, driven by hand."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from spyker.algorithms.builtin import ALGORITHMS
from spyker.node.control_messages import Decided, Heartbeat, PeerHandshake, Prepare, ProcessIncarnation
from spyker.node.effects import SendControl
from spyker.node.inbox import ASK, NodeOptions
from spyker.node.membership import ARRIVAL, Membership
from spyker.node.node import Node
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import Member, MembershipChange, View, first_view
from spyker.protocol.server import Setup

FIRST = first_view([0, 1, 2], [0, 1, 2])


def begun(now: Callable[[], float] = float) -> Node:
    """Server 0 of three, which has the token."""
    spyker = ALGORITHMS["spyker"]
    setup = Setup(3, 3, np.zeros(2, np.float32), 0.1, spyker.Parameters())
    node = Node(
        0,
        lambda roster: spyker.build(0, setup, roster),
        TaskTokens(b"secret", 1),
        NodeOptions(beat=1.0),
        membership=Membership(0, FIRST, now, lineage="zero", suspect_after=2.0),
    )
    node.begin()
    node.take_effects()
    node.saved()
    return node


def greeting(server: int, view: View = FIRST, *, lineage: str = "", acked: int = 0) -> PeerHandshake:
    return PeerHandshake(server, lineage or f"server {server}", ProcessIncarnation(1), 1, view, acked=acked)


def test_who_has_not_heard_of_a_replacement_speaks_of_the_one_before() -> None:
    """Its messages to that one were saved there, and this one is not outdated for not having them."""
    node = begun()
    epoch_1 = FIRST.following(1, MembershipChange(0, Member("zero")))
    node.receive_control(1, Decided(epoch_1))
    assert node.admit_peer(greeting(1, FIRST, acked=4), b"", b"") == 0
    assert not node.membership.outdated
    with pytest.raises(Rejection, match="message 4 was saved here, and 0 is the last"):
        node.admit_peer(greeting(2, epoch_1, acked=4), b"", b"")


def test_a_process_that_was_replaced_is_told_so_and_stops() -> None:
    """It need not have heard of the list that names another in its place."""
    node = begun()
    node.receive_control(1, Decided(FIRST.following(1, MembershipChange(2, Member("another")))))
    with pytest.raises(Rejection, match="another one has the place of server 2") as refused:
        node.admit_peer(greeting(2, lineage="the one before"), b"", b"")
    before = Membership(2, FIRST, float, lineage="the one before")
    before.refused(refused.value)
    assert "`spyker members replace`" in before.fenced


def test_a_token_of_an_earlier_epoch_is_not_used_before_the_server_hears_of_the_next() -> None:
    """The news waits for its turn behind other messages, and meanwhile leases of the new epoch may come."""
    time = [0.0]
    node = begun(lambda: time[0])
    server = node.server
    assert server is not None

    def lease(epoch: int) -> None:
        for j in (1, 2):
            node.receive_control(j, Heartbeat(epoch, time[0], time[0], True, None))

    lease(0)
    assert server.has_token
    assert server._may_lead()
    node.receive_control(1, Decided(replace(FIRST.following(1), leader=1)))
    time[0] = 3.0  # by now nobody has a lease of the first epoch
    lease(1)
    assert node.membership.may_lead()
    assert server.has_token
    assert not server._may_lead()
    node.finish(node.compute())
    assert not server.has_token


def test_a_greeting_that_was_overtaken_is_no_older_state() -> None:
    """A server goes on saving while its greeting is on the way, and tells so on a connection that is already there."""
    node = begun()
    early, later = greeting(1), replace(greeting(1), saves=3)
    node.peer_connected(1, later, 0, 0.0)
    node.receive_control(1, Heartbeat(0, 1.0, None, True, None, saves=5))
    assert node.admit_peer(early, b"", b"") == 0
    assert not node.membership.outdated


def test_a_greeting_that_was_overtaken_is_no_older_state_after_a_restart_either() -> None:
    """Whom a server has met is in its checkpoints, as is what that one had saved."""
    node = begun()
    node.peer_connected(1, replace(greeting(1), saves=5), 0, 0.0)
    again = Membership(0, FIRST, float, lineage="zero")
    again.restore(node.membership.numbers())
    again.authenticate(replace(greeting(1), saves=3))
    with pytest.raises(Rejection, match="older state"):
        again.authenticate(replace(greeting(1), saves=3, life=ProcessIncarnation(2)))


def test_another_process_with_an_older_state_is_recognised_also_if_others_have_met_it_before() -> None:
    node = begun()
    node.peer_connected(1, replace(greeting(1), saves=3), 0, 0.0)
    later = ProcessIncarnation(2)
    node.receive_control(2, Heartbeat(0, 1.0, None, True, None, lives={1: ("server 1", later)}))
    with pytest.raises(Rejection, match="an older state"):
        node.admit_peer(replace(greeting(1), life=later), b"", b"")


def put_back(server: int) -> PeerHandshake:
    """A state that was older than others know of has begun anew."""
    return replace(greeting(server, lineage="anew"), view=None, former=f"server {server}")


def test_a_state_that_was_put_back_is_let_in_when_its_process_before_is_silent() -> None:
    time = [0.0]
    node = begun(lambda: time[0])
    node.peer_connected(1, greeting(1), 0, 0.0)
    time[0] = 1.0
    with pytest.raises(Rejection, match="another one than the one known here"):
        node.admit_peer(put_back(1), b"", b"")
    time[0] = 3.0
    node.membership.update_suspects()
    with pytest.raises(Rejection, match="voting on server 1"):
        node.admit_peer(put_back(1), b"", b"")


def test_a_copy_is_not_let_in_when_the_original_is_silent_for_a_while() -> None:
    """The original was there after the copy had come, so the copy is not what became of it."""
    time = [0.0]
    node = begun(lambda: time[0])
    node.peer_connected(1, greeting(1), 0, 0.0)
    for at, echo in ((1.0, None), (2.0, 1.5), (9.0, None)):
        time[0] = at
        if echo is not None:
            node.receive_control(1, Heartbeat(0, at, echo, True, None))
        node.membership.update_suspects()
        with pytest.raises(Rejection, match="another one than the one known here"):
            node.admit_peer(put_back(1), b"", b"")
    assert 1 in node.membership.suspected
    with pytest.raises(Rejection, match="voting on server 1"):  # its state was put back since
        node.admit_peer(replace(put_back(1), lineage="another"), b"", b"")


@pytest.mark.parametrize("silent", [False, True])
def test_nobody_votes_for_another_one_in_the_place_of_a_server_that_it_hears(silent: bool) -> None:
    time = [0.0]
    node = begun(lambda: time[0])
    node.peer_connected(2, greeting(2), 0, 0.0)
    node.peer_connected(1, greeting(1), 0, 0.0)
    time[0] = 3.0
    node.receive_control(2, Heartbeat(0, 3.0, 3.0, True, None))
    if not silent:
        node.receive_control(1, Heartbeat(0, 3.0, 3.0, True, None))
    node.membership.update_suspects()
    view = FIRST.following(2, MembershipChange(1, Member("anew")))
    node.receive_control(2, Prepare(0, (1 << 16) + 2, view, ARRIVAL))
    assert node.membership.paxos.grants is not silent
    node.receive_control(2, Prepare(0, (2 << 16) + 2, FIRST.following(2, MembershipChange(0, Member("anew"))), ARRIVAL))
    assert node.membership.paxos.grants is not silent, "its own place least of all"


def test_who_is_new_asks_the_nearest_for_a_model_and_then_the_next() -> None:
    time = [10.0]
    listed = FIRST.following(1, MembershipChange(0, Member("zero")))
    membership = Membership(0, listed, lambda: time[0], lineage="zero", suspect_after=2.0)
    node = Node(
        0,
        lambda roster: pytest.fail("it has no model yet"),
        TaskTokens(b"secret", 1),
        NodeOptions(beat=1.0),
        membership=membership,
    )
    node._awaits_bootstrap = True
    node.begin()
    node.peer_connected(1, greeting(1, listed), 0, 9.7)
    node.peer_connected(2, greeting(2, listed), 0, 9.9)
    node.take_effects()
    asked = []
    for _ in range(6):
        node.expire(ASK)
        asked += [effect.peer for effect in node.take_effects() if isinstance(effect, SendControl)]
    assert asked == [2] * 5 + [1]
