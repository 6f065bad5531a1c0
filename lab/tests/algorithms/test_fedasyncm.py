"""FedAsyncM: every answer is a step with momentum, N of them are a round. Numbers are worked out in the comments."""

import pytest
from actions import stated, update, vector

from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Join, Leave, ToClient, Update
from spyker.protocol.server import Work


@pytest.fixture
def make(build):
    def one(clients=1, **parameters):
        given = {"server_rate": 1.0, "momentum": 0.25, "staleness_exponent": 1.0} | parameters
        (server,) = build("fedasyncm", [[1] * clients], **given)
        return server

    return one


def answer(server, client, difference, age=None):
    """An answer to the current model, or to an older one. What the client is given next."""
    actions = server.handle(client, Update(vector(difference), server.age if age is None else age, 0))
    (model,) = [a.message for a in actions if isinstance(a, ToClient)]
    return model


def values(server):
    return pytest.approx((server.weights.snapshot().item(), server.momentum.snapshot().item()))


def test_with_one_client_it_moves_as_fedavgm_does(make, build):
    ours = make(server_rate=0.5)
    (theirs,) = build("fedavgm", [[1]], server_rate=0.5, momentum=0.25)
    list(theirs.start())
    for difference in (4, -1, 3):
        answer(ours, 0, difference)
        theirs.handle(0, update(theirs.weights.snapshot().item() + difference, version=theirs.version))
    assert values(ours) == (theirs.weights.snapshot().item(), theirs.momentum.snapshot().item())


def test_each_of_n_clients_counts_one_nth(make):
    # N = 2, √μ = 0.5: m = 4/2 = 2, W = (4 + 0.25 · 2)/2 = 2.25; m = 0.5 · 2 + 8/2 = 5, W = 2.25 + (8 + 0.25 · 5)/2
    server = make(2)
    answer(server, 0, 4)
    assert values(server) == (2.25, 2.0)
    answer(server, 1, 8)
    assert values(server) == (6.875, 5.0)


def test_n_answers_leave_as_much_of_the_momentum_as_a_round_does(make):
    # m = 8/4; after four answers that say nothing, μ · m
    server = make(4)
    answer(server, 0, 8)
    for client in range(4):
        answer(server, client, 0)
    assert server.momentum.snapshot().item() == pytest.approx(0.5)


def test_an_answer_is_the_staler_the_more_rounds_of_answers_came_before_it(make):
    # N = 2: two other answers are one round, τ = 1, s = 1/2: of 8/2 half is added
    server = make(2, momentum=0.0)
    answer(server, 0, 0)
    answer(server, 0, 0)
    assert server.age == 1.0
    (fact,) = stated(server.handle(1, Update(vector(8), 0.0, 0)), UpdateApplied)
    assert fact == UpdateApplied(server=0, client=1, staleness=1.0, weight=0.5, age=1.5, version=3, rate=0.05)
    assert server.weights.snapshot().tolist() == [2]


def test_the_step_grows_when_clients_leave_and_shrinks_when_they_join(make):
    server = make(2, momentum=0.0)
    assert server.handle(1, Leave()) == []
    assert answer(server, 0, 1).weights.tolist() == [1]
    (given,) = [a for a in server.handle(7, Join(1)) if isinstance(a, ToClient)]
    assert (given.client, given.message.weights.tolist()) == (7, [1])
    assert answer(server, 0, 1).weights.tolist() == [1.5]
    answer(server, 9, 0)  # a restarted server may not remember somebody who joined
    assert server.present == {0, 7, 9}


def test_an_answer_to_a_model_that_a_crash_took_back_counts_as_fresh(make):
    (fact,) = stated(make().handle(0, Update(vector(1), 5.0, 9)), UpdateApplied)
    assert (fact.staleness, fact.weight) == (0.0, 1.0)


def test_a_model_that_was_sent_does_not_change_afterwards(make):
    server = make()
    sent = answer(server, 0, 4)
    before = sent.weights.tolist()
    answer(server, 0, 9)
    assert sent.weights.tolist() == before


def test_an_update_costs_a_mix_and_a_newcomer_nothing(make):
    assert make().work(0, Update(vector(0), 0.0, 0)) is Work.MIX
    assert make().work(9, Join(1)) is Work.NOTHING
