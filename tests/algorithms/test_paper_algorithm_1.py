"""Algorithm 1 of the paper, "Interactions between clients and servers", line by line, then sentence by sentence.

Above each test stands the line or the sentence that it holds the code to. Servers are numbered from 0 here.
"""

import numpy as np
import pytest
from actions import vector

from spyker.protocol.client import Client
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Age, Join, Model, PeerModel, RecordFact, ToClient, ToServer, Train, Update


def replies(actions):
    return [(a.client, a.message) for a in actions if isinstance(a, ToClient)]


def applied(actions):
    return next(a.fact for a in actions if isinstance(a, RecordFact) and isinstance(a.fact, UpdateApplied))


# --- [Client C_k] Procedure LocalTraining(W_i, A_i, η_k) --------------------------------------------------------------


# "receive model W_i with age A_i from server S_i"
def test_client_receives_a_model_and_trains_it():
    actions = Client(4, 0).handle(0, Model(vector(1), 3.0, 2, 0.05))
    assert [type(action) for action in actions] == [Train]


# "W_k = W_i"
def test_client_starts_from_the_model_it_received():
    model = vector(1, 2)
    (train,) = Client(4, 0).handle(0, Model(model, 3.0, 2, 0.05))
    assert train.weights is model


# "for each epoch in T_k: update W_k with learning rate η_k" (the epochs themselves are the host's affair)
def test_client_trains_with_the_rate_it_received():
    client = Client(4, 0)
    rates = []
    for rate in (0.05, 0.01):
        (train,) = client.handle(0, Model(vector(1), 0.0, 0, rate))
        rates.append(train.rate)
        client.trained(vector(1))
    assert rates == [0.05, 0.01]


# "W_k^(t+1) = W_k^t; send (W_k^(t+1), A_i) to server S_i"
def test_client_sends_the_trained_model_and_the_age_it_received():
    client = Client(4, 2)
    client.handle(2, Model(vector(1), 3.5, 7, 0.05))
    trained = vector(9)
    (send,) = client.trained(trained)
    assert send.server == 2
    assert send.message.weights is trained
    assert send.message.age == 3.5


# The answer also carries the version: not in the paper, where a server counts no versions.
def test_client_sends_the_version_it_received():
    client = Client(4, 2)
    client.handle(2, Model(vector(1), 3.5, 7, 0.05))
    (send,) = client.trained(vector(9))
    assert send.message.version == 7


# --- [Server S_i] Procedure Aggregation(W_k, A_k) ---------------------------------------------------------------------


# "receive model W_k with age A_k = t' from client C_k": the age is that of the model the client started from
def test_server_receives_what_the_client_answers(build):
    (server,) = build("spyker", [[1]])
    ((client, model),) = replies(server.start())
    node = Client(client, server.id)
    node.handle(server.id, model)
    (answer,) = node.trained(vector(10))
    fact = applied(server.handle(client, answer.message))
    assert (fact.client, fact.staleness) == (0, 0.0)


# "w_k = A_i − A_k"
def test_server_takes_the_age_difference_as_staleness(build, grow):
    (server,) = build("spyker", [[1]])
    grow(server, 0, 5)
    assert applied(server.handle(0, Update(vector(0), 2.0, 2))).staleness == 3.0


# "w_k = A_i − A_k". Deviation: the paper multiplies by the difference itself, so that a fresh update would count
# nothing. Here a fresh update counts in full.
def test_a_fresh_update_counts_in_full_where_the_paper_would_drop_it(build):
    (server,) = build("spyker", [[1]])
    assert applied(server.handle(0, Update(vector(10), 0.0, 0))).weight == 1.0


# "w_k = A_i − A_k". Deviation, the other half: the weight falls with the difference where the paper's would grow.
def test_the_weight_falls_with_staleness_where_the_paper_would_let_it_grow(build, grow):
    (server,) = build("spyker", [[1]])
    grow(server, 0, 9)
    weights = [applied(server.handle(0, Update(vector(0), server.age - stale, 0))).weight for stale in (0, 1, 3, 8)]
    assert weights == sorted(weights, reverse=True)
    assert 0 < weights[-1] < weights[0] == 1.0


# "W_i = W_i + η_i · w_k · (W_k − W_i)"
def test_server_moves_its_model_towards_the_update(build, grow):
    # τ = 3, s = 1/2, η_i = 0.6: 1 + 0.6 · 1/2 · (11 − 1) = 4
    (server,) = build("spyker", [[1]], initial=(1,))
    grow(server, 0, 3)
    server.handle(0, Update(vector(11), 0.0, 0))
    assert server.weights.snapshot().tolist() == pytest.approx([4.0])


# "A_i = A_i + 1"
def test_server_increments_its_age_by_one(build):
    (server,) = build("spyker", [[1]])
    server.handle(0, Update(vector(1), 0.0, 0))
    assert server.age == 1.0


# "A_i = A_i + 1": by one also when the age is not whole, as after a merge
def test_server_increments_a_fractional_age_by_one(build):
    _, second = build("spyker", [[1], [1]])
    second.handle(0, PeerModel(vector(1), 0.5, 1))
    before = second.age
    assert before != round(before)
    second.handle(1, Update(vector(1), 0.0, 0))
    assert second.age == before + 1


# The version grows with the age but counts client updates alone: not in the paper.
def test_server_increments_its_version_by_one(build):
    (server,) = build("spyker", [[1]])
    assert applied(server.handle(0, Update(vector(1), 0.0, 0))).version == 1


# "u[k] = u[k] + 1 (num. updates received per client)"
def test_server_counts_the_updates_of_each_client(build):
    (server,) = build("spyker", [[1, 1, 1]])
    for client in (0, 2, 2):
        server.handle(client, Update(vector(1), 0.0, 0))
    assert server.updates == {0: 1, 1: 0, 2: 2}


# "η[k] = Decay(η[u[k]], u[k], ū)"
def test_server_decays_the_rate_of_the_client_it_answers(build):
    # u = (1, 0), ū = 1/2: 0.05 − 0.005 · 1/2 = 0.0475
    (server,) = build("spyker", [[1, 1]])
    ((_, model),) = replies(server.handle(0, Update(vector(1), 0.0, 0)))
    assert model.rate == pytest.approx(0.0475)


# "send (W_i^(t+1), A_i, η[k]) to client C_k": the new model, the new age
def test_server_sends_the_updated_model_and_its_age_to_the_client(build):
    (server,) = build("spyker", [[1]])
    ((client, model),) = replies(server.handle(0, Update(vector(10), 0.0, 0)))
    assert client == 0
    assert model.weights.tolist() == pytest.approx([6.0])
    assert (model.age, model.version) == (1.0, 1)


# "send (...) to client C_k": to nobody else
def test_server_answers_only_the_client_that_sent_the_update(build):
    (server,) = build("spyker", [[1, 1, 1]])
    assert [client for client, _ in replies(server.handle(1, Update(vector(1), 0.0, 0)))] == [1]


# "checkSynchronization()"
def test_server_checks_the_synchronisation_after_an_update(build):
    first, _ = build("spyker", [[1], [1]], h_inter=1.0)
    actions = first.handle(0, Update(vector(1), 0.0, 0))
    assert [a.server for a in actions if isinstance(a, ToServer)] == [1]


# The order of the last two lines: the client gets its answer before the other servers get anything.
def test_server_answers_the_client_before_it_checks_the_synchronisation(build):
    first, _ = build("spyker", [[1], [1]], h_inter=1.0)
    sends = [a for a in first.handle(0, Update(vector(1), 0.0, 0)) if isinstance(a, ToClient | ToServer)]
    assert [type(a) for a in sends] == [ToClient, ToServer]


# The check sees the age of after the update, not of before: "A_i = A_i + 1" comes first.
def test_the_check_sees_the_age_after_the_update(build):
    _, second = build("spyker", [[1], [1]], h_inter=1.0)
    actions = second.handle(1, Update(vector(1), 0.0, 0))
    assert [a.message for a in actions if isinstance(a, ToServer)] == [Age(1.0)]


# --- The prose: local training ----------------------------------------------------------------------------------------


# "LocalTraining [...] is triggered upon receiving a model": and by nothing else
def test_client_cannot_finish_a_training_it_has_not_begun():
    with pytest.raises(RuntimeError, match="client 4"):
        Client(4, 0).trained(vector(1))


# "... is triggered upon receiving a model": one model, one answer
def test_client_answers_each_model_once():
    client = Client(4, 0)
    client.handle(0, Model(vector(1), 0.0, 0, 0.05))
    client.trained(vector(1))
    with pytest.raises(RuntimeError):
        client.trained(vector(1))


# "The client then trains the model [...] and sends the trained model back": not before
def test_client_sends_nothing_before_it_has_trained():
    actions = Client(4, 0).handle(0, Model(vector(1), 0.0, 0, 0.05))
    assert not any(isinstance(a, ToServer) for a in actions)


# Trainings are numbered, so that a host can seed each of them: not in the paper.
def test_client_numbers_its_trainings_from_zero():
    client = Client(4, 0)
    steps = []
    for _ in range(3):
        (train,) = client.handle(0, Model(vector(1), 0.0, 0, 0.05))
        steps.append(train.step)
        client.trained(vector(1))
    assert steps == [0, 1, 2]


# --- The prose: aggregation -------------------------------------------------------------------------------------------


# "they receive a global model from the server": at the start everyone gets it, with age 0 and the undecayed rate
def test_server_starts_by_sending_the_initial_model_to_all_its_clients(build):
    _, second = build("spyker", [[1], [1, 1]], initial=(3,))
    first_models = replies(second.start())
    assert [client for client, _ in first_models] == [1, 2]
    for _, model in first_models:
        assert (model.weights.tolist(), model.age, model.version, model.rate) == ([3.0], 0.0, 0, 0.05)


# A client that joins late: not in the paper. It gets the current model and age and the undecayed rate.
def test_a_client_that_joins_gets_the_current_model(build):
    (server,) = build("spyker", [[1]])
    server.handle(0, Update(vector(10), 0.0, 0))
    ((client, model),) = replies(server.handle(9, Join(1)))
    assert client == 9
    assert model.weights.tolist() == pytest.approx([6.0])
    assert (model.age, model.version, model.rate) == (1.0, 1, 0.05)


# "Note that instead of having the client sends the model's age with its update, the server could remember": it does
# not, so what the client says is what counts
def test_server_believes_the_age_that_comes_with_the_update(build, grow):
    (server,) = build("spyker", [[1]])
    grow(server, 0, 4)
    assert applied(server.handle(0, Update(vector(0), 4.0, 0))).staleness == 0.0
    assert applied(server.handle(0, Update(vector(0), 1.0, 4))).staleness == 4.0


# "uses it to possibly decrease the impact of the received update": never to increase it
def test_no_update_counts_more_than_a_fresh_one(build):
    (server,) = build("spyker", [[1]])
    fact = applied(server.handle(0, Update(vector(10), 100.0, 0)))
    assert (fact.staleness, fact.weight) == (0.0, 1.0)


# "The server then computes the learning rate [...] that the client should use for its next local training"
def test_the_recorded_rate_is_the_one_the_client_gets_next(build):
    (server,) = build("spyker", [[1, 1]])
    actions = server.handle(0, Update(vector(1), 0.0, 0))
    ((_, model),) = replies(actions)
    assert applied(actions).rate == model.rate < 0.05


# "decrease the impact of the fast clients that frequently generate updates": the further ahead, the smaller the rate
def test_a_client_that_runs_ahead_trains_ever_more_carefully(build):
    (server,) = build("spyker", [[1, 1]])
    rates = [replies(server.handle(0, Update(vector(1), 0.0, 0)))[0][1].rate for _ in range(5)]
    assert rates == sorted(set(rates), reverse=True)


# "Decay = η_k if u[k] < ū"
def test_a_slow_client_is_not_slowed_down(build, grow):
    (server,) = build("spyker", [[1, 1]])
    grow(server, 0, 5)
    ((_, model),) = replies(server.handle(1, Update(vector(1), 0.0, 0)))
    assert model.rate == 0.05


# "Decay = max(η_min, η[u[k]] − β(u[k] − ū)) if u[k] ≥ ū". Deviation: the paper's "learning rate a client would use
# without decay, which classically decreases with u[k]" is η_init throughout, so the same lead costs the same later.
def test_the_same_lead_costs_the_same_however_many_updates_there_were(build, grow):
    (server,) = build("spyker", [[1, 1]])
    ((_, early),) = replies(server.handle(0, Update(vector(1), 0.0, 0)))
    for client in (1, 1, 0) * 30:
        grow(server, client, 1)
    grow(server, 0, 29)  # u = (60, 60)
    assert server.updates == {0: 60, 1: 60}
    ((_, late),) = replies(server.handle(0, Update(vector(1), 0.0, 0)))
    assert late.rate == early.rate


# "η_min is a lower bound for learning rates"
def test_no_rate_falls_below_the_lower_bound(build, grow):
    (server,) = build("spyker", [[1, 1]])
    rates = [model.rate for _, model in replies(grow(server, 0, 100))]
    assert min(rates) == 0.000001


# "ū is the average number of updates that clients have sent to server S_i": clients of other servers do not count
def test_the_mean_is_over_the_clients_of_this_server_alone(build):
    first, _ = build("spyker", [[1], [1] * 9])
    ((_, model),) = replies(first.handle(0, Update(vector(1), 0.0, 0)))
    assert model.rate == 0.05


# "servers are always able to process client or server updates": a synchronisation delays no client
def test_a_client_is_answered_at_once_while_the_servers_synchronise(build):
    first, _ = build("spyker", [[1, 1], [1]], h_inter=1.0)
    first.handle(0, Update(vector(1), 0.0, 0))
    assert first.ongoing_synchro
    actions = first.handle(1, Update(vector(1), 0.0, 0))
    assert [client for client, _ in replies(actions)] == [1]
    assert applied(actions).version == 2


# What a client was sent stays as it was sent, whatever the server does next.
def test_a_model_that_was_sent_does_not_change_afterwards(build):
    (server,) = build("spyker", [[1, 1]])
    ((_, sent),) = replies(server.handle(0, Update(vector(10), 0.0, 0)))
    before = sent.weights.copy()
    server.handle(1, Update(vector(-50), 0.0, 0))
    assert sent.weights.tolist() == before.tolist()
    assert not np.array_equal(server.weights.snapshot(), before)
