"""FedAvgM: rounds as in FedAvg, steps with momentum. Numbers are worked out in the comments."""

import pytest
from actions import update

from spyker.protocol.messages import Leave, ToClient


def weights(server):
    return server.weights.snapshot().tolist()


def play(server, *values):
    """A round in which client k answers with the k-th value; the models that begin the next one."""
    for client, value in enumerate(values):
        actions = server.handle(client, update(value, version=server.version))
    return [a.message for a in actions if isinstance(a, ToClient)]


@pytest.fixture
def started(build):
    def make(sizes, algorithm="fedavgm", **parameters):
        (server,) = build(algorithm, [sizes], **parameters)
        list(server.start())
        return server

    return make


def test_a_step_is_how_far_the_average_is_from_the_model(started):
    # Δ = 1/4 · 8 + 3/4 · 4 − 1 = 4, m = 4, W = 1 + 4 + 0.5 · 4 = 7
    server = started([1, 3], initial=(1,), momentum=0.5)
    play(server, 8, 4)
    assert weights(server) == [7]
    assert server.momentum.snapshot().tolist() == [4]


def test_momentum_is_what_is_left_of_earlier_steps(started):
    # W = 0 + 4 + 0.5 · 4 = 6; then Δ = 8 − 6 = 2, m = 0.5 · 4 + 2 = 4, W = 6 + 2 + 0.5 · 4 = 10;
    # then nobody moves: Δ = 0, m = 2, W = 10 + 0.5 · 2 = 11
    server = started([1, 1], momentum=0.5)
    play(server, 4, 4)
    play(server, 8, 8)
    assert weights(server) == [10]
    play(server, 10, 10)
    assert weights(server) == [11]


def test_the_server_rate_shortens_what_the_model_moves_and_not_what_is_remembered(started):
    # W = 0.5 · (4 + 0.5 · 4) = 3; then Δ = 1, m = 0.5 · 4 + 1 = 3, W = 3 + 0.5 · (1 + 0.5 · 3) = 4.25
    server = started([1, 1], momentum=0.5, server_rate=0.5)
    play(server, 4, 4)
    assert weights(server) == [3]
    play(server, 4, 4)
    assert weights(server) == [4.25]


def test_without_momentum_it_is_fedavg(started):
    ours, theirs = started([1, 3, 4], momentum=0.0), started([1, 3, 4], algorithm="fedavg")
    for values in ((3, 5, -1), (2, 2, 7)):
        models, expected = play(ours, *values), play(theirs, *values)
        assert [m.weights.item() for m in models] == pytest.approx([m.weights.item() for m in expected])
        assert [(m.age, m.version) for m in models] == [(m.age, m.version) for m in expected]


def test_the_next_round_begins_with_the_model_after_the_step(started):
    server = started([1, 1], momentum=0.5)
    assert [model.weights.tolist() for model in play(server, 4, 4)] == [[6], [6]]


def test_who_left_has_no_share_in_the_step(started):
    # Client 1 holds 3 of 4 data points and leaves: Δ = 8, W = 8 + 0.5 · 8 = 12
    server = started([1, 3], momentum=0.5)
    server.handle(0, update(8))
    server.handle(1, Leave())
    assert weights(server) == [12]


def test_a_round_that_begins_anew_leaves_the_momentum_alone(started):
    server = started([1, 1], momentum=0.5)
    play(server, 4, 4)
    server.handle(0, Leave())
    server.handle(1, Leave())
    assert (weights(server), server.momentum.snapshot().tolist()) == ([6], [4])
