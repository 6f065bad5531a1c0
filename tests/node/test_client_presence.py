"""A client's identity at two servers: times that are certain, by two clocks that are not synchronised."""

import pytest

from spyker.node.client_presence import ClientPresence
from spyker.node.control_messages import MOST_SIGHTINGS, Heartbeat
from spyker.node.failure_detector import DRIFT
from spyker.node.node_clock import NodeClock

NUMBER = 7


class Servers:
    """Two servers whose clocks differ by 500 s. Server 0 has the time of the test."""

    def __init__(self) -> None:
        self.clocks = [NodeClock(), NodeClock()]
        self.presence = [ClientPresence(clock) for clock in self.clocks]
        self.number = 0

    def at(self, time: float) -> None:
        for clock, shift in zip(self.clocks, (0.0, 500.0), strict=True):
            clock.advance(time + shift, handling=False)

    def connect(self, server: int, client: int = NUMBER) -> None:
        self.presence[server].connected(client)

    def task(self, server: int, client: int = NUMBER) -> int:
        self.number += 1
        self.presence[server].assigned(client, self.number)
        return self.number

    def beat(self, echo: float | None) -> Heartbeat:
        """Server 1 sends a heartbeat that echoes one which server 0 sent at this time."""
        return Heartbeat(0, 0.0, echo, True, None, clients=self.presence[1].sightings())


def trained(servers: Servers, server: int, began: float, ended: float) -> None:
    """The client is given a task at a time, and has answered it at another."""
    servers.at(began)
    number = servers.task(server)
    servers.at(ended)
    servers.presence[server].answered(NUMBER, number)


def test_a_client_that_trains_for_two_servers_at_the_same_time_is_found() -> None:
    servers = Servers()
    servers.connect(0)
    servers.at(1.0)
    servers.connect(1)
    trained(servers, 0, 20.0, 21.0)
    trained(servers, 1, 22.0, 23.0)
    assert servers.presence[0].elsewhere(servers.beat(22.9)) == [NUMBER]


def test_a_client_that_moved_is_not_found_although_its_former_server_takes_it_for_connected() -> None:
    servers = Servers()
    servers.connect(0)
    trained(servers, 0, 20.0, 21.0)
    servers.at(22.0)
    servers.connect(1)
    trained(servers, 1, 23.0, 60.0)
    trained(servers, 1, 60.0, 90.0)
    assert servers.presence[0].elsewhere(servers.beat(89.9)) == []
    assert servers.presence[0].elsewhere(servers.beat(0.0)) == []


def test_an_update_that_arrives_late_over_an_earlier_connection_shows_nothing() -> None:
    """The task was given before the client moved; what waited in a buffer arrives when the other server has it."""
    servers = Servers()
    servers.connect(0)
    servers.at(20.0)
    number = servers.task(0)
    servers.at(21.0)
    servers.connect(1)
    trained(servers, 1, 22.0, 40.0)
    servers.presence[0].answered(NUMBER, number)
    assert servers.presence[0].elsewhere(servers.beat(39.9)) == []


def test_an_update_for_a_task_of_an_earlier_connection_shows_nothing_about_this_one() -> None:
    servers = Servers()
    servers.connect(0)
    number = servers.task(0)
    servers.connect(0)
    servers.task(0)
    servers.presence[0].answered(NUMBER, number)
    assert servers.presence[0].sightings() == ()


@pytest.mark.parametrize("echo", [None, 10.0])
def test_a_heartbeat_that_may_have_been_sent_long_ago_proves_nothing(echo: float | None) -> None:
    servers = Servers()
    servers.at(12.0)
    servers.connect(1)
    trained(servers, 1, 13.0, 14.0)
    beat = servers.beat(echo)
    servers.at(15.0)
    servers.connect(0)
    trained(servers, 0, 30.0, 31.0)
    assert servers.presence[0].elsewhere(beat) == []


def test_times_that_overlap_by_less_than_clocks_may_drift_prove_nothing() -> None:
    servers = Servers()
    servers.connect(0)
    trained(servers, 0, 100.0, 101.0)
    servers.at(99.0)
    servers.connect(1)
    trained(servers, 1, 150.0, 200.0)
    beat = servers.beat(199.9)
    assert (200.0 - beat.clients[0].connected) < 100.0 < (200.0 - beat.clients[0].connected / DRIFT)
    assert servers.presence[0].elsewhere(beat) == []


def test_a_heartbeat_tells_of_few_clients_and_all_have_their_turn() -> None:
    servers = Servers()
    for client in range(MOST_SIGHTINGS + 5):
        servers.connect(1, client)
        servers.presence[1].answered(client, servers.task(1, client))
    first, second = (
        [told.client for told in servers.presence[1].sightings()],
        [told.client for told in servers.presence[1].sightings()],
    )
    assert len(first) == MOST_SIGHTINGS
    assert {*first, *second[:5]} == set(range(MOST_SIGHTINGS + 5))
    servers.presence[1].disconnected(0)
    assert 0 not in {told.client for _ in range(2) for told in servers.presence[1].sightings()}
