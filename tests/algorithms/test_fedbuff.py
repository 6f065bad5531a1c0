"""FedBuff as a state machine: answers are collected and answered at once; every K of them are a step."""

import pytest
from actions import stated, vector

from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.messages import Join, Leave, Model, ToClient, ToServer, Update
from spyker.protocol.server import Work


@pytest.fixture
def make(build):
    def one(**parameters):
        (server,) = build("fedbuff", [[1, 1]], initial=(0.0, 0.0), **parameters)
        return server

    return one


def answer(server, client, *difference, age=0.0):
    return server.handle(client, Update(vector(*difference), age, 0))


def given(actions):
    (model,) = [a.message for a in actions if isinstance(a, ToClient)]
    return model.weights.tolist()


def test_the_model_moves_by_the_mean_of_k_differences_each_weighed_by_its_staleness(make):
    server = make(buffer=2, server_rate=0.5, staleness_exponent=1.0)
    actions = answer(server, 0, 4, 0)
    assert given(actions) == [0, 0], "it is answered at once, with the model as it is"
    assert stated(actions, RoundEnded) == []
    actions = answer(server, 1, 0, 8)
    assert stated(actions, RoundEnded) == [RoundEnded(0, 1)]
    assert given(actions) == [1, 2], "0.5 / 2 · ((4, 0) + (0, 8))"
    answer(server, 0, 8, 0, age=0.0)  # one step old: half of it counts
    assert given(answer(server, 1, 4, 4, age=1.0)) == [3, 3], "(1, 2) + 0.5 / 2 · (½ · (8, 0) + (4, 4))"


def test_every_update_is_stated_with_its_staleness_and_weight(make):
    server = make(buffer=1, staleness_exponent=1.0)
    answer(server, 0, 1, 1)
    (fact,) = stated(answer(server, 1, 1, 1, age=0.0), UpdateApplied)
    assert fact == UpdateApplied(server=0, client=1, staleness=1.0, weight=0.5, age=1.0, version=2, rate=0.05)


def test_an_answer_to_a_model_that_a_crash_took_back_counts_as_fresh(make):
    (fact,) = stated(answer(make(buffer=2), 0, 1, 0, age=1.0), UpdateApplied)
    assert (fact.staleness, fact.weight) == (0.0, 1.0)


def test_newcomers_get_the_model_and_who_leaves_is_not_missed(make):
    server = make(buffer=2)
    assert given(server.handle(9, Join(1))) == [0, 0]
    answer(server, 0, 2, 2)
    assert server.handle(1, Leave()) == []
    assert server.count == 1, "what others have sent still counts"
    assert given(answer(server, 9, 4, 4)) == [3, 3]


def test_an_update_costs_a_mix(make):
    assert make().work(0, Update(vector(0, 0), 0.0, 0)) is Work.MIX
    assert make().work(0, Join(1)) is Work.NOTHING


def test_a_model_that_was_sent_does_not_change_afterwards(make):
    server = make(buffer=1)
    (sent,) = [a.message for a in answer(server, 0, 1, 1) if isinstance(a, ToClient)]
    answer(server, 1, 5, 5)
    assert sent.weights.tolist() == [1, 1]


def test_a_client_answers_with_how_far_it_came():
    client = DeltaClient(3, 0)
    client.handle(0, Model(vector(1, 2), 5.0, 6, 0.1))
    (action,) = client.trained(vector(4, 4))
    assert isinstance(action, ToServer)
    assert (action.message.weights.tolist(), action.message.age) == ([3, 2], 5.0)
