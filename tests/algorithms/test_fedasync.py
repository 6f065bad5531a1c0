"""FedAsync as a state machine: every answer is mixed in and answered at once."""

import pytest
from actions import vector

from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Join, Leave, RecordFact, ToClient, Update
from spyker.protocol.server import Work


def replies(actions):
    return [(a.client, a.message) for a in actions if isinstance(a, ToClient)]


def test_start_sends_the_initial_model_to_every_client(build):
    (server,) = build("fedasync", [[1, 1, 1]], initial=(2,))
    first_models = replies(server.start())
    assert [client for client, _ in first_models] == [0, 1, 2]
    for _, model in first_models:
        assert (model.weights.tolist(), model.age, model.version, model.rate) == ([2.0], 0.0, 0, 0.05)


def test_an_update_is_answered_at_once_with_the_new_model(build):
    (server,) = build("fedasync", [[1, 1]])
    ((client, model),) = replies(server.handle(1, Update(vector(10), 0.0, 0)))
    assert client == 1
    assert model.weights.tolist() == pytest.approx([6.0])
    assert (model.age, model.version) == (1.0, 1)


def test_nobody_waits_for_a_client_that_stays_silent(build, grow):
    (server,) = build("fedasync", [[1, 1]])
    assert len(replies(grow(server, 0, 5))) == 5


def test_a_client_that_runs_ahead_keeps_its_rate(build, grow):
    # the decay is Spyker's own
    (server,) = build("fedasync", [[1, 1]])
    assert {model.rate for _, model in replies(grow(server, 0, 50))} == {0.05}


def test_there_is_nobody_to_synchronise_with(build, grow):
    (server,) = build("fedasync", [[1]])
    assert {type(a) for a in grow(server, 0, 1000)} == {ToClient, RecordFact}


def test_a_newcomer_gets_the_current_model_and_changes_nothing(build):
    (server,) = build("fedasync", [[1]])
    server.handle(0, Update(vector(10), 0.0, 0))
    ((client, model),) = replies(server.handle(9, Join(1)))
    assert (client, model.age, model.version, model.rate) == (9, 1.0, 1, 0.05)
    assert model.weights.tolist() == pytest.approx([6.0])
    assert (server.age, server.version) == (1.0, 1)


def test_the_update_of_a_newcomer_is_mixed_in_like_any_other(build):
    (server,) = build("fedasync", [[1]])
    server.handle(9, Join(1))
    server.handle(9, Update(vector(10), 0.0, 0))
    assert server.weights.snapshot().tolist() == pytest.approx([6.0])


def test_every_update_is_stated_with_its_staleness_and_weight(build, grow):
    (server,) = build("fedasync", [[1]])
    grow(server, 0, 3)
    facts = [a.fact for a in server.handle(0, Update(vector(0), 0.0, 0)) if isinstance(a, RecordFact)]
    assert facts == [UpdateApplied(server=0, client=0, staleness=3.0, weight=0.5, age=4.0, version=4, rate=0.05)]


def test_a_model_that_was_sent_does_not_change_afterwards(build):
    (server,) = build("fedasync", [[1]])
    ((_, sent),) = replies(server.handle(0, Update(vector(10), 0.0, 0)))
    before = sent.weights.tolist()
    server.handle(0, Update(vector(-50), 1.0, 1))
    assert sent.weights.tolist() == before


def test_an_update_costs_a_mix_and_a_newcomer_nothing(build):
    (server,) = build("fedasync", [[1]])
    assert server.work(0, Update(vector(0), 0.0, 0)) is Work.MIX
    assert server.work(9, Join(1)) is Work.NOTHING


def test_who_leaves_is_not_answered_and_changes_nothing(build):
    (server,) = build("fedasync", [[1, 1]], initial=(3,))
    assert server.handle(0, Leave()) == []
    assert (server.weights.snapshot().tolist(), server.age, server.version) == ([3.0], 0.0, 0)
    assert server.work(0, Leave()) is Work.NOTHING
