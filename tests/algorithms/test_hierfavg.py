"""HierFAVG as state machines: edges run rounds with their clients, and all edges wait for the cloud."""

import itertools

import numpy as np
import pytest
from actions import sent, stated, update, vector

from spyker.protocol.facts import CloudRoundEnded, RoundEnded
from spyker.protocol.messages import EdgeIdle, EdgeModel, Join, Leave, PeerModel, ToClient
from spyker.protocol.server import Work


def clients_of(actions):
    return [a.client for a in actions if isinstance(a, ToClient)]


@pytest.fixture
def edge(build):
    """An edge with clients 0 and 1, beside another edge with client 2. Its first round has begun."""

    def make(**parameters):
        first, _, _ = build("hierfavg", [[1, 1], [1]], **parameters)
        list(first.start())
        return first

    return make


@pytest.fixture
def cloud(build):
    """The cloud above three edges."""
    return build("hierfavg", [[1], [1], [1]])[3]


def play(edge, value=1):
    """Both clients answer; the actions of the last answer."""
    edge.handle(0, update(value, version=edge.version))
    return edge.handle(1, update(value, version=edge.version))


# --- The edge ---------------------------------------------------------------------------------------------------------


def test_every_edge_starts_a_round_with_its_own_clients(build):
    first, second, _ = build("hierfavg", [[1, 1], [1]])
    assert (clients_of(first.start()), clients_of(second.start())) == ([0, 1], [2])


def test_an_edge_waits_for_the_last_answer_of_its_round(edge):
    server = edge()
    assert server.handle(0, update(1)) == []


def test_by_default_an_edge_asks_the_cloud_after_every_second_round(edge):
    server = edge()
    assert (sent(play(server)), len(sent(play(server)))) == ([], 1)


def test_an_edge_goes_on_without_the_cloud_until_then(edge):
    server = edge(edge_rounds=3)
    assert [clients_of(play(server)) for _ in range(3)] == [[0, 1], [0, 1], []]


def test_an_edge_sends_its_average_to_the_cloud_and_to_nobody_else(edge):
    server = edge(edge_rounds=1)
    server.handle(0, update(2))
    actions = server.handle(1, update(6))
    ((receiver, model),) = sent(actions)
    assert receiver == 2
    assert (model.weights.tolist(), model.age, model.size) == ([4.0], 2.0, 2)
    assert clients_of(actions) == []


def test_an_edge_that_waits_for_the_cloud_ignores_its_clients(edge):
    server = edge(edge_rounds=1)
    play(server, 5)
    assert server.handle(0, update(1000, version=server.version)) == []
    assert server.weights.snapshot().tolist() == [5.0]
    assert server.age == 2.0


def test_the_clouds_model_replaces_the_edges_and_starts_the_next_round(edge):
    server = edge(edge_rounds=1)
    play(server)
    actions = server.handle(2, PeerModel(vector(9), 3.5, 1))
    models = [a.message for a in actions if isinstance(a, ToClient)]
    assert clients_of(actions) == [0, 1]
    assert [(m.weights.tolist(), m.age) for m in models] == [([9.0], 3.5)] * 2


def test_an_edge_counts_its_rounds_to_the_cloud_anew(edge):
    server = edge(edge_rounds=2)
    asked = []
    for _ in range(3):
        asked += [len(sent(play(server))), len(sent(play(server)))]
        server.handle(2, PeerModel(vector(9), 3.5, 1))
    assert asked == [0, 1, 0, 1, 0, 1]


def test_the_clouds_model_does_not_change_in_an_edges_hands(edge):
    server = edge(edge_rounds=1)
    play(server)
    model = vector(9)
    server.handle(2, PeerModel(model, 3.5, 1))
    play(server, 50)
    assert model.tolist() == [9.0]


def test_an_edge_chooses_a_fraction_of_its_clients(build):
    first, _ = build("hierfavg", [[1] * 10], fraction=0.3)
    assert len(clients_of(first.start())) == 3


def test_an_edge_reports_all_its_data_though_a_fraction_trained(build):
    # ten clients with two points each, three of them chosen: 20, not 6
    first, _ = build("hierfavg", [[2] * 10], fraction=0.3, edge_rounds=1)
    for client in clients_of(first.start()):
        actions = first.handle(client, update(1))
    ((_, model),) = sent(actions)
    assert model.size == 20


def test_a_newcomer_takes_part_from_the_next_round_on(edge):
    server = edge(edge_rounds=1)
    play(server)
    assert server.handle(9, Join(3)) == []
    assert clients_of(server.handle(2, PeerModel(vector(9), 3.5, 1))) == [0, 1, 9]


def test_an_edge_states_its_rounds(edge):
    server = edge()
    assert stated(play(server) + play(server), RoundEnded) == [RoundEnded(0, 1), RoundEnded(0, 2)]


# --- The cloud --------------------------------------------------------------------------------------------------------


def test_the_cloud_starts_nothing(cloud):
    assert list(cloud.start()) == []


def test_the_cloud_waits_for_the_last_edge(cloud):
    assert cloud.handle(2, EdgeModel(vector(1), 1.0, 1)) == []
    assert cloud.handle(0, EdgeModel(vector(1), 1.0, 1)) == []
    assert len(sent(cloud.handle(1, EdgeModel(vector(1), 1.0, 1)))) == 3


def test_the_cloud_sends_one_average_to_all_edges(cloud):
    for edge, value in ((0, 1), (1, 2)):
        cloud.handle(edge, EdgeModel(vector(value), 1.0, 1))
    answers = sent(cloud.handle(2, EdgeModel(vector(6), 4.0, 1)))
    # (1 + 2 + 6)/3 = 3, (1 + 1 + 4)/3 = 2
    assert [server for server, _ in answers] == [0, 1, 2]
    for _, model in answers:
        assert (model.weights.tolist(), model.age) == (pytest.approx([3.0]), pytest.approx(2.0))


def test_the_clouds_average_does_not_depend_on_the_order_of_arrival(build):
    # float sums depend on their order, so the cloud must have one of its own
    random = np.random.default_rng(1)
    models = [EdgeModel(random.standard_normal(50).astype(np.float32), age, 3) for age in (0.1, 0.2, 0.7)]
    results = set()
    for order in itertools.permutations(range(3)):
        cloud = build("hierfavg", [[3], [3], [3]], initial=[0.0] * 50)[3]
        for edge in order:
            cloud.handle(edge, models[edge])
        results.add((cloud.weights.snapshot().tobytes(), cloud.age))
    assert len(results) == 1


def test_the_cloud_counts_its_rounds_from_one(cloud):
    facts = []
    for _ in range(2):
        for edge in range(3):
            facts += stated(cloud.handle(edge, EdgeModel(vector(1), 1.0, 1)), CloudRoundEnded)
    assert facts == [CloudRoundEnded(1), CloudRoundEnded(2)]


def test_what_the_cloud_sent_does_not_change_in_its_next_round(cloud):
    for edge in range(3):
        actions = cloud.handle(edge, EdgeModel(vector(3), 1.0, 1))
    ((_, model), *_) = sent(actions)
    for edge in range(3):
        cloud.handle(edge, EdgeModel(vector(50), 1.0, 1))
    assert model.weights.tolist() == pytest.approx([3.0])


# --- Together ---------------------------------------------------------------------------------------------------------


def test_all_edges_start_the_next_round_from_the_same_bits(build, settle):
    servers = build("hierfavg", [[1], [2], [4]], edge_rounds=1)
    for server in servers:
        list(server.start())
    for edge, value in enumerate((0.1, 0.7, 1.3)):
        done = settle(servers, edge, servers[edge].handle(edge, update(value, version=servers[edge].version)))
    edges = servers[:3]
    assert len({(e.weights.snapshot().tobytes(), e.age) for e in edges}) == 1
    # sizes 1, 2, 4 of 7: (0.1 + 1.4 + 5.2)/7 = 6.7/7 = 0.9571428571
    assert edges[0].weights.snapshot().tolist() == pytest.approx([0.9571428571])
    assert sorted(clients_of(a for _, a in done)) == [0, 1, 2]


def test_a_fast_edge_waits_for_a_slow_one(build, settle):
    servers = build("hierfavg", [[1], [1]], edge_rounds=1)
    for server in servers:
        list(server.start())
    done = settle(servers, 0, servers[0].handle(0, update(1)))
    assert clients_of(a for _, a in done) == []


# --- What a message costs ---------------------------------------------------------------------------------------------


def test_only_the_last_answer_of_an_edges_round_costs_the_aggregation(edge):
    server = edge()
    assert server.work(0, update(1)) is Work.NOTHING
    server.handle(0, update(1))
    assert server.work(1, update(1)) is Work.AVERAGE


def test_the_clouds_model_costs_an_edge_nothing(edge):
    server = edge(edge_rounds=1)
    play(server)
    assert server.work(2, PeerModel(vector(1), 1.0, 1)) is Work.NOTHING


def test_an_answer_to_an_edge_that_waits_for_the_cloud_costs_nothing(edge):
    server = edge(edge_rounds=1)
    play(server)
    assert server.work(0, update(1)) is Work.NOTHING


def test_only_the_last_edges_model_costs_the_cloud_the_aggregation(cloud):
    costs = []
    for edge in (1, 0, 2) * 2:
        costs.append(cloud.work(edge, EdgeModel(vector(1), 1.0, 1)))
        cloud.handle(edge, EdgeModel(vector(1), 1.0, 1))
    assert costs == [Work.NOTHING, Work.NOTHING, Work.AVERAGE] * 2


# --- Who leaves -------------------------------------------------------------------------------------------------------


def test_an_edge_that_waits_for_the_cloud_begins_nothing_when_somebody_joins(edge):
    server = edge(edge_rounds=1)
    play(server)
    server.handle(0, Leave())
    server.handle(1, Leave())
    assert clients_of(server.handle(5, Join(1))) == []
    assert clients_of(server.handle(2, PeerModel(vector(9), 3.5, 1))) == [5]


def test_an_edge_that_all_clients_left_begins_when_somebody_joins(edge):
    server = edge(edge_rounds=1)
    play(server)
    server.handle(0, Leave())
    server.handle(1, Leave())
    assert clients_of(server.handle(2, PeerModel(vector(9), 3.5, 1))) == []
    assert clients_of(server.handle(5, Join(1))) == [5]


def test_an_edge_that_its_last_client_left_still_sends_its_model(edge):
    server = edge(edge_rounds=1)
    server.handle(0, update(4))
    server.handle(0, Leave())
    ((_, model),) = sent(server.handle(1, Leave()))
    assert (model.weights.tolist(), model.size) == ([4.0], 1)


# --- An edge without clients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves_first", [True, False])
def test_the_cloud_does_not_wait_for_an_edge_whose_last_client_left_before_it_answered(build, settle, leaves_first):
    servers = build("hierfavg", [[1], [1]], edge_rounds=1)
    for server in servers:
        list(server.start())
    scenes = [(1, Leave()), (0, update(4))]
    done = []
    for client, message in scenes if leaves_first else reversed(scenes):
        done += settle(servers, client, servers[client].handle(client, message))
    assert [action.client for _, action in done if isinstance(action, ToClient)] == [0], "the next round begins"
    assert servers[0].weights.snapshot().tolist() == servers[1].weights.snapshot().tolist() == [4.0]


def test_an_edge_without_clients_says_so_once_for_every_time_that_happens(edge):
    server = edge()
    assert sent(server.handle(0, Leave())) == []
    assert sent(server.handle(1, Leave())) == [(2, EdgeIdle())]
    assert sent(server.handle(5, Join(1))) == []
    assert sent(server.handle(5, Leave())) == [(2, EdgeIdle())]


def test_an_edge_whose_clients_left_while_it_waited_says_so_when_the_cloud_has_answered(edge):
    server = edge(edge_rounds=1)
    play(server)
    assert sent(server.handle(0, Leave()) + server.handle(1, Leave())) == []
    assert sent(server.handle(2, PeerModel(vector(9), 3.5, 1))) == [(2, EdgeIdle())]


def test_an_edge_that_begins_without_clients_says_so(build):
    first, *_ = build("hierfavg", [[], [1]])
    assert sent(first.start()) == [(2, EdgeIdle())]


def test_newcomers_that_train_an_older_model_are_not_disturbed_by_the_clouds(edge):
    server = edge()
    server.handle(0, Leave())
    server.handle(1, Leave())
    server.handle(5, Join(1))
    assert server.handle(2, PeerModel(vector(9), 3.5, 1)) == []
    assert server.weights.snapshot().tolist() == [0.0]
    assert server.age == 0.0


def test_the_cloud_never_averages_nothing(cloud):
    for edge in range(3):
        assert cloud.handle(edge, EdgeIdle()) == []
    assert len(sent(cloud.handle(0, EdgeModel(vector(2), 1.0, 1)))) == 3


def test_the_cloud_waits_again_for_an_edge_that_has_sent_a_model(cloud):
    cloud.handle(2, EdgeIdle())
    cloud.handle(0, EdgeModel(vector(1), 1.0, 1))
    assert len(sent(cloud.handle(1, EdgeModel(vector(3), 1.0, 1)))) == 3
    cloud.handle(2, EdgeModel(vector(1), 1.0, 1))
    cloud.handle(0, EdgeModel(vector(1), 1.0, 1))
    assert len(sent(cloud.handle(1, EdgeModel(vector(1), 1.0, 1)))) == 3
    cloud.handle(0, EdgeModel(vector(1), 1.0, 1))
    assert cloud.handle(1, EdgeModel(vector(1), 1.0, 1)) == [], "edge 2 has clients again"


def test_the_word_of_the_last_edge_without_clients_costs_the_aggregation(cloud):
    assert cloud.work(2, EdgeIdle()) is Work.NOTHING
    cloud.handle(2, EdgeIdle())
    cloud.handle(0, EdgeModel(vector(1), 1.0, 1))
    assert cloud.work(1, EdgeIdle()) is Work.AVERAGE
    assert cloud.work(1, EdgeModel(vector(1), 1.0, 1)) is Work.AVERAGE


# --- Servers that come and go -----------------------------------------------------------------------------------------


def test_an_edge_that_waits_tells_the_cloud_again_when_that_may_be_another_one(edge):
    server = edge(edge_rounds=1)
    ((_, asked),) = sent(play(server))
    ((_, again),) = sent(server.reform(1, [0, 1], leads=False))
    assert (again.age, again.size) == (asked.age, asked.size)
    server.handle(2, PeerModel(vector(5), 5.0, 1))
    assert sent(server.reform(2, [0, 1], leads=False)) == []


def test_an_edge_without_clients_tells_the_cloud_again_when_that_may_be_another_one(edge):
    server = edge()
    for k in (0, 1):
        server.handle(k, Leave())
    assert sent(server.reform(1, [0, 1], leads=False)) == [(2, EdgeIdle())]
