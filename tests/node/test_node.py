"""A node, driven by hand: what it asks for, event by event."""

import json
from typing import Any

import numpy as np
import pytest
from driven import Driven
from gossip import FLUSH, SECONDS, Gossip, Note
from members import handshake

from spyker.node.control_messages import Heartbeat
from spyker.node.effects import (
    AcknowledgePeer,
    ClientRejected,
    CloseSession,
    Completed,
    Effect,
    NodeStarted,
    SaveCheckpoint,
    SendPeer,
    SendTask,
    TellSaved,
    WelcomeClient,
    WriteFact,
)
from spyker.node.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    ClientConnected,
    ClientDisconnected,
    ClientLeft,
    ControlReceived,
    Drain,
    Handled,
    PeerConnected,
    PeerHelloReceived,
    PeerMessageReceived,
    Resume,
    Start,
    TimerFired,
    UpdateReceived,
)
from spyker.node.inbox import AWAY, BEGIN, BEGIN_EMPTY, RETRY, SAVE, SERVERS, NodeOptions
from spyker.node.membership import Membership
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.pending_updates import MOST_UNSAVED
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import first_view
from spyker.protocol.messages import StartTimer, StopTimer, Update
from spyker.protocol.server import NoParameters, Setup, Work
from spyker.sim.sim_keys import SimKeys

GREETING = handshake(1, "life", 2, checkpoints=5)
SETUP = Setup(2, 3, np.zeros(2, np.float32), 0.1, NoParameters())


class Driver(Driven):
    """Drives node 0 of two, and remembers the tokens of tasks."""

    def __init__(self, life: int = 1, **rules: Any) -> None:
        clock = NodeClock()
        node = Node(
            0,
            lambda roster: Gossip(0, SETUP, roster),
            TaskTokens(b"secret", life),
            NodeOptions(**{"clients": 3, "layout": b"L", "learning": b"N", "deployment": b"D"} | rules),
            membership=Membership(0, first_view([0, 1], [0, 1]), clock, keys=SimKeys("zero", 0)),
            clock=clock,
        )
        super().__init__(node)
        self.tickets: dict[Any, bytes] = {}

    @property
    def server(self) -> Gossip:
        assert isinstance(self.node.server, Gossip)
        return self.node.server

    def go(self) -> list[Effect]:
        """Serve what waits; everything that was asked for."""
        while self.node.ready:
            self.handle_next()
        effects = self.take()
        self.tickets |= {effect.session: effect.task_token for effect in effects if isinstance(effect, SendTask)}
        return effects

    def come(self, client: int, session: str, holding: bytes | None = None) -> list[Effect]:
        self.tell(ClientConnected, client, session, 1, () if holding is None else (holding,))
        return self.go()

    def answer(self, client: int, session: str, step: int, receipt: Any = None, booked: int = 0) -> list[Effect]:
        self.tell(
            UpdateReceived,
            client,
            self.node.verify_token(client, self.tickets[session]).number,
            Update(np.array([client, step], np.float32), 0.0, 0),
            receipt=receipt,
            booked=booked,
        )
        return self.go()

    def saved(self) -> list[Effect]:
        self.tell(CheckpointSaved)
        return self.go()


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def of(effects: list[Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def begun(**rules: Any) -> tuple[Driver, SaveCheckpoint]:
    """A host with clients 0 and 1 whose first checkpoint is under way."""
    driver = Driver(min_clients=2, **rules)
    driver.tell(Start)
    driver.come(0, "zero")
    effects = driver.come(1, "one")
    (save,) = of(effects, SaveCheckpoint)
    return driver, save


def resumed(save: SaveCheckpoint, life: int = 2, **rules: Any) -> tuple[Driver, list[Effect]]:
    """The next life, from a checkpoint that went through JSON."""
    driver = Driver(life, **rules)
    driver.tell(Resume, json.loads(json.dumps(save.numbers)), {name: v.copy() for name, v in save.vectors.items()})
    return driver, driver.go()


def checkpoint(driver: Driver) -> SaveCheckpoint:
    """What it would save now."""
    driver.node._changed = True
    driver.tell(CheckpointRequested)
    (save,) = of(driver.take(), SaveCheckpoint)
    return save


# --- Beginning --------------------------------------------------------------------------------------------------------


def test_it_begins_when_enough_clients_are_there() -> None:
    driver = Driver(min_clients=2)
    driver.tell(Start)
    assert driver.take() == [StartTimer(BEGIN, 60.0)]
    assert NodeStarted not in kinds(driver.come(0, "zero"))
    effects = driver.come(1, "one")
    assert of(effects, NodeStarted) == [NodeStarted(2)]
    assert [give.session for give in of(effects, SendTask)] == ["zero", "one"]
    assert StopTimer(BEGIN) in effects


def test_it_waits_no_longer_than_it_is_told_to() -> None:
    driver = Driver(min_clients=3, join_timeout=5.0)
    driver.tell(Start)
    driver.tell(TimerFired, BEGIN)
    assert NodeStarted not in kinds(driver.go()), "nobody is there"
    assert of(driver.come(1, "one"), NodeStarted) == [NodeStarted(1)]


def test_a_client_that_went_before_the_beginning_is_not_counted() -> None:
    driver = Driver(min_clients=2)
    driver.tell(Start)
    driver.come(0, "zero")
    driver.tell(ClientDisconnected, 0, "zero")
    assert of(driver.come(1, "one"), NodeStarted) == []
    assert of(driver.come(2, "two"), NodeStarted) == [NodeStarted(2)]


def test_without_clients_it_begins_soon_after_another_server() -> None:
    """The other one exchanges models with it, and would wait."""
    driver = Driver(min_clients=2)
    driver.tell(Start)
    driver.take()
    driver.tell(ControlReceived, 1, Heartbeat(0, 0.0, None, True, None))
    assert driver.take() == [], "the other one waits, too"
    for _ in range(2):
        driver.tell(ControlReceived, 1, Heartbeat(0, 0.0, None, True, None, checkpoints=1))
    assert driver.take() == [StartTimer(BEGIN_EMPTY, driver.node.membership.failure_detector.suspect_after)]
    driver.tell(TimerFired, BEGIN_EMPTY)
    assert of(driver.go(), NodeStarted) == [NodeStarted(0)]
    assert of(driver.come(1, "one"), SendTask), "a client that comes later takes part"


def test_with_a_client_it_waits_for_the_others_though_another_server_has_begun() -> None:
    driver = Driver(min_clients=2)
    driver.tell(Start)
    driver.come(0, "zero")
    driver.tell(ControlReceived, 1, Heartbeat(0, 0.0, None, True, None, checkpoints=1))
    driver.tell(TimerFired, BEGIN_EMPTY)
    assert of(driver.go(), NodeStarted) == []
    assert of(driver.come(1, "one"), NodeStarted) == [NodeStarted(2)]


def test_the_token_is_not_missed_while_a_server_waits_for_clients() -> None:
    driver = Driver(min_clients=1)
    driver.tell(Start)
    driver.time += 1000.0
    driver.come(0, "zero")
    assert driver.node.membership.failure_detector.token_missed_for(0) == 0.0


def test_without_anybody_to_wait_for_it_begins_at_once() -> None:
    driver = Driver()
    driver.tell(Start)
    assert of(driver.go(), NodeStarted) == [NodeStarted(0)]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"client": 3}, "client 3 of 3"),
        ({"layout": b"?"}, "layout"),
        ({"learning": b"?"}, "task, training, seed or algorithm"),
        ({"size": 0}, "0 data points"),
        ({"size": 1 << 32}, "data points"),
    ],
)
def test_who_does_not_agree_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(Rejection, match=problem):
        Driver().node.check_client(**{"client": 0, "size": 1, "layout": b"L", "learning": b"N"} | said)


# --- Clients ----------------------------------------------------------------------------------------------------------


def test_an_answer_is_taken_once_and_its_receipt_returned() -> None:
    driver, _ = begun()
    ticket = driver.tickets["zero"]
    effects = driver.answer(0, "zero", 0, receipt="r")
    assert kinds(effects) == [WriteFact, SendTask, Completed]
    assert driver.server.applied == [0]
    with pytest.raises(Rejection, match="replayed"):
        driver.node.verify_token(0, ticket)


def test_an_update_that_was_booked_beyond_the_budget_is_refused() -> None:
    driver, _ = begun(most_booked=3)
    driver.answer(0, "zero", 0, booked=3)
    assert driver.server.applied == [0]
    with pytest.raises(Rejection, match="training 4 of client 0 is more than its 3") as refused:
        driver.answer(0, "zero", 1, booked=4)
    assert refused.value.reason == "privacy-budget-spent"
    assert driver.server.applied == [0]


def test_a_client_that_comes_back_goes_on_with_its_task() -> None:
    driver, _ = begun()
    driver.tell(ClientDisconnected, 0, "zero")
    assert StartTimer(f"{AWAY}0", 60.0) in driver.go()
    effects = driver.come(0, "again", driver.tickets["zero"])
    assert effects == [StopTimer(f"{AWAY}0"), WelcomeClient("again", True, 0, ask=True)]


def test_a_client_that_comes_back_with_nothing_gets_a_task() -> None:
    driver, _ = begun()
    driver.tell(ClientDisconnected, 0, "zero")
    driver.go()
    assert [type(effect) for effect in driver.come(0, "again")][1:] == [WelcomeClient, SendTask]


def test_a_newer_connection_takes_the_place_of_an_older() -> None:
    driver, _ = begun()
    effects = driver.come(0, "newer", driver.tickets["zero"])
    assert isinstance(effects[0], CloseSession)
    driver.tell(ClientDisconnected, 0, "zero")
    assert driver.go() == [], "the older one is of no interest any more"


def test_a_forged_ticket_is_refused_and_the_client_stays() -> None:
    driver, _ = begun()
    driver.tell(ClientDisconnected, 0, "zero")
    effects = driver.come(0, "again", b"\0" * 56)
    assert of(effects, ClientRejected)[0].rejection.reason == "unknown-task"
    assert of(effects, WelcomeClient)[0].keep is False
    assert of(effects, SendTask)


def test_a_client_that_is_given_up_and_back_before_its_turn_was_never_away() -> None:
    driver, _ = begun()
    driver.tell(ClientDisconnected, 0, "zero")
    driver.tell(TimerFired, f"{AWAY}0")
    driver.tell(ClientConnected, 0, "again", 1, (driver.tickets["zero"],))
    assert driver.node.work() is Work.NOTHING
    driver.go()
    assert driver.node.clients[0].member


def test_a_client_that_says_goodbye_is_no_member() -> None:
    driver, _ = begun()
    driver.tell(ClientLeft, 0, "zero")
    driver.go()
    assert not driver.node.clients[0].member
    effects = driver.come(0, "again", driver.tickets["zero"])
    assert not of(effects, WelcomeClient)[0].ask, "it joins first"
    assert of(effects, TellSaved)[0].ask, "and its update takes the place of a task"
    assert not of(effects, SendTask)


def test_a_client_with_many_unsaved_updates_causes_a_checkpoint_and_is_told_when_it_is_saved() -> None:
    driver, _ = begun()
    driver.saved()
    effects: list[Effect] = []
    for step in range(MOST_UNSAVED // 2):
        assert not of(effects, SaveCheckpoint)
        effects = driver.answer(0, "zero", step)
    assert of(effects, SaveCheckpoint)
    assert of(driver.saved(), TellSaved) == [TellSaved("zero", driver.node.clients[0].saved)]
    assert driver.node.clients[0].saved == driver.node.clients[0].applied


def test_no_task_is_sent_to_a_client_that_is_not_welcomed_yet() -> None:
    driver, _ = begun()
    driver.tell(ClientDisconnected, 0, "zero")
    driver.tell(
        UpdateReceived,
        0,
        driver.node.verify_token(0, driver.tickets["zero"]).number,
        Update(np.zeros(2, np.float32), 0.0, 0),
    )
    driver.tell(ClientConnected, 0, "again", 1)
    effects = driver.go()
    assert [type(e) for e in effects if isinstance(e, WelcomeClient | SendTask)] == [WelcomeClient, SendTask]


# --- Checkpoints ------------------------------------------------------------------------------------------------------


def test_other_servers_are_told_when_it_is_saved() -> None:
    driver, _ = begun()
    driver.saved()
    driver.answer(0, "zero", 0)
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    effects = driver.go()
    assert SaveCheckpoint in kinds(effects)
    assert driver.node.next_for(1, 0) is None
    assert driver.saved() == [SendPeer(1)]
    posted = driver.node.next_for(1, 0)
    assert posted is not None
    assert (posted.sequence, posted.message) == (1, Note((0,)))
    assert driver.node.next_for(1, 1) is None


def test_what_happens_during_a_checkpoint_is_for_the_next() -> None:
    driver, _ = begun()  # the first one is under way
    driver.answer(0, "zero", 0)
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    assert SaveCheckpoint not in kinds(driver.go())
    (save,) = of(driver.saved(), SaveCheckpoint)
    assert driver.node.next_for(1, 0) is None
    assert save.numbers["server"]["applied"] == [0]
    assert SendPeer(1) in driver.saved()


def test_a_checkpoint_that_failed_is_tried_again_after_a_while() -> None:
    driver, _ = begun(save_retry=2.5)
    driver.tell(CheckpointFailed)
    assert driver.go() == [StartTimer(RETRY, 2.5)]
    driver.tell(TimerFired, SAVE)
    assert SaveCheckpoint not in kinds(driver.go()), "not yet"
    driver.tell(TimerFired, RETRY)
    assert kinds(driver.go()) == [SaveCheckpoint]


def test_so_many_updates_are_a_reason_for_a_checkpoint() -> None:
    driver, _ = begun(checkpoint_updates=2)
    driver.saved()
    assert SaveCheckpoint not in kinds(driver.answer(0, "zero", 0))
    assert SaveCheckpoint in kinds(driver.answer(0, "zero", 1))


def test_with_many_clients_a_checkpoint_waits_for_one_update_of_every_two() -> None:
    driver, _ = begun(clients=6, checkpoint_updates=1)
    for k in range(2, 6):
        driver.come(k, str(k))
    driver.saved()
    assert SaveCheckpoint not in kinds(driver.answer(2, "2", 0) + driver.answer(3, "3", 0))
    assert SaveCheckpoint in kinds(driver.answer(4, "4", 0))


def test_without_news_there_is_no_checkpoint() -> None:
    driver, _ = begun()
    driver.saved()
    assert driver.node.settled
    driver.tell(TimerFired, SAVE)
    assert kinds(driver.go()) == [StartTimer]


def test_a_message_of_a_peer_counts_once_and_is_acknowledged_when_saved() -> None:
    driver, _ = begun()
    driver.saved()
    driver.tell(PeerHelloReceived, GREETING, b"L", b"D")
    assert driver.node.received.get(1, 0) == 0
    driver.tell(PeerMessageReceived, 1, 1, Note((7,)), receipt="r")
    assert kinds(driver.go()) == [Completed, SaveCheckpoint]
    driver.tell(PeerMessageReceived, 1, 1, Note((7,)), receipt="r")
    assert driver.go() == [Completed("r")]
    assert driver.saved() == [AcknowledgePeer(1, 1)]
    assert driver.server.heard == {1: [7]}
    driver.tell(PeerHelloReceived, GREETING, b"L", b"D")
    assert driver.node.received.get(1, 0) == 1


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"server": 0}, "reached itself"),
        ({"server": 2}, "server 2 is not one of the servers"),
        ({"layout": b"?"}, "scenarios"),
        ({"deployment": b"?"}, "scenarios"),
        ({"lineage": "another"}, "is another one"),
        ({"incarnation": 1}, "a later process"),
        ({"checkpoints": 4, "incarnation": 3}, "an older state"),
    ],
)
def test_another_server_that_does_not_agree_is_refused(said: dict[str, Any], problem: str) -> None:
    driver, _ = begun()
    digests = {"layout": b"L", "deployment": b"D"}
    driver.tell(PeerHelloReceived, GREETING, **digests)
    known = {"server": 1, "lineage": "life", "incarnation": 2, "checkpoints": 5}
    greeting = handshake(**known | {key: value for key, value in said.items() if key not in digests})
    with pytest.raises(Rejection, match=problem):
        driver.tell(
            PeerHelloReceived, greeting, **digests | {key: value for key, value in said.items() if key in digests}
        )


# --- A restart --------------------------------------------------------------------------------------------------------


def test_a_server_goes_on_where_it_was_saved() -> None:
    driver, _ = begun()
    driver.saved()
    driver.tell(PeerHelloReceived, GREETING, b"L", b"D")
    driver.answer(0, "zero", 0)
    driver.tell(PeerMessageReceived, 1, 1, Note((7,)))
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    driver.go()
    (save,) = of(driver.saved(), SaveCheckpoint)
    again, effects = resumed(save)
    assert (again.server.applied, again.server.heard, again.server.told) == ([0], {1: [7]}, 1)
    assert again.node.saved_version == 1
    assert {StartTimer(f"{AWAY}0", 60.0), StartTimer(f"{AWAY}1", 60.0)} <= set(of(effects, StartTimer))
    assert StartTimer(f"{SERVERS}{FLUSH}", SECONDS) in effects
    again.tell(PeerHelloReceived, GREETING, b"L", b"D")
    assert again.node.received.get(1, 0) == 1
    posted = again.node.next_for(1, 0)
    assert posted is not None
    assert posted.message == Note((0,))
    with pytest.raises(Rejection, match="is another one"):
        again.tell(PeerConnected, 1, handshake(1, "another", 2, checkpoints=5), 0, 0.0)


def test_an_unsaved_answer_is_taken_again_and_a_saved_one_is_not() -> None:
    driver, first = begun()
    driver.saved()
    ticket = driver.tickets["zero"]
    driver.answer(0, "zero", 0)
    before, _ = resumed(first)
    after, _ = resumed(checkpoint(driver))
    assert of(before.come(0, "back", ticket), WelcomeClient)[0].keep
    assert not of(after.come(0, "back", ticket), WelcomeClient)[0].keep


def test_a_client_that_stays_away_after_a_restart_is_given_up() -> None:
    _, save = begun()
    again, _ = resumed(save)
    again.tell(TimerFired, f"{AWAY}0")
    again.go()
    assert not again.node.clients[0].member


def test_a_timer_that_was_stopped_does_not_run_after_a_restart() -> None:
    driver, _ = begun()
    driver.server.stop_timer(FLUSH)
    driver.node._perform(driver.server._actions)
    assert StopTimer(f"{SERVERS}{FLUSH}") in driver.saved()
    _, effects = resumed(checkpoint(driver))
    assert not [effect for effect in of(effects, StartTimer) if effect.timer == f"{SERVERS}{FLUSH}"]


def test_a_timer_that_ran_out_and_was_not_served_runs_again_after_a_restart() -> None:
    driver, _ = begun()
    driver.saved()
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")  # the server is busy
    _, effects = resumed(checkpoint(driver))
    assert StartTimer(f"{SERVERS}{FLUSH}", SECONDS) in effects


def test_a_timer_that_runs_out_while_a_process_ends_waits_for_the_next_one() -> None:
    """One that the server starts again and again would otherwise keep it from ever having saved everything."""
    driver, _ = begun()
    driver.saved()
    driver.tell(Drain)
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    driver.go()
    assert driver.server.told == 0
    _, effects = resumed(checkpoint(driver))
    assert StartTimer(f"{SERVERS}{FLUSH}", SECONDS) in effects


def test_a_timer_that_is_stopped_before_its_turn_is_not_served() -> None:
    driver, _ = begun()
    driver.answer(0, "zero", 0)
    driver.tell(PeerHelloReceived, GREETING, b"L", b"D")
    driver.tell(PeerMessageReceived, 1, 1, Note(()))
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    driver.tell(Handled, [StopTimer(FLUSH)])  # what the server wants done because of the message
    driver.go()
    assert driver.server.told == 0


def test_a_timer_that_runs_out_while_the_world_hears_that_it_was_stopped_is_not_served() -> None:
    driver, _ = begun()
    driver.node._perform([StopTimer(FLUSH)])
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    driver.go()
    assert driver.node.waiting == 0


def test_a_timer_that_is_started_again_before_its_turn_is_served_later() -> None:
    driver, _ = begun()
    driver.answer(0, "zero", 0)
    driver.tell(PeerMessageReceived, 1, 1, Note(()))
    driver.tell(TimerFired, f"{SERVERS}{FLUSH}")
    driver.tell(Handled, [StartTimer(FLUSH, 3.0)])
    driver.go()
    assert driver.server.told == 0
    (save,) = of(driver.saved(), SaveCheckpoint)
    assert save.numbers["timers"] == {FLUSH: 3.0}


def test_a_checkpoint_is_not_written_to_by_what_comes_after() -> None:
    driver, save = begun()
    text = json.dumps(save.numbers)
    for step in range(5):
        driver.answer(0, "zero", step)
    assert json.dumps(save.numbers) == text
