"""Pauses between attempts."""

from spyker.net.backoff import Backoff


def test_five_thousand_failures_in_a_row() -> None:
    """Half a day without a server."""
    backoff = Backoff(0.2, 10.0)
    pauses = [backoff.seconds() for _ in range(5000)]
    assert 0.1 <= pauses[0] <= 0.3
    assert all(5.0 <= pause <= 15.0 for pause in pauses[6:])


def test_each_pause_is_about_twice_as_long() -> None:
    backoff = Backoff(1.0, 100.0)
    for middle in (1.0, 2.0, 4.0, 8.0):
        assert 0.5 * middle <= backoff.seconds() <= 1.5 * middle


def test_a_success_begins_anew() -> None:
    backoff = Backoff(0.2, 10.0)
    for _ in range(20):
        backoff.seconds()
    backoff.reset()
    assert backoff.seconds() <= 0.3


def test_two_that_failed_together_do_not_come_back_together() -> None:
    pauses = {Backoff().seconds() for _ in range(100)}
    assert len(pauses) > 90
