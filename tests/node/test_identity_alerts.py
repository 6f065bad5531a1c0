"""A server of which there are two processes, as another server sees it."""

import pytest
from driven import Driven
from test_membership import begun, greeting, put_back

from spyker.node.control_messages import Heartbeat, LaterIncarnation
from spyker.node.effects import StopProcess, WriteFact
from spyker.node.events import ControlReceived, PeerConnected, PeerHelloReceived
from spyker.node.identity_alerts import ANOTHER_KEY, COPIED_STATE, PAUSE
from spyker.node.rejection import Rejection
from spyker.protocol.facts import ServerDuplicated


def alerts(driven: Driven) -> list[tuple[int, str]]:
    facts = [effect.fact for effect in driven.take() if isinstance(effect, WriteFact)]
    return [(fact.peer, fact.reason) for fact in facts if isinstance(fact, ServerDuplicated)]


def test_an_earlier_process_that_calls_after_a_later_one_is_reported_once_per_minute() -> None:
    driven = begun()
    driven.tell(PeerConnected, 1, greeting(1, incarnation=2), 0, 0.0)
    assert alerts(driven) == []
    for seconds in (0.0, PAUSE - 1.0, 2.0):
        driven.time += seconds
        driven.tell(ControlReceived, 1, Heartbeat(0, driven.time, driven.time, True, None))
        with pytest.raises(Rejection, match="a later process of server 1 has begun"):
            driven.tell(PeerHelloReceived, greeting(1, incarnation=1), b"", b"")
    assert alerts(driven) == [(1, COPIED_STATE), (1, COPIED_STATE)]
    assert driven.node.alerts.servers[1, COPIED_STATE].times == 3


def test_a_server_that_restarts_is_no_second_process() -> None:
    driven = begun()
    for incarnation in (1, 2, 3):
        driven.tell(PeerConnected, 1, greeting(1, incarnation=incarnation, checkpoints=incarnation), 0, 0.0)
        driven.tell(PeerHelloReceived, greeting(1, incarnation=incarnation, checkpoints=incarnation), b"", b"")
    assert alerts(driven) == []


def claim(driven: Driven, time: float, echo: float | None = None) -> None:
    """At this time a process with another key claims to be server 1, and server 1 may have responded before."""
    driven.time = time
    if echo is not None:
        driven.tell(ControlReceived, 1, Heartbeat(0, time, echo, True, None))
    with pytest.raises(Rejection, match="another one than the one known here"):
        driven.tell(PeerHelloReceived, put_back(1), b"", b"")


def test_a_process_with_another_key_is_reported_once_the_server_has_responded_after_its_claim() -> None:
    driven = begun()
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    claim(driven, 1.0, echo=0.9)
    assert alerts(driven) == [], "the server may have been this process before"
    claim(driven, 1.5, echo=1.2)
    assert alerts(driven) == [(1, ANOTHER_KEY)]


def test_a_server_that_lost_its_state_is_no_second_process_although_an_operator_tried_one_long_before() -> None:
    driven = begun()
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    claim(driven, 1.0)
    claim(driven, 1.0 + 2 * PAUSE, echo=2 * PAUSE)
    claim(driven, 1.5 + 2 * PAUSE)
    assert alerts(driven) == []


def test_a_process_that_must_stop_because_of_a_later_one_reports_itself() -> None:
    driven = begun()
    membership = driven.node.membership
    keys = membership.keys
    later = membership.announcement.__class__(
        0, keys.lineage, membership.incarnation.__class__(5, "later"), "", ""
    ).signed(keys)
    driven.tell(PeerConnected, 1, greeting(1), 0, 0.0)
    driven.tell(ControlReceived, 1, LaterIncarnation(later))
    effects = driven.take()
    facts = [effect.fact for effect in effects if isinstance(effect, WriteFact)]
    assert ServerDuplicated(0, 0, COPIED_STATE) in facts
    assert any(isinstance(effect, StopProcess) for effect in effects)
