"""HierFAVGM: edges with momentum, which the cloud averages beside the models. The rest is HierFAVG's."""

import pytest
from actions import sent, update, vector

from spyker.protocol.messages import EdgeIdle, Join, Leave
from spyker_lab.algorithms.hierfavgm import CloudMomentum, EdgeMomentum


@pytest.fixture
def servers(build):
    """Two edges with clients 0 and 1 of 1 and 3 data points, and the cloud. Rounds have begun."""

    def make(**parameters):
        made = build("hierfavgm", [[1], [3]], **{"momentum": 0.5, "edge_rounds": 1} | parameters)
        for server in made:
            list(server.start())
        return made

    return make


def model(server):
    return server.weights.snapshot().tolist(), server.momentum.snapshot().tolist()


def test_an_edge_moves_as_fedavgm_does_and_tells_the_cloud_its_momentum(servers):
    # Δ = 4, m = 4, W = 4 + 0.5 · 4 = 6
    edge, _, _ = servers()
    ((receiver, message),) = sent(edge.handle(0, update(4)))
    assert isinstance(message, EdgeMomentum)
    assert (receiver, message.weights.tolist(), message.momentum.tolist()) == (2, [6], [4])
    assert (message.age, message.size) == (1.0, 1)


def test_the_cloud_averages_models_and_momenta_by_data_points(servers):
    # 1/4 · 6 + 3/4 · 2 = 3 and 1/4 · 4 + 3/4 · 8 = 7
    *_, cloud = servers()
    assert sent(cloud.handle(0, EdgeMomentum(vector(6), 1.0, 1, vector(4)))) == []
    told = sent(cloud.handle(1, EdgeMomentum(vector(2), 5.0, 3, vector(8))))
    assert [receiver for receiver, _ in told] == [0, 1]
    for _, message in told:
        assert isinstance(message, CloudMomentum)
        assert (message.weights.tolist(), message.momentum.tolist()) == ([3], [7])
        assert (message.age, message.bid) == (4.0, 1)


def test_a_later_round_of_the_cloud_has_nothing_of_an_earlier_one(servers):
    *_, cloud = servers()
    for value in (8, 0):
        for edge in (0, 1):
            cloud.handle(edge, EdgeMomentum(vector(value), 1.0, 1, vector(value)))
    assert model(cloud) == ([0], [0])


def test_an_edge_moves_on_with_the_average_of_the_momenta(servers):
    # from W = 3, m = 7: the client answers 5, Δ = 2, m = 0.5 · 7 + 2 = 5.5, W = 3 + 2 + 0.5 · 5.5 = 7.75
    edge, _, _ = servers()
    edge.handle(0, update(4))
    edge.handle(2, CloudMomentum(vector(3), 4.0, 1, vector(7)))
    assert model(edge) == ([3], [7])
    edge.handle(0, update(5, version=edge.version))
    assert model(edge) == ([7.75], [5.5])


def test_edges_are_alike_after_each_round_of_the_cloud(servers, settle):
    made = servers()
    for _ in range(3):
        for client, value in ((0, 3), (1, -5)):
            settle(made, client, made[client].handle(client, update(value, version=made[client].version)))
        assert model(made[0]) == model(made[1]) == model(made[2])


def test_an_idle_edge_takes_the_momentum_as_well_and_newcomers_are_not_disturbed(servers):
    edge, _, _ = servers()
    assert sent(edge.handle(0, Leave())) == [(2, EdgeIdle())]
    edge.handle(2, CloudMomentum(vector(3), 4.0, 1, vector(7)))
    assert model(edge) == ([3], [7])
    edge.handle(5, Join(1))
    edge.handle(2, CloudMomentum(vector(9), 9.0, 2, vector(9)))
    assert model(edge) == ([3], [7])


def test_edges_and_cloud_hear_what_is_theirs(servers):
    edge, *_ = servers()
    assert edge.between(0, 2, 2) == (EdgeMomentum, EdgeIdle)
    assert edge.between(2, 0, 2) == (CloudMomentum,)
    assert edge.between(0, 1, 2) == ()
