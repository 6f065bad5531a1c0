"""FedAvg as a state machine: a round lasts until the last of its clients has answered."""

from dataclasses import replace

import pytest
from actions import stated, update

from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.messages import Join, Leave, ToClient
from spyker.protocol.server import Work


def replies(actions):
    return [(a.client, a.message) for a in actions if isinstance(a, ToClient)]


def receivers(actions):
    return [client for client, _ in replies(actions)]


@pytest.fixture
def started(build):
    """A server whose first round has begun, and the clients of that round."""

    def make(sizes, **options):
        (server,) = build("fedavg", [sizes], **options)
        return server, receivers(server.start())

    return make


def play(server, clients):
    """All clients answer; the actions of the last answer."""
    for client in clients:
        actions = server.handle(client, update(1, version=server.version))
    return actions


# --- A round waits ----------------------------------------------------------------------------------------------------


def test_start_sends_the_initial_model_to_every_client(build):
    (server,) = build("fedavg", [[1, 1, 1]], initial=(2,))
    first_models = replies(server.start())
    assert [client for client, _ in first_models] == [0, 1, 2]
    for _, model in first_models:
        assert (model.weights.tolist(), model.age, model.version, model.rate) == ([2.0], 0.0, 0, 0.05)


def test_an_answer_before_the_last_is_not_answered(started):
    server, _ = started([1, 1, 1])
    assert server.handle(2, update(1)) == []
    assert server.handle(0, update(1)) == []


def test_an_answer_before_the_last_leaves_the_model_alone(started):
    server, _ = started([1, 1], initial=(7,))
    server.handle(0, update(1))
    assert server.weights.snapshot().tolist() == [7.0]
    assert (server.age, server.version) == (0.0, 0)


def test_the_last_answer_sends_the_average_to_all_clients(started):
    server, _ = started([1, 1])
    server.handle(1, update(2))
    models = replies(server.handle(0, update(6)))
    assert [(client, m.weights.tolist(), m.age, m.version) for client, m in models] == [
        (0, [4.0], 2.0, 2),
        (1, [4.0], 2.0, 2),
    ]


def test_the_next_round_waits_again_for_everyone(started):
    server, clients = started([1, 1])
    play(server, clients)
    assert server.handle(0, update(3, version=2)) == []
    assert receivers(server.handle(1, update(5, version=2))) == [0, 1]
    assert server.weights.snapshot().tolist() == [4.0]


def test_a_model_that_was_sent_does_not_change_when_the_next_round_ends(started):
    server, _ = started([1])
    ((_, sent),) = replies(server.handle(0, update(5)))
    server.handle(0, update(-50, version=1))
    assert server.weights.snapshot().tolist() == [-50.0]
    assert sent.weights.tolist() == [5.0]


# --- Answers that nobody waits for ------------------------------------------------------------------------------------


def test_a_second_answer_of_the_same_client_changes_nothing(started):
    server, _ = started([1, 1])
    server.handle(0, update(2))
    assert server.handle(0, update(1000)) == []
    server.handle(1, update(6))
    assert server.weights.snapshot().tolist() == [4.0]


def test_an_answer_of_an_unknown_client_changes_nothing(started):
    server, _ = started([1, 1])
    assert server.handle(77, update(1000)) == []
    server.handle(0, update(2))
    server.handle(1, update(6))
    assert server.weights.snapshot().tolist() == [4.0]


def test_an_answer_of_a_client_that_was_not_chosen_changes_nothing(started):
    server, chosen = started([1] * 4, fraction=0.5)
    (idle, _) = sorted({0, 1, 2, 3} - set(chosen))
    assert server.handle(idle, update(1000)) == []
    server.handle(chosen[0], update(2))
    server.handle(chosen[1], update(6))
    assert server.weights.snapshot().tolist() == [4.0]


# --- Answers of another round -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3])
def test_who_trained_the_model_of_another_round_gets_this_ones(started, version):
    server, clients = started([1, 1])
    play(server, clients)
    ((client, model),) = replies(server.handle(0, update(1000, version=version)))
    assert (client, model.weights.tolist(), model.version) == (0, [1.0], 2)


def test_the_model_of_another_round_is_not_averaged(started):
    server, clients = started([1, 1])
    play(server, clients)
    server.handle(0, update(1000, version=5))
    server.handle(1, update(6, version=2))
    assert server.awaited == {0}
    server.handle(0, update(2, version=2))
    assert server.weights.snapshot().tolist() == [4.0]


# --- Who leaves -------------------------------------------------------------------------------------------------------


def test_a_round_ends_when_the_last_awaited_leaves(started):
    server, _ = started([1, 1, 2])
    server.handle(0, update(2))
    server.handle(1, update(6))
    actions = server.handle(2, Leave())
    assert server.weights.snapshot().tolist() == [4.0]
    assert [f.weight for f in stated(actions, UpdateApplied)] == [0.5, 0.5]
    assert receivers(actions) == [0, 1]


def test_the_share_of_who_leaves_falls_to_the_others(started):
    # sizes 1, 2 and 5; without the last: 1/3 · 3 + 2/3 · 9 = 7
    server, _ = started([1, 2, 5])
    server.handle(0, update(3))
    assert server.handle(2, Leave()) == []
    facts = stated(server.handle(1, update(9)), UpdateApplied)
    assert server.weights.snapshot().tolist() == pytest.approx([7.0])
    assert sum(f.weight for f in facts) == pytest.approx(1)


def test_the_answer_of_who_leaves_afterwards_counts(started):
    server, _ = started([1, 1])
    server.handle(0, update(2))
    assert server.handle(0, Leave()) == []
    assert receivers(server.handle(1, update(6))) == [1]
    assert server.weights.snapshot().tolist() == [4.0]


def test_a_round_that_nobody_will_answer_begins_anew_with_the_others(started):
    server, (only,) = started([1] * 4, fraction=0.25)
    (another,) = receivers(server.handle(only, Leave()))
    assert another != only


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_a_server_without_clients_begins_a_round_with_the_first_who_joins(started, fraction):
    server, _ = started([1, 1], fraction=fraction, initial=(3,))
    for client in (0, 1):
        server.handle(client, Leave())
    ((client, model),) = replies(server.handle(7, Join(1)))
    assert (client, model.weights.tolist(), model.version) == (7, [3.0], 0)
    assert stated(server.handle(7, update(5)), RoundEnded) == [RoundEnded(0, 1)]


def test_the_departure_of_a_stranger_changes_nothing(started):
    server, _ = started([1, 1])
    assert server.handle(77, Leave()) == []
    assert server.awaited == {0, 1}


# --- Who takes part ---------------------------------------------------------------------------------------------------


def test_a_round_of_a_fraction_ends_when_the_chosen_have_answered(started):
    server, chosen = started([1] * 10, fraction=0.3)
    assert stated(play(server, chosen), RoundEnded) == [RoundEnded(0, 1)]


def test_every_round_chooses_anew_and_in_time_everyone(started):
    server, chosen = started([1] * 10, fraction=0.3)
    rounds = [chosen]
    for _ in range(40):
        rounds.append(receivers(play(server, rounds[-1])))
    assert {len(chosen) for chosen in rounds} == {3}
    assert set().union(*rounds) == set(range(10))


def test_the_same_seed_chooses_the_same_clients(started):
    def choices(seed):
        server, chosen = started([1] * 20, fraction=0.5, seed=seed)
        return [chosen, receivers(play(server, chosen))]

    assert choices(5) == choices(5)
    assert choices(5) != choices(6)


def test_a_newcomer_takes_part_from_the_next_round_on(started):
    server, clients = started([1, 1])
    assert server.handle(9, Join(2)) == []
    assert receivers(play(server, clients)) == [0, 1, 9]
    # sizes 1, 1, 2: 1/4 · 4 + 1/4 · 8 + 2/4 · 10 = 1 + 2 + 5 = 8
    for client, trained in ((0, 4), (1, 8), (9, 10)):
        server.handle(client, update(trained, version=2))
    assert server.weights.snapshot().tolist() == [8.0]


def test_a_newcomer_does_not_change_the_shares_of_the_round_under_way(started):
    server, _ = started([1, 1])
    server.handle(9, Join(100))
    server.handle(0, update(2))
    server.handle(1, update(6))
    assert server.weights.snapshot().tolist() == [4.0]


def test_updates_are_weighted_by_the_examples_that_they_report_in_the_same_round(started):
    # Equal sizes are assumed; 10, 10 and 20 examples are reported: 1/4 · 4 + 1/4 · 8 + 2/4 · 10 = 8
    server, _ = started([1, 1, 1])
    for client, trained, examples in ((0, 4, 10), (1, 8, 10), (2, 10, 20)):
        actions = server.handle(client, replace(update(trained), examples=examples))
    assert server.weights.snapshot().tolist() == pytest.approx([8.0])
    assert [f.weight for f in stated(actions, UpdateApplied)] == pytest.approx([0.25, 0.25, 0.5])


def test_the_shares_of_a_round_add_up_to_one_though_a_client_joins_again_with_another_size(started):
    # Everyone answers 6, so every weighted average is 6.
    server, _ = started([1, 1])
    server.handle(0, Join(3))
    server.handle(0, update(6))
    server.handle(1, update(6))
    assert server.weights.snapshot().tolist() == [6.0]


# --- What is stated ---------------------------------------------------------------------------------------------------


def test_every_answer_of_a_round_counts_as_one_update(started):
    server, _ = started([1, 3])
    server.handle(1, update(1))
    facts = stated(server.handle(0, update(1)), UpdateApplied)
    assert [(f.client, f.staleness, f.weight, f.age, f.version) for f in facts] == [
        (1, 0.0, 0.75, 1.0, 1),
        (0, 0.0, 0.25, 2.0, 2),
    ]


def test_rounds_are_counted_from_one(started):
    server, clients = started([1, 1])
    ended = [stated(play(server, clients), RoundEnded) for _ in range(3)]
    assert ended == [[RoundEnded(0, 1)], [RoundEnded(0, 2)], [RoundEnded(0, 3)]]


# --- What a message costs ---------------------------------------------------------------------------------------------


def test_only_the_last_answer_of_a_round_costs_the_aggregation(started):
    server, _ = started([1, 1, 1])
    costs = []
    for client in (2, 0, 1):
        costs.append(server.work(client, update(1)))
        server.handle(client, update(1))
    assert costs == [Work.NOTHING, Work.NOTHING, Work.AVERAGE]


def test_an_answer_nobody_waits_for_costs_nothing(started):
    server, _ = started([1, 1])
    server.handle(0, update(1))
    assert server.work(0, update(1)) is Work.NOTHING
    assert server.work(77, update(1)) is Work.NOTHING


def test_a_newcomer_costs_nothing(started):
    server, _ = started([1])
    assert server.work(0, Join(1)) is Work.NOTHING
    assert server.work(9, Join(1)) is Work.NOTHING


def test_a_departure_costs_the_aggregation_only_if_it_ends_the_round(started):
    server, _ = started([1, 1])
    assert server.work(0, Leave()) is Work.NOTHING
    server.handle(0, Leave())
    assert server.work(1, Leave()) is Work.NOTHING  # nothing to average
    server.handle(0, Join(1))
    server.handle(1, update(1))
    server.handle(0, update(1, version=1))
    assert server.work(1, Leave()) is Work.AVERAGE


def test_an_answer_of_another_round_costs_nothing(started):
    server, _ = started([1])
    assert server.work(0, update(1, version=4)) is Work.NOTHING


def test_asking_for_the_cost_changes_nothing(started):
    server, _ = started([1, 1])
    for _ in range(3):
        server.work(0, update(1))
    server.handle(0, update(2))
    server.handle(1, update(6))
    assert server.weights.snapshot().tolist() == [4.0]
