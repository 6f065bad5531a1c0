"""AsyncFedED: an answer counts the less the farther the model has moved meanwhile. Numbers are worked out by hand."""

import numpy as np
import pytest
from actions import stated, vector

from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Join, Leave, ToClient, Update
from spyker.protocol.server import Work


@pytest.fixture
def make(build):
    def one(**parameters):
        given = {"server_rate": 1.0, "epsilon": 1.0} | parameters
        (server,) = build("asyncfeded", [[1, 1, 1]], initial=(0.0, 0.0), **given)
        return server

    return one


def answer(server, client, *difference):
    actions = server.handle(client, Update(vector(*difference), 0.0, 0))
    (fact,) = stated(actions, UpdateApplied)
    (model,) = [a.message for a in actions if isinstance(a, ToClient)]
    return fact, model.weights.tolist()


def test_a_fresh_answer_counts_in_full(make):
    # γ = 0: λ/ε
    fact, weights = answer(make(), 0, 3, 4)
    assert (fact.weight, weights) == (1.0, [3, 4])
    fact, weights = answer(make(server_rate=1.0, epsilon=2.0), 0, 3, 4)
    assert (fact.weight, weights) == (1.0, [1.5, 2])


def test_staleness_is_how_far_the_model_has_moved_in_units_of_the_training(make):
    # the model has moved by ‖(3, 4)‖ = 5. Client 1: γ = 5/5 = 1, 1/(1 + 1) of (0, 5).
    # Client 2: it has moved by ‖(3, 6.5)‖ = 7.158911, γ = 0.7158911, 1/1.7158911 = 0.5827876 of (0, −10)
    server = make()
    answer(server, 0, 3, 4)
    fact, weights = answer(server, 1, 0, 5)
    assert (fact.weight, weights) == (0.5, [3, 6.5])
    fact, weights = answer(server, 2, 0, -10)
    assert fact.weight == pytest.approx(0.5827876)
    assert weights == pytest.approx([3, 0.672124])


def test_rate_and_offset_are_those_of_the_paper(make):
    # γ = 1: λ/(γ + ε) = 0.6/(1 + 2) = 0.2 of (0, 5)
    server = make(server_rate=0.6, epsilon=2.0)
    server.weights.add(vector(3, 4), 1.0)
    fact, weights = answer(server, 1, 0, 5)
    assert fact.weight == pytest.approx(2 / 3)
    assert weights == pytest.approx([3, 5])


def test_a_client_is_measured_from_the_model_that_it_was_given_last(make):
    server = make()
    answer(server, 0, 3, 4)
    answer(server, 1, 0, 5)
    assert answer(server, 1, 0, 1)[0].weight == 1.0, "nobody else has moved the model since"


def test_a_training_that_led_nowhere_moves_nothing(make):
    server = make()
    answer(server, 0, 3, 4)
    for client in (0, 1):
        fact, weights = answer(server, client, 0, 0)
        assert (fact.weight, weights) == (0.0, [3, 4])


def test_what_was_given_to_newcomers_is_remembered_and_to_those_who_left_forgotten(make):
    server = make()
    answer(server, 0, 3, 4)
    assert [a.client for a in server.handle(7, Join(1)) if isinstance(a, ToClient)] == [7]
    assert server.given[7].tolist() == [3, 4]
    assert server.handle(1, Leave()) == []
    assert set(server.given) == {0, 2, 7}


def test_the_answer_of_somebody_whom_a_restarted_server_does_not_remember_counts_as_fresh(make):
    server = make()
    answer(server, 0, 3, 4)
    assert answer(server, 9, 0, 1)[0].weight == 1.0


def test_every_update_states_how_many_came_before_it(make):
    server = make()
    answer(server, 0, 3, 4)
    fact, _ = answer(server, 1, 0, 5)
    assert fact == UpdateApplied(server=0, client=1, staleness=1.0, weight=0.5, age=2.0, version=2, rate=0.05)


def test_models_are_remembered_and_not_copied(make):
    server = make()
    server.handle(7, Join(1))
    assert server.given[7] is server.given[0] is server.state().vectors["given.0"]


def test_what_was_given_does_not_change_afterwards(make):
    server = make()
    answer(server, 0, 3, 4)
    answer(server, 1, 0, 5)
    assert server.given[0].tolist() == [3, 4]
    assert np.array_equal(server.given[2], [0, 0])


def test_an_update_costs_a_mix_and_a_newcomer_nothing(make):
    assert make().work(0, Update(vector(0, 0), 0.0, 0)) is Work.MIX
    assert make().work(9, Join(1)) is Work.NOTHING
