"""Who comes, who must stop, and who may act: one host among three, driven by hand."""

from typing import Any

import numpy as np
import pytest
from driven import Driven
from members import announced, handshake, proven
from msgspec.structs import replace

from spyker.algorithms.builtin import ALGORITHMS
from spyker.node.control_messages import Decided, Heartbeat, PeerHandshake, Prepare, succession_statement
from spyker.node.effects import SendControl
from spyker.node.events import CheckpointSaved, ControlReceived, PeerConnected, PeerHelloReceived, Start, TimerFired
from spyker.node.inbox import ASK, HEARTBEAT, NodeOptions
from spyker.node.keys import Keys
from spyker.node.membership import ARRIVAL, Membership
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import Member, MembershipChange, View, first_view
from spyker.protocol.server import Setup
from spyker.sim.sim_keys import SimKeys

FIRST = first_view([0, 1, 2], [0, 1, 2])
KEYS = {0: SimKeys("zero", 0), **{j: SimKeys(f"server {j}", j) for j in (1, 2)}}


def begun(keys: Keys = KEYS[0]) -> Driven:
    """Server 0 of three, which has the token."""
    clock = NodeClock()
    spyker = ALGORITHMS["spyker"]
    setup = Setup(3, 3, np.zeros(2, np.float32), 0.1, spyker.Parameters())
    node = Node(
        0,
        lambda roster: spyker.build(0, setup, roster),
        TaskTokens(b"secret", 1),
        NodeOptions(heartbeat_interval=1.0),
        membership=Membership(0, FIRST, clock, keys=keys, suspect_after=2.0),
        clock=clock,
    )
    driven = Driven(node)
    driven.tell(Start)
    driven.tell(CheckpointSaved)
    return driven


def greeting(server: int, view: View = FIRST, *, lineage: str = "", incarnation: int = 1, **more: Any) -> PeerHandshake:
    return handshake(server, lineage, incarnation, epoch=view.epoch, **more)


def decided(view: View, previous: View = FIRST) -> Decided:
    """All servers have voted for a view."""
    return Decided((proven(previous, view, KEYS),))


def test_who_has_not_heard_of_a_replacement_speaks_of_the_one_before() -> None:
    """Its messages to that one were saved there, and this one is not outdated for not having them."""
    driven = begun()
    node = driven.node
    epoch_1 = FIRST.following(1, MembershipChange(0, Member("zero")))
    driven.tell(ControlReceived, 1, decided(epoch_1))
    driven.tell(PeerHelloReceived, greeting(1, FIRST, acked=4), b"", b"")
    assert not node.received
    assert not node.membership.outdated
    with pytest.raises(Rejection, match="message 4 was saved here, and 0 is the last"):
        driven.tell(PeerHelloReceived, greeting(2, epoch_1, acked=4), b"", b"")


def test_a_process_that_was_replaced_is_told_so_and_stops() -> None:
    """It need not have heard of the list that names another in its place."""
    driven = begun()
    driven.tell(ControlReceived, 1, decided(FIRST.following(1, MembershipChange(2, Member("another")))))
    with pytest.raises(Rejection, match="another one has the place of server 2") as refused:
        driven.tell(PeerHelloReceived, greeting(2), b"", b"")
    before = Membership(2, FIRST, float, keys=KEYS[2])
    before.refused(0, "", refused.value)
    assert "`spyker members replace`" in before.fenced


def test_a_token_of_an_earlier_epoch_is_not_used_before_the_server_hears_of_the_next() -> None:
    """The news waits for its turn behind other messages, and meanwhile leases of the new epoch may come."""
    driven = begun()
    node = driven.node
    server = node.server
    assert server is not None

    def lease(epoch: int) -> None:
        for j in (1, 2):
            driven.tell(ControlReceived, j, Heartbeat(epoch, driven.time, driven.time, True, None))

    lease(0)
    assert server.has_token
    assert node.may_lead(driven.time)
    driven.tell(ControlReceived, 1, decided(FIRST.following(1)))
    driven.tell(CheckpointSaved)
    driven.time = 3.0  # by now nobody has a lease of the first epoch
    lease(1)
    assert node.membership.may_lead()
    assert server.has_token
    assert not node.may_lead(driven.time)
    driven.handle_next()
    assert not server.has_token


def test_a_greeting_that_was_overtaken_is_no_older_state() -> None:
    """A server goes on saving while its greeting is on the way, and tells so on a connection that is already there."""
    driven = begun()
    node = driven.node
    early, later = greeting(1), replace(greeting(1), checkpoints=3)
    driven.tell(PeerConnected, 1, later, 0, 0.0)
    driven.tell(ControlReceived, 1, Heartbeat(0, 1.0, None, True, None, checkpoints=5))
    driven.tell(PeerHelloReceived, early, b"", b"")
    assert not node.received
    assert not node.membership.outdated


def test_a_greeting_that_was_overtaken_is_no_older_state_after_a_restart_either() -> None:
    """Whom a server has met is in its checkpoints, as is what that one had saved."""
    driven = begun()
    node = driven.node
    driven.tell(PeerConnected, 1, replace(greeting(1), checkpoints=5), 0, 0.0)
    again = Membership(0, FIRST, float, keys=KEYS[0])
    again.restore(node.membership.numbers())
    again.authenticate(replace(greeting(1), checkpoints=3))
    with pytest.raises(Rejection, match="older state"):
        again.authenticate(greeting(1, checkpoints=3, incarnation=2))


def test_another_process_with_an_older_state_is_recognised_also_if_others_have_met_it_before() -> None:
    driven = begun()
    driven.tell(PeerConnected, 1, replace(greeting(1), checkpoints=3), 0, 0.0)
    later = announced(KEYS[1], 1, 2)
    driven.tell(ControlReceived, 2, Heartbeat(0, 1.0, None, True, None, announcements=(later,)))
    with pytest.raises(Rejection, match="an older state"):
        driven.tell(PeerHelloReceived, greeting(1, incarnation=2), b"", b"")


def put_back(server: int, lineage: str = "anew") -> PeerHandshake:
    """A state that was older than others know of has begun anew."""
    former = KEYS[server]
    succession = former.sign(succession_statement(former.federation, server, lineage))
    return greeting(server, lineage=lineage, new=True, former=former.lineage, succession=succession)


def test_a_state_that_was_put_back_is_let_in_when_its_process_before_is_silent() -> None:
    driven = begun()
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    driven.time = 1.0
    with pytest.raises(Rejection, match="another one than the one known here"):
        driven.tell(PeerHelloReceived, put_back(1), b"", b"")
    driven.time = 3.0
    driven.tell(TimerFired, HEARTBEAT)
    with pytest.raises(Rejection, match="voting on server 1"):
        driven.tell(PeerHelloReceived, put_back(1), b"", b"")


def test_a_copy_is_not_let_in_when_the_original_is_silent_for_a_while() -> None:
    """The original was there after the copy had come, so the copy is not what became of it."""
    driven = begun()
    node = driven.node
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    for at, echo in ((1.0, None), (2.0, 1.5), (9.0, None)):
        driven.time = at
        if echo is not None:
            driven.tell(ControlReceived, 1, Heartbeat(0, at, echo, True, None))
        driven.tell(TimerFired, HEARTBEAT)
        with pytest.raises(Rejection, match="another one than the one known here"):
            driven.tell(PeerHelloReceived, put_back(1), b"", b"")
    assert 1 in node.membership.suspected
    with pytest.raises(Rejection, match="voting on server 1"):  # its state was put back since
        driven.tell(PeerHelloReceived, put_back(1, "another"), b"", b"")


@pytest.mark.parametrize("silent", [False, True])
def test_nobody_votes_for_another_one_in_the_place_of_a_server_that_it_hears(silent: bool) -> None:
    driven = begun()
    node = driven.node
    driven.tell(PeerConnected, 2, greeting(2), 0, 0.0)
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    driven.time = 3.0
    driven.tell(ControlReceived, 2, Heartbeat(0, 3.0, 3.0, True, None))
    if not silent:
        driven.tell(ControlReceived, 1, Heartbeat(0, 3.0, 3.0, True, None))
    driven.tell(TimerFired, HEARTBEAT)
    view = FIRST.following(2, MembershipChange(1, Member("anew")))
    driven.tell(ControlReceived, 2, Prepare(0, (1 << 16) + 2, view, ARRIVAL))
    assert node.membership.paxos.grants is not silent
    driven.tell(
        ControlReceived, 2, Prepare(0, (2 << 16) + 2, FIRST.following(2, MembershipChange(0, Member("anew"))), ARRIVAL)
    )
    assert node.membership.paxos.grants is not silent, "its own place least of all"


def test_nobody_votes_for_a_copy_whose_original_has_responded_after_its_claim() -> None:
    """The other server may have met the copy only while the original was silent, and proposes it."""
    driven = begun()
    node = driven.node
    driven.tell(PeerConnected, 2, greeting(2), 0, 0.0)
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    driven.time = 1.0
    with pytest.raises(Rejection, match="another one than the one known here"):
        driven.tell(PeerHelloReceived, put_back(1), b"", b"")
    driven.time = 2.0
    driven.tell(ControlReceived, 1, Heartbeat(0, 2.0, 1.5, True, None))
    driven.time = 9.0
    driven.tell(ControlReceived, 2, Heartbeat(0, 9.0, 9.0, True, None))
    driven.tell(TimerFired, HEARTBEAT)
    assert node.membership.suspected == {1}
    copy, successor = (FIRST.following(2, MembershipChange(1, Member(lineage))) for lineage in ("anew", "another"))
    driven.tell(ControlReceived, 2, Prepare(0, (1 << 16) + 2, copy, ARRIVAL))
    assert node.membership.paxos.grants
    driven.tell(ControlReceived, 2, Prepare(0, (2 << 16) + 2, successor, ARRIVAL))
    assert not node.membership.paxos.grants


def test_who_is_new_asks_the_nearest_for_a_model_and_then_the_next() -> None:
    clock = NodeClock(10.0)
    listed = FIRST.following(1, MembershipChange(0, Member("zero")))
    membership = Membership(0, listed, clock, keys=KEYS[0], suspect_after=2.0)
    node = Node(
        0,
        lambda roster: pytest.fail("it has no model yet"),
        TaskTokens(b"secret", 1),
        NodeOptions(heartbeat_interval=1.0),
        membership=membership,
        clock=clock,
    )
    driven = Driven(node, 10.0)
    node._awaits_bootstrap = True
    driven.tell(Start)
    driven.tell(PeerConnected, 1, greeting(1, listed), 0, 9.7)
    driven.tell(PeerConnected, 2, greeting(2, listed), 0, 9.9)
    driven.take()
    asked = []
    for _ in range(6):
        driven.tell(TimerFired, ASK)
        asked += [effect.peer for effect in driven.take() if isinstance(effect, SendControl)]
    assert asked == [2] * 5 + [1]
