"""Which server cannot save, and what it and the others make of it; one server among three, driven by hand."""

from driven import Driven
from test_membership import begun

from spyker.node.control_messages import Heartbeat, Prepare
from spyker.node.effects import SendControl, WriteFact
from spyker.node.events import CheckpointFailed, CheckpointRequested, CheckpointSaved, ControlReceived, TimerFired
from spyker.node.inbox import HEARTBEAT, RETRY
from spyker.node.save_monitor import SLOW, SaveMonitor
from spyker.protocol.facts import PeerSuspected, PeerTrusted, SavingFailed, SavingResumed


class Timed:
    """A monitor and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.monitor = SaveMonitor(lambda: self.now, suspect_after=2.0)

    def write(self, seconds: float, *, saved: bool = True) -> None:
        self.monitor.began()
        self.now += seconds
        if saved:
            self.monitor.saved()
        else:
            self.monitor.failed()


def test_failed_attempts_count_from_the_first_one_on() -> None:
    timed = Timed()
    for _ in range(4):
        timed.write(0.1, saved=False)
        timed.now += 0.4
    assert not timed.monitor.cannot_save()
    timed.now += 0.1
    assert timed.monitor.cannot_save()
    timed.write(0.1)
    assert not timed.monitor.cannot_save()


def test_a_server_that_has_nothing_to_save_can_save() -> None:
    timed = Timed()
    timed.write(0.1)
    assert not timed.monitor.cannot_save(1000.0)
    assert timed.monitor.unsaved_for(1000.0) == 0.0


def test_a_slow_attempt_is_measured_by_those_before_and_a_failed_one_is_not() -> None:
    timed = Timed()
    timed.write(5.0)
    timed.monitor.began()
    timed.now += SLOW * 5.0
    assert not timed.monitor.cannot_save()
    assert timed.monitor.cannot_save(timed.now + 0.1)
    timed.monitor.failed()
    timed.monitor.saved()
    timed.write(3.0, saved=False)
    assert timed.monitor.cannot_save()


def beats(driven: Driven) -> list[Heartbeat]:
    driven.take()
    driven.tell(TimerFired, HEARTBEAT)
    return [e.message for e in driven.take() if isinstance(e, SendControl) and isinstance(e.message, Heartbeat)]


def lease(driven: Driven, *, saves: bool = True, server: int = 1) -> None:
    beat = Heartbeat(0, driven.time, driven.time, True, None, saves=saves)
    driven.tell(ControlReceived, server, beat)


def facts(driven: Driven) -> list[object]:
    return [effect.fact for effect in driven.take() if isinstance(effect, WriteFact)]


def test_a_server_that_cannot_save_says_so_and_uses_no_token_until_it_can() -> None:
    driven = begun()
    node = driven.node
    assert node.server is not None
    assert node.server.has_token
    driven.time = 1.0
    driven.tell(
        ControlReceived, 1, Prepare(0, (1 << 16) + 1, node.view.following(1), "to finish a vote")
    )  # saved at once
    driven.tell(CheckpointFailed)
    driven.time = 3.5
    for server in (1, 2):
        lease(driven, server=server)
    sent = beats(driven)
    assert [beat.saves for beat in sent] == [False, False]
    assert {beat.idle for beat in sent} == {3.5}, "it does not say that it has the token"
    assert not node.may_lead(driven.time)
    assert node.status(driven.time).members[0].state == "here, cannot save"
    driven.tell(TimerFired, RETRY)
    driven.take()
    driven.tell(CheckpointSaved)
    assert facts(driven) == [SavingResumed(0)]
    assert all(beat.saves for beat in beats(driven))


def test_a_failed_checkpoint_is_recorded_once_it_has_lasted() -> None:
    driven = begun()
    driven.time = 1.0
    driven.tell(TimerFired, HEARTBEAT)
    lease(driven)
    lease(driven, server=2)
    driven.take()
    node = driven.node
    node._changed = True
    driven.tell(CheckpointRequested)
    driven.tell(CheckpointFailed)
    driven.time = 2.9
    lease(driven)
    lease(driven, server=2)
    driven.tell(TimerFired, HEARTBEAT)
    assert facts(driven) == []
    assert node.may_lead(driven.time)
    driven.time = 3.1
    driven.tell(TimerFired, HEARTBEAT)
    assert facts(driven) == [SavingFailed(0)]
    assert not node.may_lead(driven.time)


def test_another_server_that_cannot_save_is_not_waited_for_and_still_grants_leases() -> None:
    driven = begun()
    node = driven.node
    driven.take()
    lease(driven, saves=False)
    assert facts(driven) == [PeerSuspected(0, 1)]
    while node.ready:
        driven.handle_next()
    assert node.server is not None
    assert node.server.suspected == {1}
    assert node.may_lead(driven.time)
    assert [member.state for member in node.status(driven.time).members] == ["here", "cannot save", "there"]
    driven.take()
    lease(driven)
    assert facts(driven) == [PeerTrusted(0, 1)]


def test_the_clock_of_a_machine_that_restarted_begins_anew() -> None:
    """A heartbeat echoes the last time that it was told, not the highest: the other server would never accept that."""
    driven = begun()
    driven.tell(ControlReceived, 1, Heartbeat(0, 5000.0, None, True, None))
    driven.tell(ControlReceived, 1, Heartbeat(0, 1.0, None, True, None))
    assert beats(driven)[0].echo == 1.0
