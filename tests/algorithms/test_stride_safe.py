"""The rules that keep Stride's steps within what its server has seen. Numbers are worked out in the comments."""

import numpy as np
import pytest
from actions import stated, update, vector

from spyker.algorithms.consensus import Consensus
from spyker.algorithms.reach import Reach
from spyker.algorithms.stride import CLIENTS_WAIT, ROUND
from spyker.algorithms.stride_messages import ExchangeModel, Token
from spyker.protocol.facts import ModelRestored, UpdateApplied
from spyker.protocol.messages import ToClient, ToServer

NO_CLIP = {"clip": 0.0, "divergence_threshold": 0.0}


@pytest.fixture
def started(build, time):
    def make(*rosters, **parameters):
        servers = build("stride", list(rosters), now=time, **NO_CLIP | parameters)
        for server in servers:
            list(server.start())
        return servers

    return make


def play(server, *answers):
    """Client k of a server gives the k-th answer to the newest model."""
    actions = []
    for client, answer in zip(sorted(server.sizes), answers, strict=True):
        values = answer if isinstance(answer, tuple) else (answer,)
        actions += server.handle(client, update(*values, version=server.version))
    return actions


def trusting(server):
    """A server whose progress was confirmed by all others."""
    server.consensus.agreement, server.consensus.measured = 1.0, 1
    return server


def model(server):
    return server.weights.snapshot().tolist()


def stances(actions):
    return [
        (a.server, a.message.bid) for a in actions if isinstance(a, ToServer) and isinstance(a.message, ExchangeModel)
    ]


def stance(*values, bid, data=1):
    return ExchangeModel(vector(*values), vector(*[0.0] * len(values)), 1.0, data, bid)


# --- Reach ------------------------------------------------------------------------------------------------------------


def test_a_step_is_no_longer_than_the_updates(started):
    # c·(d + μ·m) = 2 · (4 + 0.9 · 4) = 15.2, and the update is 4 long
    (server,) = started([1])
    play(server, 4)
    assert model(server) == [4]


def test_updates_that_cancel_each_other_let_their_mean_go_as_far_as_each_of_them(started):
    # the updates are 5 long and agree by a = 3/5, so the bound is 5/0.6; the step would be 2 · 1.9 · 3 = 11.4
    server = trusting(*started([1, 1], initial=(0.0, 100.0)))
    play(server, (3, 4), (3, -4))
    assert model(server) == pytest.approx([25 / 3, 100])


@pytest.mark.parametrize(("size", "bound"), [(0.0, 3), (20.0, 4), (30.0, 6)], ids=["none", "a fifth", "a fifth of 30"])
def test_but_no_farther_than_the_mean_or_a_fifth_of_the_models_norm(started, size, bound):
    server = trusting(*started([1, 1], initial=(0.0, size)))
    play(server, (3, 4), (3, -4))
    assert model(server) == pytest.approx([bound, size])


def test_momentum_shares_in_the_shortening(started):
    # f = 4 / 15.2, and the momentum of 4 is scaled by √f
    server = trusting(*started([1]))
    play(server, 4)
    assert server.momentum.snapshot().tolist() == pytest.approx([4 * (4 / 15.2) ** 0.5])


def test_steady_updates_extend_the_reach():
    reach = Reach()
    reach.observe(vector(1, 0), 1.0, 1.0, vector(0, 100))
    assert reach.bound == 1
    # the model moved by 2, and the update is still there: ρ = 1 · 0.5 and δ = 2 · 0.5 after smoothing, δ/(1 − ρ) = 2
    reach.observe(vector(1, 0), 1.0, 1.0, vector(2, 100))
    assert reach.bound == pytest.approx(2)
    # ρ = 0.75 and δ = 20.5, but a twentieth of the model's norm is about 5
    reach.observe(vector(1, 0), 1.0, 1.0, vector(42, 100))
    assert reach.bound == pytest.approx(0.05 * (42**2 + 100**2) ** 0.5)


def test_a_move_across_the_update_says_nothing_about_how_far_it_holds():
    reach = Reach()
    reach.observe(vector(1, 0), 1.0, 1.0, vector(0, 0))
    reach.observe(vector(1, 0), 1.0, 1.0, vector(0, 9))
    assert reach.bound == 1


def test_one_client_and_one_server_move_as_fedavg_or_farther_and_never_diverge_on_a_parabola(started):
    """A training that goes all the way to the optimum: extending it is what makes momentum diverge."""
    (server,) = started([1], initial=(8.0,))
    for _ in range(60):
        play(server, -model(server)[0])
        assert abs(model(server)[0]) <= 8.01
    assert abs(model(server)[0]) < 1


# --- Consensus --------------------------------------------------------------------------------------------------------


def merged(*theirs, mine=(1.0, 0.0), own=0.5, clients=1):
    """A server with a progress of ``mine`` that has heard one other."""
    parts = Consensus(vector(0.0, 0.0), 0)
    parts.expect(0.0, own)
    parts.advance(vector(*mine), 1.0, vector(0.0, 0.0))
    full = parts.begin_exchange(1)
    parts.merge(1, vector(*theirs), full, 1 - own, own)
    parts.measure(1, own, clients)
    return parts


@pytest.mark.parametrize(
    ("theirs", "agreement"),
    [((1.0, 0.0), 1.0), ((0.0, 1.0), 0.0), ((-1.0, 0.0), 0.0), ((0.5, 0.8), 0.5), ((3.0, 0.0), 1.0)],
    ids=["the same", "unrelated", "opposed", "half", "farther"],
)
def test_agreement_is_how_much_of_own_progress_others_make_too(theirs, agreement):
    assert merged(*theirs).agreement == pytest.approx(agreement)


@pytest.mark.parametrize(("clients", "agreement"), [(1, 0.1), (5, 0.1), (10, 0.2), (25, 0.5), (100, 1.0)])
def test_the_mean_of_many_updates_needs_less_agreement_at_first(clients, agreement):
    assert merged(0.1, 0.9, clients=clients).agreement == pytest.approx(agreement)


def test_but_not_for_long():
    parts = Consensus(vector(0.0, 0.0, 1000.0), 0)
    for bid in range(1, 30):
        parts.advance(vector(1.0, 0.0, 0.0), 1.0, vector(0.0, 0.0, 0.0))
        full = parts.begin_exchange(bid)
        parts.merge(bid, full + vector(-0.9, 0.9, 0.0), full, 0.5, 0.5)  # a tenth is in common
        parts.measure(bid, 0.5, 25)
    assert parts.agreement == pytest.approx(0.1, abs=0.01)


def test_regions_with_many_clients_that_do_not_agree_at_all_are_not_trusted():
    assert merged(0.0, 1.0, clients=100).trust == 0


def test_before_an_exchange_agreement_is_the_mean_of_what_rounds_tell():
    parts = Consensus(vector(0.0), 0)
    for estimate in (1.0, 0.5, 0.0):
        parts.expect(estimate, 0.5)
    assert parts.agreement == pytest.approx(0.5)


def test_an_exchange_makes_the_average_the_common_model():
    parts = merged(0.0, 1.0)
    assert parts.common.snapshot().tolist() == [0.5, 0.5]
    assert parts.progress.tolist() == [0, 0]


def test_own_progress_counts_by_agreement_in_what_is_trained_and_by_its_square_in_what_is_published():
    parts = merged(0.5, 0.8)  # agreement 0.5
    parts.advance(vector(8.0, 0.0), 1.0, vector(0.0, 0.0))
    common = parts.common.snapshot()
    assert (parts.working() - common).tolist() == pytest.approx([8 * (0.5 + 0.5 * 0.5), 0])
    assert (parts.published() - common).tolist() == pytest.approx([8 * 0.25, 0])


def test_progress_of_two_parts_is_sent_once():
    parts = Consensus(vector(0.0), 0)
    parts.advance(vector(2.0), 1.0, vector(0.0))
    first = parts.begin_exchange(1)
    parts.advance(vector(3.0), 1.0, vector(0.0))
    assert (first.tolist(), parts.begin_exchange(2).tolist()) == ([2], [5])


def test_buffers_are_averaged_and_never_scaled():
    parts = Consensus(vector(0.0, 10.0), 1)
    parts.expect(0.0, 0.5)
    parts.advance(vector(1.0, 0.0), 1.0, vector(0.0, 2.0))
    assert parts.published().tolist() == [0, 10], "those of one region are not published where servers do not agree"
    full = parts.begin_exchange(1)
    parts.merge(1, vector(1.0, 20.0), full, 0.5, 0.5)
    assert parts.common.snapshot().tolist() == [1, 16]


def test_consensus_and_reach_outlive_the_process(started):
    server, again = started([1, 1], [1])[0], started([1, 1], [1])[0]
    play(server, 1, 2)
    play(server, 2, 1)
    again.restore(server.state())
    for each in (server, again):
        play(each, 1, 1)
    assert model(again) == model(server)
    assert again.working.tolist() == server.working.tolist()


# --- Servers that do not agree ----------------------------------------------------------------------------------------


def lonely(started, **parameters):
    """Two servers with one client each: nothing is known about how well they agree, and nothing assumed."""
    return started([1], [1], initial=(0.0, 0.0), **parameters)


def test_one_round_of_each_is_averaged_as_in_fedavg(started):
    first, second = lonely(started)
    actions = play(first, (4, 0))
    assert stances(actions) == [(1, 1)], "after one round, though exchange_rounds is 2"
    second_actions = play(second, (0, 2))
    assert stances(second_actions) == [(0, 1)], "it needs no token"
    told = next(a.message for a in second_actions if isinstance(a, ToServer))
    first.handle(1, told)
    assert model(first) == [2, 1], "the mean of the two trainings, which were not extended"


def test_who_hears_of_an_exchange_before_its_round_has_ended_takes_part_when_it_has(started):
    _, second = lonely(started)
    assert stances(second.handle(0, stance(4.0, 0.0, bid=1))) == []
    assert stances(play(second, (0, 2))) == [(0, 1)]
    assert model(second) == [2, 1]


def test_or_when_none_of_its_clients_answers(started, time):
    _, second = lonely(started)
    second.pace = 1.0
    second.handle(0, stance(4.0, 0.0, bid=1))
    assert stances(second.expire(ROUND)) == [(0, 1)]
    assert model(second) == [2, 0]


def test_updates_of_a_model_from_before_the_exchange_do_not_count(started):
    first, _ = lonely(started)
    play(first, (4, 0))
    actions = play(first, (4, 0))  # trained while the exchange was under way
    first.handle(1, stance(0.0, 2.0, bid=1))
    assert model(first) == [2, 1]
    assert [f.weight for f in stated(actions, UpdateApplied)] == [0]


def test_updates_count_if_the_exchange_ended_with_the_round_before(started):
    _, second = lonely(started)
    second.handle(0, stance(4.0, 0.0, bid=1))  # waits until this server's round has ended
    actions = play(second, (0, 2))
    assert tasks(actions) == [(1, [2, 1])], "the exchange is over, and clients have its result"
    assert [f.weight for f in stated(play(second, (1, 1)), UpdateApplied)] == [1]


def test_a_model_that_some_servers_are_missing_from_is_not_published(started):
    first, *_ = started([1], [1], [1], initial=(0.0, 0.0))
    play(first, (3, 0))
    first.handle(1, stance(0.0, 3.0, bid=1))
    assert model(first) == [0, 0]
    first.handle(2, stance(0.0, 0.0, bid=1))
    assert model(first) == pytest.approx([1, 1])


def test_servers_that_agree_leave_exchanges_to_the_holder_of_the_token(started):
    _, second = started([1, 1], [1, 1], initial=(0.0, 0.0))
    assert [stances(play(second, (1, 0), (1, 0))) for _ in range(4)] == [[]] * 4
    assert stances(second.handle(0, Token(0))) == [(0, 1)]


def test_a_steady_common_model_is_extended_where_own_progress_is_not_trusted():
    parts = apart(steps=[1.0, 1.0, 1.0])
    assert parts.trust == pytest.approx(0)
    assert parts.extension == pytest.approx(4, rel=0.01), "1/(1 − 0.75), with ρ smoothed"


def test_one_that_oscillates_takes_shorter_steps():
    parts = apart(steps=[1.0, -1.0, 1.0])
    assert parts.extension == pytest.approx(1 / 1.75, rel=0.01)


def test_an_oscillating_model_is_published_halfway_between_two_exchanges():
    parts = apart(steps=[1.0, -1.0])
    assert parts.common.snapshot()[0] == pytest.approx(0)
    assert parts.published()[0] == pytest.approx(0.5)


def test_growth_along_the_common_model_is_no_agreement():
    # both servers double the model, and besides learn something different
    parts = Consensus(vector(10.0, 0.0, 0.0), 0)
    parts.expect(0.0, 0.5)
    parts.advance(vector(10.0, 1.0, 0.0), 1.0, vector(0.0, 0.0, 0.0))
    full = parts.begin_exchange(1)
    parts.merge(1, vector(20.0, 0.0, 1.0), full, 0.5, 0.5)
    parts.measure(1, 0.5)
    assert parts.agreement == pytest.approx(0)


def apart(*, steps):
    """Two servers that agree on steps of the first weight, and in the second pull in opposite directions."""
    parts = Consensus(vector(0.0, 0.0, 1000.0), 0)
    parts.expect(0.0, 0.5)
    for bid, step in enumerate(steps, 1):
        parts.advance(vector(step, 1.0, 0.0), 1.0, vector(0.0, 0.0, 0.0))
        full = parts.begin_exchange(bid)
        parts.merge(bid, full + vector(0.0, -2.0, 0.0), full, 0.5, 0.5)
        parts.measure(bid, 0.5)
    return parts


def test_clients_wait_for_an_exchange_among_servers_that_do_not_agree(started):
    first, _ = lonely(started)
    assert not tasks(play(first, (4, 0)))
    assert tasks(first.handle(1, stance(0.0, 2.0, bid=1))) == [(0, [2, 1])]
    assert [f.weight for f in stated(play(first, (1, 1)), UpdateApplied)] == [1], "they train the new model"


def test_but_not_for_ever(started):
    first, _ = lonely(started)
    play(first, (4, 0))
    assert [client for client, _ in tasks(first.expire(CLIENTS_WAIT))] == [0]


def test_nor_for_a_server_that_is_suspected(started):
    first, _ = lonely(started)
    play(first, (4, 0))
    assert [client for client, _ in tasks(first.suspect(frozenset({1})))] == [0]


def test_updates_are_clipped_less_where_servers_do_not_agree(started):
    # the last update is longer than the median of 4, but no outlier: 0.6 · 4 with trust, 5 · 0.6 · 4 without
    for agreement, norm in ((1.0, 2.4), (0.0, 8)):
        server = trusting(started([1, 1], [1, 1], initial=(0.0, 0.0), clip=0.6)[0])
        play(server, (4, 0), (4, 0))
        server.consensus.agreement = agreement
        server.handle(0, update(8, 0, version=server.version))
        assert server.sum.snapshot().tolist() == pytest.approx([norm, 0])


def tasks(actions):
    return [(a.client, a.message.weights.tolist()) for a in actions if isinstance(a, ToClient)]


# --- Divergence -------------------------------------------------------------------------------------------------------


def test_updates_that_are_many_times_as_long_for_three_rounds_restore_the_last_good_model(started):
    (server,) = started([1])
    for _ in range(3):
        good = model(server)  # which led to updates of the usual norm
        play(server, 1)
    assert not stated(play(server, 100) + play(server, 200), ModelRestored)
    actions = play(server, 400)
    assert model(server) == good
    assert server.momentum.snapshot().tolist() == [0]
    assert [(f.norm, f.gain) for f in stated(actions, ModelRestored)] == [(400, 1)]
    tasks = [a.message.weights.tolist() for a in actions if isinstance(a, ToClient)]
    assert tasks == [good], "and clients go on from there"


def test_two_long_rounds_are_no_divergence(started):
    (server,) = started([1])
    for norm in (1, 1, 1, 100, 100, 1, 100, 100, 1):
        assert not stated(play(server, norm), ModelRestored)


def test_nothing_is_restored_for_ever(started):
    (server,) = started([1])
    play(server, 1)
    actions = [action for i in range(40) for action in play(server, 100.0 * 2.0**i)]
    assert len(stated(actions, ModelRestored)) == 4


def test_the_rules_can_be_switched_off(started):
    # 2 · (4 + 0.9 · 4)
    (server,) = started([1], safe=False)
    play(server, 4)
    assert np.allclose(model(server), [15.2])


# --- Memory -----------------------------------------------------------------------------------------------------------


def test_between_rounds_two_servers_that_do_not_agree_hold_eight_vectors_each(started, settle):
    # the common model, its last step, the momentum, the last mean update, the models that are trained and published,
    # the last good one, and zeros
    servers = started([1], [1], initial=(0.0, 100.0), exchange_rounds=1)
    for answers in [((3, 4), (3, -4))] * 3:
        for server, answer in zip(servers, answers, strict=True):
            settle(servers, server.id, server.handle(server.id, update(*answer, version=server.version)))
    for server in servers:
        assert server.consensus.measured > 0
        assert server.consensus.agreement < 1
        held = [*server.state().vectors.values(), server.working]
        assert len({id(vector) for vector in held}) <= 8
