"""The rule of a link, with the times worked out by hand."""

import pytest

from chaos.wan.links import BUFFER_SECONDS, Links


def test_a_packet_arrives_after_its_turn_and_the_delay() -> None:
    links = Links(2)
    link = links.links[0][1]
    link.delay, link.rate = 0.1, 8000.0  # 1000 bytes a second
    links.send(1.0, 0, 1, b"a" * 100)
    links.send(1.0, 0, 1, b"b" * 100)
    assert links.next_arrival() == pytest.approx(1.2)
    assert links.arrived(1.19) == []
    assert links.arrived(1.21) == [(1, b"a" * 100)]
    assert links.next_arrival() == pytest.approx(1.3)
    assert links.arrived(2.0) == [(1, b"b" * 100)]
    assert (link.packets, link.bytes, link.lost) == (2, 200, 0)


def test_directions_are_links_of_their_own() -> None:
    links = Links(2)
    links.links[0][1].delay = 0.5
    links.send(0.0, 0, 1, b"there")
    links.send(0.0, 1, 0, b"back")
    assert links.arrived(0.0) == [(0, b"back")]
    assert links.arrived(0.5) == [(1, b"there")]


def test_a_shorter_delay_lets_nothing_overtake() -> None:
    links = Links(2)
    links.links[0][1].delay = 0.3
    links.send(0.0, 0, 1, b"first")
    links.links[0][1].delay = 0.1
    links.send(0.1, 0, 1, b"second")
    assert links.arrived(0.29) == []
    assert [packet for _, packet in links.arrived(0.3)] == [b"first", b"second"]


def test_what_would_wait_too_long_is_dropped() -> None:
    links = Links(2)
    link = links.links[0][1]
    link.rate = 8000.0
    for _ in range(100):
        links.send(0.0, 0, 1, bytes(100))
    kept = len(links.arrived(1000.0))
    assert kept == pytest.approx(BUFFER_SECONDS / 0.1, abs=1)
    assert link.lost == 100 - kept


def test_loss_is_a_probability() -> None:
    links = Links(2)
    links.links[0][1].loss = 0.2
    for _ in range(5000):
        links.send(0.0, 0, 1, b"?")
    assert links.links[0][1].lost == pytest.approx(1000, rel=0.1)


def test_a_cut_loses_what_comes_and_what_is_under_way() -> None:
    links = Links(2)
    links.links[0][1].delay = 0.1
    links.send(0.0, 0, 1, b"under way")
    links.cut(0, 1)
    links.send(0.05, 0, 1, b"into the gap")
    links.heal(0, 1)
    links.send(0.06, 0, 1, b"after")
    assert links.arrived(1.0) == [(1, b"after")]
    assert links.links[0][1].lost == 2
