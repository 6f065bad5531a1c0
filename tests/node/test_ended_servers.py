"""Nobody waits for a server whose address refuses connections. Votes and leases do not depend on that."""

from driven import Driven
from members import handshake
from test_membership import KEYS, begun

from spyker.node.control_messages import Heartbeat
from spyker.node.effects import WriteFact
from spyker.node.events import ControlReceived, PeerConnected, PeerPortClosed, TimerFired
from spyker.node.inbox import HEARTBEAT
from spyker.protocol.facts import Fact, PeerSuspected, PeerTrusted


def facts(driven: Driven) -> list[Fact]:
    told = [effect.fact for effect in driven.take() if isinstance(effect, WriteFact)]
    return [fact for fact in told if isinstance(fact, PeerSuspected | PeerTrusted)]


def met() -> Driven:
    """Server 0, which both others have answered, and which holds the leases of both."""
    driven = begun()
    driven.time = 100.0
    for j in (1, 2):
        driven.tell(PeerConnected, j, handshake(j, KEYS[j].lineage), 0, 100.0)
    driven.take()
    driven.time = 101.0
    return driven


def test_a_server_that_has_ended_is_not_waited_for_from_then_on() -> None:
    driven = met()
    driven.tell(PeerPortClosed, 2, 101.0)
    assert facts(driven) == [PeerSuspected(0, 2)]
    driven.tell(PeerPortClosed, 2, 101.0)
    assert facts(driven) == []


def test_a_refused_connection_counts_neither_for_votes_nor_against_leases() -> None:
    driven = met()
    membership = driven.node.membership
    leads = membership.may_lead()
    driven.tell(PeerPortClosed, 2, 101.0)
    driven.tell(PeerPortClosed, 1, 101.0)
    driven.tell(TimerFired, HEARTBEAT)
    assert leads
    assert membership.may_lead()
    assert membership.suspected == frozenset()


def test_a_server_that_was_never_there_may_be_about_to_start() -> None:
    driven = begun()
    driven.take()
    driven.tell(PeerPortClosed, 2, 101.0)
    assert facts(driven) == []


def test_a_server_that_is_back_is_waited_for_again() -> None:
    driven = met()
    driven.tell(PeerPortClosed, 1, 101.0)
    driven.tell(PeerPortClosed, 2, 101.0)
    driven.take()
    driven.time = 102.0
    driven.tell(PeerConnected, 1, handshake(1, KEYS[1].lineage), 0, 101.5)
    driven.tell(ControlReceived, 2, Heartbeat(0, 5.0, 101.5, True, None))
    assert facts(driven) == [PeerTrusted(0, 1), PeerTrusted(0, 2)]


def test_a_heartbeat_from_before_its_end_does_not_bring_a_server_back() -> None:
    driven = met()
    driven.tell(PeerPortClosed, 2, 101.0)
    driven.tell(ControlReceived, 2, Heartbeat(0, 5.0, 100.5, True, None))
    assert facts(driven) == [PeerSuspected(0, 2)]


def test_an_attempt_from_before_a_servers_last_response_says_nothing() -> None:
    """The server may have begun to listen since the attempt."""
    driven = met()
    driven.tell(PeerPortClosed, 2, 99.0)
    assert facts(driven) == []
