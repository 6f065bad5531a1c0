"""Who stands where, and what changes when somebody comes, goes or moves."""

import pytest

from spyker.placement import Placement, Topology, following

LATENCY = [[1.0, 5.0, 9.0], [5.0, 1.0, 4.0], [9.0, 4.0, 1.0]]


def flat() -> Placement:
    return Placement.begin(Topology.FLAT, [2, 1, 2])


def test_every_region_has_a_server() -> None:
    places = flat()
    assert places.server_regions == places.learners == places.servers == [0, 1, 2]
    assert places.homes == places.client_regions == [0, 0, 1, 2, 2]
    assert (places.client_count, places.clients_of(2)) == (5, [3, 4])


def test_a_single_server_stands_where_it_is_told_and_has_everybody() -> None:
    places = Placement.begin(Topology.SINGLE, [2, 1, 2], server_region=1)
    assert (places.server_regions, places.learners, places.homes) == ([1], [0], [0] * 5)
    assert places.client_regions == [0, 0, 1, 2, 2]


def test_a_cloud_is_the_last_server_and_takes_no_clients() -> None:
    places = Placement.begin(Topology.CLOUD, [2, 1, 2], server_region=2)
    assert (places.server_regions, places.learners, places.servers) == ([0, 1, 2, 2], [0, 1, 2], [0, 1, 2, 3])
    with pytest.raises(ValueError, match=r"server: 3 is not allowed: servers with clients are \[0, 1, 2\]"):
        places.move_client(0, 3)


def test_a_client_moves_and_stays_where_it_lives() -> None:
    places = flat()
    places.move_client(0, 2)
    assert (places.homes[0], places.client_regions[0]) == (2, 0)
    assert places.clients_of(2) == [0, 3, 4]


def test_a_client_that_leaves_keeps_its_number() -> None:
    places = flat()
    places.move_client(1, None)
    assert (places.client_count, places.clients_of(0)) == (4, [0])
    assert places.add_client(region=1, server=0) == 5
    assert (places.client_count, places.clients_of(0)) == (5, [0, 5])
    places.move_client(1, 0)
    assert places.clients_of(0) == [0, 1, 5]


def test_nobody_comes_to_a_server_that_is_not_there() -> None:
    places = flat()
    for change in (lambda: places.move_client(0, 7), lambda: places.add_client(0, 7)):
        with pytest.raises(ValueError, match="server: 7 is not allowed"):
            change()
    assert places.homes == [0, 0, 1, 2, 2]
    assert places.client_regions == [0, 0, 1, 2, 2]


def test_the_ring_goes_round_and_closes_around_those_who_come_and_go() -> None:
    places = flat()
    assert [places.next_server(i) for i in (0, 1, 2)] == [1, 2, 0]
    assert places.add_server(region=1) == 3
    assert (places.next_server(2), places.next_server(3)) == (3, 0)
    places.remove_server(1, LATENCY)
    assert (places.next_server(0), places.servers) == (2, [0, 2, 3])
    assert following([5], 5) == 5


def test_the_clients_of_a_server_that_goes_turn_to_the_nearest() -> None:
    places = flat()
    assert places.remove_server(1, LATENCY) == [2]
    assert places.homes == [0, 0, 2, 2, 2]
    assert places.add_server(region=1) == 3, "no number is given twice"
    places.remove_server(0, LATENCY)
    assert places.homes == [3, 3, 2, 2, 2]
    places.remove_server(2, LATENCY)
    assert list(places.remove_server(3, LATENCY)) == [0, 1, 2, 3, 4]
    assert places.homes == [None] * 5


def test_of_two_that_are_as_near_the_first_is_taken() -> None:
    assert flat().nearest(0, [[2.0, 1.0, 1.0]]) == 1
