"""A server does not wait for a client whose connection was lost and which another server has seen since."""

from driven import Driven
from members import handshake
from test_membership import KEYS, begun

from spyker.algorithms.spyker import Spyker
from spyker.node.control_messages import ClientSighting, Heartbeat
from spyker.node.events import ClientConnected, ClientDisconnected, ControlReceived, PeerConnected, TimerFired
from spyker.node.inbox import AWAY
from spyker.protocol.messages import StopTimer

CLIENT, LOST = 4, 100.0


def server_that_lost_a_client() -> Driven:
    driven = begun()
    driven.tell(PeerConnected, 1, handshake(1, KEYS[1].lineage), 0, 0.0)
    driven.tell(ClientConnected, CLIENT, "session", 10)
    handle_all(driven)
    assert waits(driven)
    driven.time = LOST
    driven.tell(ClientDisconnected, CLIENT, "session")
    return driven


def handle_all(driven: Driven) -> None:
    while driven.node.ready:
        driven.handle_next()
    driven.take()


def waits(driven: Driven) -> bool:
    """Whether the server expects updates of the client."""
    assert isinstance(driven.node.server, Spyker)
    return CLIENT in driven.node.server.updates


def hear(driven: Driven, seen: float, echo: float) -> None:
    """Server 1 says, in answer to a heartbeat that was sent at ``echo``, how long ago it saw the client."""
    driven.time = echo + 0.1
    driven.tell(ControlReceived, 1, Heartbeat(0, 7.0, echo, True, None, clients=(ClientSighting(CLIENT, 50.0, seen),)))


def test_a_client_that_another_server_has_seen_since_is_not_waited_for() -> None:
    driven = server_that_lost_a_client()
    hear(driven, seen=1.0, echo=LOST + 2.0)
    assert StopTimer(f"{AWAY}{CLIENT}") in driven.effects
    handle_all(driven)
    assert not waits(driven)


def test_a_client_that_was_seen_elsewhere_before_is_waited_for() -> None:
    """The clocks of the two servers may differ in speed."""
    driven = server_that_lost_a_client()
    hear(driven, seen=1.9, echo=LOST + 2.0)
    handle_all(driven)
    assert waits(driven)


def test_a_client_that_is_back_is_waited_for() -> None:
    driven = server_that_lost_a_client()
    driven.tell(ClientConnected, CLIENT, "again", 10)
    handle_all(driven)
    hear(driven, seen=0.5, echo=LOST + 2.0)
    handle_all(driven)
    assert waits(driven)


def test_a_client_departs_once() -> None:
    driven = server_that_lost_a_client()
    driven.tell(TimerFired, f"{AWAY}{CLIENT}")
    handle_all(driven)
    assert not waits(driven)
    hear(driven, seen=0.5, echo=LOST + 2.0)
    assert not driven.node.ready
