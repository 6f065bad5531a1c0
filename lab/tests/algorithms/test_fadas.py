"""FADAS: FedBuff's buffer, steps of AMSGrad, shorter ones after long delays. Numbers are worked out in the comments."""

import pytest
from actions import stated, vector

from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Join, Leave, ToClient, Update


def make(build, threshold):
    given = {"server_rate": 0.5, "first_moment": 0.5, "second_moment": 0.75, "delay_threshold": threshold}
    (one,) = build("fadas", [[1, 1]], initial=(0.0, 3.0), buffer=2, **given)
    return one


@pytest.fixture
def server(build):
    """M = 2, η = 0.5, β₁ = 0.5, β₂ = 0.75, τ_c = 1."""
    return make(build, 1.0)


def step(server, first, second, age=None):
    """Two answers, which fill the buffer: how far two trainings moved the first of two weights. What it is then."""
    for client, difference in enumerate((first, second)):
        server.handle(client, Update(vector(difference, 0), server.age if age is None else age, 0))
    return server.weights.snapshot()[0]


def test_a_step_divides_the_running_mean_by_the_root_of_the_running_square(server):
    # Δ = 4, m = 0.5 · 4 = 2, v = 0.25 · 16 = 4, W = 0.5 · 2/2
    assert step(server, 2, 6) == pytest.approx(0.5)


def test_the_divisor_never_shrinks(server):
    # Δ = 0: m = 0.5 · 2 = 1, v = 0.75 · 4 = 3, but v̂ = 4: W = 0.5 + 0.5 · 1/2
    step(server, 2, 6)
    assert step(server, 0, 0) == pytest.approx(0.75)


def test_a_step_with_a_stale_update_is_shorter_and_the_next_is_not(server):
    # Δ = 4, one of them τ = 2 old: m = 0.5 · 1 + 0.5 · 4 = 2.5, v = 0.75 · 3 + 0.25 · 16 = 6.25, W = 0.75 + 0.5/2 · 1;
    # then Δ = 0: m = 1.25, v̂ = 6.25, W = 1 + 0.5 · 1.25/2.5
    step(server, 2, 6)
    step(server, 0, 0)
    server.handle(0, Update(vector(2, 0), 0.0, 0))
    server.handle(1, Update(vector(6, 0), 2.0, 0))
    assert server.weights.snapshot()[0] == pytest.approx(1.0)
    assert step(server, 0, 0) == pytest.approx(1.25)


@pytest.mark.parametrize(("threshold", "weight"), [(2.0, 0.875), (1.9, 0.8125)])
def test_up_to_the_threshold_a_step_is_as_long_as_any(build, threshold, weight):
    # Δ = 0 twice, the second time τ = 2 old: m = 1, then 0.5; W = 0.5 + 0.25 + 0.5 · 0.5/2, or 0.25 · 0.5/2
    server = make(build, threshold)
    step(server, 2, 6)
    step(server, 0, 0)
    assert step(server, 0, 0, age=0.0) == pytest.approx(weight)


def test_a_weight_that_never_moved_stays(server):
    step(server, 2, 6)
    assert server.weights.snapshot()[1] == 3.0


def test_single_updates_count_alike_however_stale(server):
    step(server, 2, 6)
    (fact,) = stated(server.handle(0, Update(vector(1, 0), 0.0, 0)), UpdateApplied)
    assert (fact.staleness, fact.weight) == (1.0, 1.0)


def test_an_answer_to_a_model_that_a_crash_took_back_counts_as_fresh(server):
    server.handle(0, Update(vector(1, 0), 5.0, 0))
    assert server.stalest == 0.0


def test_everybody_is_answered_at_once_and_who_leaves_is_not_missed(server):
    assert [a.client for a in server.handle(0, Update(vector(1, 0), 0.0, 0)) if isinstance(a, ToClient)] == [0]
    assert [a.client for a in server.handle(7, Join(1)) if isinstance(a, ToClient)] == [7]
    assert server.handle(0, Leave()) == []
    assert server.count == 1
