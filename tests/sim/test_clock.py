"""Virtual time: everything happens in its order, and what is due at the same time in the order of scheduling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyker.sim.clock import Clock, StopRequest

DELAYS = st.sampled_from([0.0, 1e-9, 0.001, 0.05, 0.1, 0.3, 1.0, 7.0]) | st.floats(0.0, 12.0)


@given(first=st.lists(DELAYS, max_size=30), then=st.lists(DELAYS, max_size=60), crowd=st.sampled_from([0, 7, 10**6]))
def test_everything_happens_in_order_up_to_the_end(first: list[float], then: list[float], crowd: int) -> None:
    clock, happened, scheduled, later = Clock(10.0, crowd), [], [], iter(then)

    def happen(time: float, number: int) -> None:
        assert clock.now == time
        happened.append((time, number))
        schedule(next(later, None))

    def schedule(delay: float | None) -> None:
        if delay is not None:
            scheduled.append((clock.now + delay, len(scheduled)))
            clock.at(clock.now + delay, happen, *scheduled[-1])

    for delay in first:
        schedule(delay)
    assert clock.run(StopRequest())
    assert happened == sorted(entry for entry in scheduled if entry[0] <= 10.0)
    assert (clock.now, clock.happened) == (10.0, len(happened))


@pytest.mark.parametrize("crowd", [1, 10_000])
def test_nothing_happens_after_it_was_finished(crowd: int) -> None:
    clock, happened = Clock(10.0, crowd), []
    for time in (1.0, 2.0, 2.0, 3.0):
        clock.at(time, lambda t, _: happened.append(t), time, None)
    clock.at(1.5, lambda _a, _b: clock.finish(), None, None)
    assert clock.run(StopRequest())
    assert (happened, clock.now) == ([1.0], 1.5)
    clock.at(1.6, lambda _a, _b: happened.append(9.0), None, None)
    assert clock.run(StopRequest())
    assert happened == [1.0]


def test_a_stopped_run_goes_on_later() -> None:
    clock, happened, stop = Clock(10.0), [], StopRequest()

    def happen(time: float, _b: None) -> None:
        happened.append(time)
        stop.requested = True

    for time in (1.0, 5.0):
        clock.at(time, happen, time, None)
    assert not clock.run(stop)
    assert (happened, clock.now) == ([1.0], 1.0)
    assert clock.run(StopRequest())
    assert happened == [1.0, 5.0]
