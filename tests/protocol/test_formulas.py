"""Every formula against numbers worked out by hand. The calculation stands in the comment, never in the code."""

import pytest
from actions import vector

from spyker.algorithms.fedasync import FedAsyncParameters
from spyker.algorithms.spyker import SpykerParameters, merge_age, merge_weight
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import EdgeModel, Join, PeerModel, RecordFact, ToClient, ToServer, Update


def weights(server):
    return server.weights.snapshot().tolist()


def close(*expected):
    return pytest.approx(list(expected), rel=1e-6)


def rate_after(server, client):
    """The learning rate that the client gets for its next training."""
    actions = server.handle(client, Update(server.weights.snapshot(), server.age, server.version))
    return next(a.message.rate for a in actions if isinstance(a, ToClient))


def applied(actions):
    return next(a.fact for a in actions if isinstance(a, RecordFact) and isinstance(a.fact, UpdateApplied))


# --- A client update: W ← W + η_i · s(τ) · (W_k − W), s(τ) = (1 + τ)^(−a) ---------------------------------------------


def test_a_fresh_update_moves_the_model_by_the_client_rate(build):
    # τ = 0, s = 1: 0 + 0.6 · 1 · (10 − 0) = 6
    (server,) = build("spyker", [[1]])
    server.handle(0, Update(vector(10), 0.0, 0))
    assert weights(server) == close(6)


def test_every_element_moves_by_the_same_share(build):
    # differences (5, 0, −10), times 0.6: (3, 0, −6); added to (1, −2, 4): (4, −2, −2)
    (server,) = build("spyker", [[1]], initial=(1, -2, 4))
    server.handle(0, Update(vector(6, -2, -6), 0.0, 0))
    assert weights(server) == close(4, -2, -2)


def test_an_update_three_old_counts_half(build, grow):
    # τ = 3 − 0 = 3, s = 4^(−0.5) = 1/2: 0.6 · 1/2 · 10 = 3
    (server,) = build("spyker", [[1]])
    grow(server, 0, 3)
    server.handle(0, Update(vector(10), 0.0, 0))
    assert weights(server) == close(3)


def test_staleness_need_not_be_whole(build, grow):
    # τ = 3 − 1.75 = 1.25, s = 2.25^(−0.5) = 1/1.5 = 2/3: 0.6 · 2/3 · 10 = 4
    (server,) = build("spyker", [[1]])
    grow(server, 0, 3)
    server.handle(0, Update(vector(10), 1.75, 0))
    assert weights(server) == close(4)


def test_an_update_from_a_model_older_than_the_server_counts_as_fresh(build):
    # A merge may lower a server's age below what it has sent: τ = max(0, 0 − 5) = 0, 0.6 · 1 · 10 = 6
    (server,) = build("spyker", [[1]])
    server.handle(0, Update(vector(10), 5.0, 0))
    assert weights(server) == close(6)


@pytest.mark.parametrize(
    ("exponent", "moved"),
    [
        (0.0, 6.0),  # 4^0 = 1: 0.6 · 10
        (1.0, 1.5),  # 4^(−1) = 1/4: 0.6 · 10 / 4
        (2.0, 0.375),  # 4^(−2) = 1/16: 0.6 · 10 / 16
    ],
)
def test_the_staleness_exponent_is_a_parameter(build, grow, exponent, moved):
    # τ = 3 as above
    (server,) = build("spyker", [[1]], staleness_exponent=exponent)
    grow(server, 0, 3)
    server.handle(0, Update(vector(10), 0.0, 0))
    assert weights(server) == close(moved)


def test_the_client_rate_is_a_parameter(build):
    # 4 + 0.25 · (8 − 4) = 5
    (server,) = build("spyker", [[1]], initial=(4,), client_rate=0.25)
    server.handle(0, Update(vector(8), 0.0, 0))
    assert weights(server) == close(5)


def test_two_clients_that_started_from_the_same_model(build):
    # first: 0 + 0.6 · 10 = 6, A = 1; second: τ = 1, s = 1/√2 = 0.70710678,
    # 6 + 0.6 · 0.70710678 · (−4 − 6) = 6 − 4.24264069 = 1.75735931
    (server,) = build("spyker", [[1, 1]])
    server.handle(0, Update(vector(10), 0.0, 0))
    server.handle(1, Update(vector(-4), 0.0, 0))
    assert weights(server) == close(1.75735931)


def test_every_update_adds_one_to_age_and_version(build):
    # 0 + 1 + 1 + 1 = 3, however stale the updates are
    (server,) = build("spyker", [[1]])
    for _ in range(3):
        server.handle(0, Update(vector(1), 0.0, 0))
    assert (server.age, server.version) == (3.0, 3)


def test_the_fact_of_an_update_states_staleness_and_weight(build, grow):
    # τ = 8 − 0 = 8, s = 9^(−0.5) = 1/3, A = 9 afterwards
    (server,) = build("spyker", [[1]])
    grow(server, 0, 8)
    fact = applied(server.handle(0, Update(vector(0), 0.0, 0)))
    assert (fact.staleness, fact.weight, fact.age, fact.version) == pytest.approx((8, 0.3333333333, 9, 9))


# --- Learning rates: η_k = max(η_min, η_init − β(u[k] − ū)) once u[k] ≥ ū ---------------------------------------------


def test_a_client_ahead_of_the_mean_loses_decay_times_its_lead(build):
    # u = (1, 0, 0), ū = 1/3, lead 2/3: 0.05 − 0.005 · 2/3 = 0.04666667
    (server,) = build("spyker", [[1, 1, 1]])
    assert rate_after(server, 0) == pytest.approx(0.0466666667)


def test_decay_never_compounds(build):
    # u = (2, 0, 0), ū = 2/3, lead 4/3: 0.05 − 0.005 · 4/3 = 0.04333333. Taken from the last rate instead of η_init it
    # would be 0.04666667 − 0.00666667 = 0.04.
    (server,) = build("spyker", [[1, 1, 1]])
    rate_after(server, 0)
    assert rate_after(server, 0) == pytest.approx(0.0433333333)


def test_a_client_the_others_have_caught_up_with_gets_its_full_rate_back(build):
    # u = (2, 4): ū = 3. Client 0's third update: u = (3, 4), ū = 3.5, below the mean, 0.05 again.
    (server,) = build("spyker", [[1, 1]])
    for client in (0, 0, 1, 1, 1, 1):
        rate_after(server, client)
    assert rate_after(server, 0) == 0.05


def test_a_client_below_the_mean_keeps_the_initial_rate(build):
    # u = (2, 0, 0), then client 1: u = (2, 1, 0), ū = 1; then client 2: u = (2, 1, 1), ū = 4/3 > 1. The lower branch
    # would give 0.05 + 0.005/3 = 0.05166667, more than η_init.
    (server,) = build("spyker", [[1, 1, 1]])
    for client in (0, 0, 1):
        rate_after(server, client)
    assert rate_after(server, 2) == 0.05


def test_a_client_exactly_at_the_mean_loses_nothing(build):
    # u = (1, 1), ū = 1 after the increment: 0.05 − 0.005 · 0 = 0.05. With ū from before the increment (1/2) it would
    # be 0.0475.
    (server,) = build("spyker", [[1, 1]])
    rate_after(server, 0)
    assert rate_after(server, 1) == 0.05


def test_a_lone_client_is_always_at_the_mean(build, grow):
    # u = (50), ū = 50, lead 0
    (server,) = build("spyker", [[1]])
    grow(server, 0, 49)
    assert rate_after(server, 0) == 0.05


def test_the_rate_never_falls_below_the_floor(build, grow):
    # u = (40, 0), ū = 20, lead 20: 0.05 − 0.005 · 20 = −0.05, hence η_min = 0.000001
    (server,) = build("spyker", [[1, 1]])
    grow(server, 0, 39)
    assert rate_after(server, 0) == 0.000001


def test_the_floor_is_a_parameter(build, grow):
    # u = (10, 0), ū = 5, lead 5: 0.05 − 0.025 = 0.025 < 0.03
    (server,) = build("spyker", [[1, 1]], min_rate=0.03)
    grow(server, 0, 9)
    assert rate_after(server, 0) == 0.03


def test_the_decay_and_the_initial_rate_are_parameters(build, grow):
    # u = (6, 0), ū = 3, lead 3: 0.5 − 0.1 · 3 = 0.2
    (server,) = build("spyker", [[1, 1]], rate=0.5, decay=0.1)
    grow(server, 0, 5)
    assert rate_after(server, 0) == pytest.approx(0.2)


def test_decay_zero_switches_decay_off(build, grow):
    # 0.05 − 0 · 4.5 = 0.05
    (server,) = build("spyker", [[1, 1]], decay=0.0)
    grow(server, 0, 8)
    assert rate_after(server, 0) == 0.05


def test_a_late_joiner_starts_at_the_mean_rounded_down(build, grow):
    # u = (3, 2), ū = 2.5: client 9 starts at 2. Its first update: u = (3, 2, 3), ū = 8/3, lead 1/3:
    # 0.05 − 0.005/3 = 0.04833333. Started at 0 it would get 0.05 (1 < 2), started at 3 it would get 0.045 (4 − 3 = 1).
    (server,) = build("spyker", [[1, 1]])
    grow(server, 0, 3)
    grow(server, 1, 2)
    server.handle(9, Join(1))
    assert rate_after(server, 9) == pytest.approx(0.0483333333)


def test_a_late_joiner_counts_in_the_mean_of_the_others(build, grow):
    # u = (3, 2) and the joiner's 2. Client 0: u = (4, 2, 2), ū = 8/3, lead 4/3: 0.05 − 0.00666667 = 0.04333333.
    # Left out of the mean it would be ū = 3, lead 1, 0.045.
    (server,) = build("spyker", [[1, 1]])
    grow(server, 0, 3)
    grow(server, 1, 2)
    server.handle(9, Join(1))
    assert rate_after(server, 0) == pytest.approx(0.0433333333)


def test_a_client_that_joins_a_server_without_clients_starts_at_zero(build):
    # u = (1) after its first update, ū = 1
    (server,) = build("spyker", [[]])
    server.handle(7, Join(1))
    assert rate_after(server, 7) == 0.05


def test_a_client_that_joins_again_keeps_its_count(build, grow):
    # u = (4, 0), ū = 2, and so it stays. Next update: u = (5, 0), ū = 2.5, lead 2.5: 0.05 − 0.0125 = 0.0375.
    # Set back to 2 it would be u = (3, 0), lead 1.5, 0.0425.
    (server,) = build("spyker", [[1, 1]])
    grow(server, 0, 4)
    server.handle(0, Join(1))
    assert rate_after(server, 0) == pytest.approx(0.0375)


# --- A merge of server models: α = φ(A_j − A)/max(1, A), w = 1/(1 + e^(−α)) -------------------------------------------


@pytest.mark.parametrize(
    ("age", "peer_age", "weight"),
    [
        (7, 7, 0.5),  # α = 0
        (1, 3, 0.9525741268),  # α = 1.5 · 2/1 = 3, e^−3 = 0.0497870684, 1/1.0497870684
        (100, 160, 0.7109495026),  # α = 1.5 · 60/100 = 0.9, e^−0.9 = 0.4065696597, 1/1.4065696597
        (4, 2, 0.3208213008),  # α = 1.5 · (−2)/4 = −0.75, e^0.75 = 2.1170000166, 1/3.1170000166
        (4, 8, 0.8175744762),  # α = 1.5 · 4/4 = 1.5, e^−1.5 = 0.2231301601, 1/1.2231301601
        (3, 1, 0.2689414214),  # α = 1.5 · (−2)/3 = −1, e = 2.7182818285, 1/3.7182818285
    ],
)
def test_merge_weight(age, peer_age, weight):
    assert merge_weight(age, peer_age, 1.5) == pytest.approx(weight)


def test_merge_weight_of_a_server_of_age_zero_divides_by_one():
    # α = 1.5 · (2 − 0)/max(1, 0) = 3
    assert merge_weight(0, 2, 1.5) == pytest.approx(0.9525741268)


def test_merge_weight_of_a_server_younger_than_one_divides_by_one():
    # α = 1.5 · (1.5 − 0.5)/max(1, 0.5) = 1.5; divided by 0.5 it would be 3
    assert merge_weight(0.5, 1.5, 1.5) == pytest.approx(0.8175744762)


def test_activation_zero_ignores_the_ages():
    # α = 0 · 99/1 = 0
    assert merge_weight(1, 100, 0.0) == 0.5


@pytest.mark.parametrize(
    ("age", "peer_age", "weight"),
    [
        (0, 1000, 1.0),  # α = 10^9: e^(−α) is nothing
        (1000, 0, 0.0),  # α = −10^6: e^(−α) has no float, 1/(1 + ∞) is nothing
        (1, 0, 0.0),
    ],
)
def test_merge_weight_does_not_overflow_for_an_extreme_activation(age, peer_age, weight):
    assert merge_weight(age, peer_age, 1e6) == pytest.approx(weight, abs=1e-12)


def test_merge_weight_does_not_overflow_when_alpha_itself_does():
    # φ(A_j − A) exceeds the largest float, on either side
    assert (merge_weight(1, 1e200, 1e200), merge_weight(1e200, 1, 1e308)) == (1.0, 0.0)


def test_merge_age():
    # share 0.25: 0.75 · 4 + 0.25 · 8 = 3 + 2 = 5
    assert merge_age(4, 8, 0.25) == 5


def test_merge_moves_the_model_by_peer_rate_times_weight(build):
    # ages 0 and 0: w = 0.5, share 0.6 · 0.5 = 0.3: (0 + 0.3 · 10, 4 + 0.3 · (−6 − 4)) = (3, 1)
    _, second = build("spyker", [[1], [1]], initial=(0, 4))
    second.handle(0, PeerModel(vector(10, -6), 0.0, 1))
    assert weights(second) == close(3, 1)


def test_merge_with_an_older_model_moves_further_and_raises_the_age(build, grow):
    # A = 4, A_j = 8: w = 0.8175744762 (above), share 0.6 · w = 0.4905446857; W: 0 + 0.4905446857 · 10 = 4.905446857;
    # A: 4 + 0.4905446857 · (8 − 4) = 5.9621787429, and not rounded
    _, second = build("spyker", [[1], [1]])
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(10), 8.0, 1))
    assert weights(second) == close(4.905446857)
    assert second.age == pytest.approx(5.9621787429, rel=1e-9)


def test_merge_with_a_younger_model_moves_less_and_lowers_the_age(build, grow):
    # A = 4, A_j = 2: w = 0.3208213008 (above), share 0.1924927805; W: 1.924927805; A: 4 − 0.384985561 = 3.615014439
    _, second = build("spyker", [[1], [1]])
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(10), 2.0, 1))
    assert weights(second) == close(1.924927805)
    assert second.age == pytest.approx(3.615014439, rel=1e-9)


def test_a_merge_leaves_the_version_alone(build, grow):
    # the version counts client updates: 4 of them
    _, second = build("spyker", [[1], [1]])
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(10), 8.0, 1))
    assert second.version == 4


def test_activation_and_peer_rate_are_parameters(build, grow):
    # A = 4, A_j = 8, φ = 0.9: α = 0.9 · 4/4 = 0.9, w = 0.7109495026 (above); η_a = 1: W = 7.109495026,
    # A = 4 + 0.7109495026 · 4 = 6.8437980104
    _, second = build("spyker", [[1], [1]], activation=0.9, peer_rate=1.0)
    grow(second, 1, 4)
    second.handle(0, PeerModel(vector(10), 8.0, 1))
    assert weights(second) == close(7.109495026)
    assert second.age == pytest.approx(6.8437980104, rel=1e-9)


def test_a_second_merge_starts_from_what_the_first_left(build):
    # ages all 0, share 0.3 each: 0 → 3 → 3 + 0.3 · (−7 − 3) = 0
    second = build("spyker", [[1], [1], [1]])[1]
    second.handle(0, PeerModel(vector(10), 0.0, 1))
    second.handle(2, PeerModel(vector(-7), 0.0, 1))
    assert weights(second) == pytest.approx([0.0], abs=1e-6)


# --- Defaults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "servers", "threshold"),
    [
        (100, 4, 5.0),  # 100/(5 · 4)
        (7, 2, 0.7),  # 7/(5 · 2)
        (200, 4, 10.0),  # 200/(5 · 4)
    ],
)
def test_h_inter_is_clients_over_five_times_servers(clients, servers, threshold):
    assert SpykerParameters().resolve(clients, servers).h_inter == threshold


def test_h_inter_counts_the_clients_of_all_servers(build):
    # 1 + 2 + 12 = 15 clients, 3 servers: 15/(5 · 3) = 1
    for server in build("spyker", [[1], [1] * 2, [1] * 12]):
        assert server.parameters.h_inter == 1.0


def test_h_inter_that_was_set_stays():
    assert SpykerParameters(h_inter=42.0).resolve(100, 4).h_inter == 42.0


def test_defaults_of_spyker():
    p = SpykerParameters()
    assert (p.client_rate, p.staleness_exponent, p.decay, p.min_rate) == (0.6, 0.5, 0.005, 0.000001)
    assert (p.h_intra, p.activation, p.peer_rate) == (350, 1.5, 0.6)


def test_defaults_of_fedasync():
    p = FedAsyncParameters()
    assert (p.client_rate, p.staleness, p.staleness_exponent) == (0.6, "polynomial", 0.5)


# --- FedAsync: the staleness functions --------------------------------------------------------------------------------


def test_fedasync_constant_weight_ignores_staleness():
    assert FedAsyncParameters(staleness="constant").weight(1000.0) == 1.0


@pytest.mark.parametrize(
    ("staleness", "weight"),
    [
        (0, 1.0),  # 1^(−0.5)
        (3, 0.5),  # 4^(−0.5) = 1/2
        (1.25, 0.6666666667),  # 2.25^(−0.5) = 1/1.5
        (99, 0.1),  # 100^(−0.5) = 1/10
    ],
)
def test_fedasync_polynomial_weight(staleness, weight):
    assert FedAsyncParameters().weight(staleness) == pytest.approx(weight)


def test_fedasync_polynomial_exponent_is_a_parameter():
    # 2^(−3) = 1/8
    assert FedAsyncParameters(staleness_exponent=3.0).weight(1.0) == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("staleness", "weight"),
    [
        (0, 1.0),  # up to b = 4 in full
        (4, 1.0),
        (4.1, 0.5),  # 1/(1 + 10 · 0.1) = 1/2
        (5, 0.0909090909),  # 1/(1 + 10 · 1) = 1/11
        (7, 0.0322580645),  # 1/(1 + 10 · 3) = 1/31
    ],
)
def test_fedasync_hinge_weight(staleness, weight):
    assert FedAsyncParameters(staleness="hinge").weight(staleness) == pytest.approx(weight)


def test_fedasync_hinge_slope_and_delay_are_parameters():
    # 1/(1 + 0.5 · (8 − 2)) = 1/4
    p = FedAsyncParameters(staleness="hinge", hinge_slope=0.5, hinge_delay=2.0)
    assert p.weight(8.0) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("function", "moved"),
    [
        ("constant", 6.0),  # 0.6 · 1 · 10
        ("polynomial", 2.4494897428),  # τ = 5: 6^(−0.5) = 0.4082482905, 0.6 · 0.4082482905 · 10
        ("hinge", 0.5454545455),  # τ = 5: 1/11, 0.6 · 10/11
    ],
)
def test_fedasync_moves_the_model_by_rate_times_weight(build, grow, function, moved):
    (server,) = build("fedasync", [[1]], staleness=function)
    grow(server, 0, 5)
    server.handle(0, Update(vector(10), 0.0, 0))
    assert weights(server) == close(moved)


def test_fedasync_staleness_is_never_negative(build):
    # τ = max(0, 0 − 5) = 0: 0.6 · 10; (1 − 5)^(−0.5) would not even be a number
    (server,) = build("fedasync", [[1]])
    server.handle(0, Update(vector(10), 5.0, 0))
    assert weights(server) == close(6)


# --- FedAvg: W ← Σ d_k/d · W_k ----------------------------------------------------------------------------------------


def test_fedavg_averages_by_data_size(build):
    # sizes 1 and 3: 1/4 · 8 + 3/4 · 4 = 2 + 3 = 5, and nothing of the old 100 is left
    (server,) = build("fedavg", [[1, 3]], initial=(100,))
    list(server.start())
    server.handle(0, Update(vector(8), 0.0, 0))
    server.handle(1, Update(vector(4), 0.0, 0))
    assert weights(server) == close(5)


def test_fedavg_averages_three_clients_element_by_element(build):
    # sizes 2, 3, 5 of 10: 0.2 · 10 + 0.3 · 20 + 0.5 · 4 = 2 + 6 + 2 = 10; 0.2 · (−5) + 0.3 · 0 + 0.5 · 6 = −1 + 3 = 2
    (server,) = build("fedavg", [[2, 3, 5]], initial=(0, 0))
    list(server.start())
    for client, trained in enumerate([vector(10, -5), vector(20, 0), vector(4, 6)]):
        server.handle(client, Update(trained, 0.0, 0))
    assert weights(server) == close(10, 2)


@pytest.mark.parametrize(
    ("fraction", "chosen"),
    [
        (1.0, 10),  # all
        (0.3, 3),  # 0.3 · 10
        (0.5, 5),  # 0.5 · 10
        (0.01, 1),  # 0.1 of a client: a round has at least one
    ],
)
def test_fedavg_chooses_a_fraction_of_the_clients(build, fraction, chosen):
    (server,) = build("fedavg", [[1] * 10], fraction=fraction)
    clients = [a.client for a in server.start()]
    assert len(clients) == chosen
    assert len(set(clients)) == chosen


def test_fedavg_shares_are_those_of_the_chosen_clients_alone(build):
    # four clients of size 5, two of them chosen: 5/10 · 2 + 5/10 · 6 = 4. By the size of all, 20, it would be 2.
    (server,) = build("fedavg", [[5] * 4], fraction=0.5)
    one, other = (a.client for a in server.start())
    server.handle(one, Update(vector(2), 0.0, 0))
    server.handle(other, Update(vector(6), 0.0, 0))
    assert weights(server) == close(4)


# --- HierFAVG: the cloud ----------------------------------------------------------------------------------------------


def test_cloud_averages_models_by_data_size(build):
    # sizes 10 and 30: 10/40 · 4 + 30/40 · 8 = 1 + 6 = 7
    cloud = build("hierfavg", [[10], [30]])[2]
    cloud.handle(0, EdgeModel(vector(4), 0.0, 10))
    cloud.handle(1, EdgeModel(vector(8), 0.0, 30))
    assert weights(cloud) == close(7)


def test_cloud_averages_ages_by_data_size(build):
    # 10/40 · 2 + 30/40 · 6 = 0.5 + 4.5 = 5
    cloud = build("hierfavg", [[10], [30]])[2]
    cloud.handle(0, EdgeModel(vector(4), 2.0, 10))
    cloud.handle(1, EdgeModel(vector(8), 6.0, 30))
    assert cloud.age == pytest.approx(5)


def test_cloud_starts_each_average_from_nothing(build):
    # second round: 1/2 · 1 + 1/2 · 3 = 2 and 1/2 · 10 + 1/2 · 20 = 15; nothing of the first is in it
    cloud = build("hierfavg", [[1], [1]])[2]
    for edge in (0, 1):
        cloud.handle(edge, EdgeModel(vector(50), 5.0, 1))
    cloud.handle(0, EdgeModel(vector(1), 10.0, 1))
    cloud.handle(1, EdgeModel(vector(3), 20.0, 1))
    assert (weights(cloud), cloud.age) == (close(2), 15.0)


def test_edge_reports_the_data_size_of_all_its_clients(build):
    # 2 + 5 = 7
    edge = build("hierfavg", [[2, 5]], edge_rounds=1)[0]
    list(edge.start())
    edge.handle(0, Update(vector(1), 0.0, 0))
    actions = edge.handle(1, Update(vector(1), 0.0, 0))
    assert [a.message.size for a in actions if isinstance(a, ToServer)] == [7]


# --- Sync-Spyker: the fold --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, 1, 2])
def test_fold_starts_from_the_first_servers_model(build, grow, id):
    # Models 8, 0, 4, all of age 2, hence w = 0.5 and share 0.3 throughout and the age stays 2.
    # 8 → 8 + 0.3 · (0 − 8) = 5.6 → 5.6 + 0.3 · (4 − 5.6) = 5.12, on every server.
    # From its own model server 1 would get 0 → 2.4 → 2.88 and server 2 would get 4 → 5.2 → 3.64.
    models = [8, 0, 4]
    server = build("sync-spyker", [[1], [1], [1]], initial=(models[id],))[id]
    grow(server, id, 2)
    for peer in {0, 1, 2} - {id}:
        server.handle(peer, PeerModel(vector(models[peer]), 2.0, 1))
    assert (weights(server), server.age) == (close(5.12), pytest.approx(2))


@pytest.mark.parametrize("id", [0, 1])
def test_fold_weighs_by_age_as_a_merge_does(build, grow, id):
    # From server 0 (W = 0, A = 1), server 1 (W = 10, A = 3): w = 0.9525741268 (above), share 0.5715444761;
    # W = 5.715444761, A = 1 + 0.5715444761 · 2 = 2.1430889521
    models, ages = [0, 10], [1, 3]
    server = build("sync-spyker", [[1], [1]], initial=(models[id],))[id]
    grow(server, id, ages[id])
    peer = 1 - id
    server.handle(peer, PeerModel(vector(models[peer]), float(ages[peer]), 1))
    assert weights(server) == close(5.715444761)
    assert server.age == pytest.approx(2.1430889521, rel=1e-9)


def test_fold_uses_the_age_of_the_fold_so_far(build):
    # Server 0: W = 0, A = 1. Server 1: W = 10, A = 3 → W = 5.715444761, A = 2.1430889521 (above).
    # Server 2: W = 0, A = 2.1430889521, no older than the fold so far: w = 0.5, share 0.3,
    # W = 5.715444761 · 0.7 = 4.0008113327. Weighed against age 1, its w would be 0.8474 and not 0.5.
    third = build("sync-spyker", [[1], [1], [1]])[2]
    third.age = 2.1430889521
    third.handle(0, PeerModel(vector(0), 1.0, 1))
    third.handle(1, PeerModel(vector(10), 3.0, 1))
    assert weights(third) == close(4.0008113327)
