"""Stride's rounds with the clients of one server. Numbers are worked out in the comments.

Clients answer with how far their training went.
"""

from itertools import pairwise

import pytest
from actions import stated, timers, update, vector

from spyker.algorithms.stride import NO_UPDATE_PERIOD, ROUND
from spyker.protocol.facts import RateHalved, RoundEnded, UpdateApplied
from spyker.protocol.messages import Join, Leave, ToClient, Update
from spyker.protocol.server import Work

PLAIN = {"momentum": 0.0, "gain": 1.0, "clip": 0.0, "divergence_threshold": 0.0, "safe": False}
"""With these a round moves the model by the mean of its answers."""


@pytest.fixture
def started(build, time):
    def make(sizes, **parameters):
        (server,) = build("stride", [sizes], now=time, **PLAIN | parameters)
        list(server.start())
        return server

    return make


def model(server):
    return server.weights.snapshot().tolist()


def play(server, *answers):
    """Client k gives the k-th answer, and what the last of them causes."""
    for client, answer in enumerate(answers):
        values = answer if isinstance(answer, tuple) else (answer,)
        actions = server.handle(client, update(*values, version=server.version))
    return actions


def models(actions):
    return [(a.client, a.message.weights.tolist(), a.message.version) for a in actions if isinstance(a, ToClient)]


# --- First trainings that run away ------------------------------------------------------------------------------------

WARY = {"initial": (3.0, 4.0), "divergence_threshold": 0.5}
"""The model's length is 5, and so first answers may be 2.5 long."""


def rates(actions):
    return [(a.client, a.message.rate) for a in actions if isinstance(a, ToClient)]


def test_first_trainings_that_go_too_far_are_repeated_with_half_the_rate(started):
    server = started([1, 1, 1], **WARY)
    actions = play(server, (2.6, 0), (0, 9), (1, 0))
    assert model(server) == [3, 4], "nothing of them counts"
    assert rates(actions) == [(k, server.rate / 2) for k in range(3)]
    assert [(f.norm, f.rate) for f in stated(actions, RateHalved)] == [(pytest.approx(2.6), server.rate / 2)]
    assert [(f.weight, f.version, f.rate) for f in stated(actions, UpdateApplied)] == [
        (0.0, version, server.rate / 2) for version in (1, 2, 3)
    ]
    assert not stated(actions, RoundEnded)
    actions = play(server, (1, 1), (1, 1), (1, 1))
    assert model(server) == [4, 5]
    assert server.median_norm == pytest.approx(2**0.5), "and it is the first round"
    assert [f.round for f in stated(actions, RoundEnded)] == [1]
    assert rates(actions) == [(k, server.rate / 2) for k in range(3)], "from here on"


def test_a_lower_rate_stays_if_it_helps_all_clients(started):
    server = started([1, 1], **WARY)
    for _ in range(3):
        play(server, (float("nan"), 0), (1, 0))
    play(server, (1, 0), (1, 0))
    assert (server.starting_rate.halved, server.round) == (3, 1)


def test_a_lower_rate_that_does_not_help_is_taken_back(started):
    server = started([1, 1], **WARY)
    for _ in range(3):
        play(server, (float("nan"), 0), (1, 0))
    server.handle(0, Leave())
    play_one = server.handle(1, update(1, 0, version=server.version))
    assert (server.starting_rate.halved, server.round) == (0, 1)
    assert rates(play_one) == [(1, server.rate)]


def test_what_is_not_a_number_goes_too_far(started):
    server = started([1, 1, 1], **WARY)
    play(server, (float("nan"), 0), (float("nan"), 0), (1, 0))
    assert (model(server), server.starting_rate.halved) == ([3, 4], 1)


@pytest.mark.parametrize(
    ("settings", "first"),
    [(WARY, (2.4, 0)), (WARY | {"divergence_threshold": 0.0}, (100, 0)), (WARY | {"initial": (0.0, 0.0)}, (100, 0))],
    ids=["not so far", "never", "a model of no length"],
)
def test_other_first_trainings_count(started, settings, first):
    server = started([1], **settings)
    play(server, first)
    assert server.starting_rate.halved == 0
    assert model(server)[0] == pytest.approx(settings["initial"][0] + first[0])


def test_later_trainings_may_go_as_far_as_they_like(started):
    server = started([1], **WARY)
    play(server, (1, 0))
    play(server, (100, 0))
    assert (model(server), server.starting_rate.halved) == ([104, 4], 0)


def test_who_does_not_go_by_the_rate_is_not_asked_for_ever(started):
    server = started([1], **WARY)
    for _ in range(4):
        play(server, (100, 0))
    assert (model(server), server.starting_rate.halved) == ([103, 4], 3)


def test_the_halved_rate_outlives_the_process_and_is_handed_over(started):
    server, again, newcomer = (started([1], **WARY) for _ in range(3))
    play(server, (100, 0))
    again.restore(server.state())
    play(server, (1, 0))
    newcomer.bootstrap_from(server.bootstrap_state())
    for other in (again, newcomer):
        assert other.starting_rate.halved == 1
        assert rates(other.handle(1, Join(1))) == [(1, server.rate / 2)]


# --- The step --------------------------------------------------------------------------------------------------------


def test_a_step_is_the_mean_by_data_points_and_looks_ahead(started):
    # d = 1/4 · 8 + 3/4 · 4 = 5, m = 5, W = 1 + 5 + 0.5 · 5 = 8.5
    server = started([1, 3], initial=(1,), momentum=0.5)
    assert models(play(server, 8, 4)) == [(0, [8.5], 2), (1, [8.5], 2)]
    assert server.momentum.snapshot().tolist() == [5]


def test_momentum_is_what_is_left_of_earlier_steps(started):
    # W = 4 + 0.5 · 4 = 6; d = 2, m = 0.5 · 4 + 2 = 4, W = 6 + 2 + 0.5 · 4 = 10; d = 0, m = 2, W = 10 + 0.5 · 2 = 11
    server = started([1, 1], momentum=0.5)
    for value, expected in ((4, 6), (2, 10), (0, 11)):
        play(server, value, value)
        assert model(server) == [expected]


def test_gain_lengthens_what_the_model_moves_and_not_what_is_remembered(started):
    # d = 4, m = 4, W = 2 · (4 + 0.5 · 4) = 12
    server = started([1], momentum=0.5, gain=2.0)
    play(server, 4)
    assert (model(server), server.momentum.snapshot().tolist()) == ([12], [4])


def test_a_round_is_stated_answer_by_answer(started):
    server = started([1, 3])
    actions = play(server, 8, 4)
    facts = stated(actions, UpdateApplied)
    assert [(f.client, f.staleness, f.weight, f.age, f.version) for f in facts] == [(0, 0, 1, 1, 1), (1, 0, 1, 2, 2)]
    assert [f.round for f in stated(actions, RoundEnded)] == [1]


def test_an_answer_from_other_examples_counts_with_those_then_and_later(started):
    # d = 1/4 · 8 + 3/4 · 4 = 5 with three examples of client 1; then 5 + (8 + 3 · 0)/4 = 7
    server = started([1, 1])
    server.handle(0, update(8))
    server.handle(1, Update(vector(4), 0.0, 0, examples=3))
    assert model(server) == [5]
    play(server, 8, 0)
    assert model(server) == [7]


# --- The usual length ------------------------------------------------------------------------------------------------


def test_in_the_first_round_an_answer_is_measured_by_those_until_then(started):
    # lengths 2, 6, 4; medians 2, 4, 4: what counts is 2, 4, 4, and d = 10/3
    server = started([1, 1, 1], clip=1.0)
    play(server, 2, 6, 4)
    assert model(server) == pytest.approx([10 / 3])


def test_later_an_answer_is_measured_by_the_median_of_the_rounds_before(started):
    # usual 4, limit 2: 16, −8 and 1 count as 2, −2 and 1, d = 1/3; the next usual is the median of 2 6 4 16 8 1, 5
    server = started([1, 1, 1], clip=0.5)
    play(server, 2, 6, 4)
    before = model(server)[0]
    play(server, 16, -8, 1)
    assert model(server)[0] - before == pytest.approx(1 / 3)
    assert server.median_norm == 5


def test_a_long_answer_keeps_its_direction_and_its_weight(started):
    # the second answer has length 10, the limit is 5: (3, 4) with weight 3, d = (1/4 · 0 + 3/4 · 3, 1/4 · 5 + 3/4 · 4)
    server = started([1, 3], initial=(0, 0), clip=1.0)
    server.median_norm = 5.0
    server.handle(0, update(0, 5))
    server.handle(1, update(6, 8))
    assert model(server) == pytest.approx([2.25, 4.25])


def test_what_is_usual_follows_the_last_eight_rounds(started):
    # after eight answers of 1: 1 is usual until four of eight are 4 (then 2.5), and with the fifth it is 4
    server = started([1], clip=1.0)
    for _ in range(8):
        play(server, 1)
    reached = [model(server)[0]]
    for _ in range(6):
        play(server, 4)
        reached.append(model(server)[0])
    assert [b - a for a, b in pairwise(reached)] == [1, 1, 1, 1, 2.5, 4]


def test_what_is_usual_falls_no_lower_than_in_the_first_round(started):
    """Or those who have learnt all there is to them would shut out those who have not."""
    server = started([1], clip=0.5)
    for far in (8, *[1] * 20):
        play(server, far)
    before = model(server)[0]
    play(server, 100)
    assert model(server)[0] - before == 4


def test_with_clip_0_an_answer_counts_as_it_comes(started):
    server = started([1], clip=0.0)
    play(server, 1)
    play(server, 1000)
    assert model(server) == [1001]


def test_answers_of_no_length_divide_nothing_by_zero(started):
    server = started([1, 1], clip=0.5)
    for _ in range(2):
        play(server, 0, 0)
    assert model(server) == [0]
    play(server, 8, 8)  # usual 0: the median of 0 0 0 0 8 is 0, and so is that of 0 0 0 0 8 8
    assert model(server) == [8]


# --- Who is late -----------------------------------------------------------------------------------------------------


def test_who_is_late_counts_in_the_next_round(started):
    # (2 + 4)/3 = 2 without client 2; then (12 + 0 + 0)/3 = 4 with it, two updates late
    server = started([1, 1, 1])
    assert models(play(server, 2, 4)) == []
    assert models(server.expire(ROUND)) == [(0, [2], 2), (1, [2], 2)]
    assert server.handle(2, update(12, version=0)) == []
    actions = play(server, 0, 0)
    assert [(client, weights) for client, weights, _ in models(actions)] == [(0, [6]), (1, [6]), (2, [6])]
    assert [(f.client, f.staleness) for f in stated(actions, UpdateApplied)] == [(2, 2), (0, 0), (1, 0)]


@pytest.mark.parametrize(("clients", "half"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_the_others_have_a_share_of_the_time_that_half_of_them_took(started, time, clients, half):
    server = started([1] * clients, patience=1.25)
    asked = []
    for client in range(clients - 1):
        time.now += 1.0
        asked.append(timers(server.handle(client, update(1))))
    assert asked[half - 1] == [(ROUND, 0.25 * half)]
    assert not any(asked[: half - 1] + asked[half:])


def test_the_time_is_that_of_this_round(started, time):
    server = started([1, 1, 1, 1], patience=2.0)
    time.now = 10.0
    play(server, 1, 1, 1, 1)
    time.now = 13.0
    server.handle(0, update(1, version=4))
    assert timers(server.handle(3, update(1, version=4))) == [(ROUND, 3.0)]


def test_if_not_even_half_answer_the_round_before_tells_how_long_to_wait(started, time):
    # half took 3 s of the first round: the second ends after 2 · 1.5 · 3 s if somebody has answered, or else waits on
    server = started([1, 1, 1, 1], patience=1.5)
    time.now = 3.0
    assert timers(play(server, 1, 1, 1, 1)) == [(ROUND, None), (ROUND, 9.0)]
    assert server.work_of(ROUND) is Work.NOTHING
    assert timers(server.expire(ROUND)) == [(ROUND, 9.0)]
    server.handle(3, update(9, version=4))
    assert server.work_of(ROUND) is Work.AVERAGE
    assert models(server.expire(ROUND)) == [(3, [1 + 9 / 4], 5)]


def test_after_a_round_of_no_time_nobody_is_looked_for_all_the_time(started, time):
    server = started([1, 1], patience=1.5)
    time.now = 0.001
    assert timers(play(server, 1, 1)) == [(ROUND, None), (ROUND, 0.003)]
    assert timers(server.expire(ROUND)) == [(ROUND, NO_UPDATE_PERIOD)]


def test_the_first_round_waits_for_half_of_the_clients(started):
    server = started([1, 1, 1])
    assert timers(server.handle(0, update(1))) == []


def test_the_last_answer_of_a_round_costs_the_aggregation(started):
    server = started([1, 1])
    assert server.work(0, update(1)) is Work.NOTHING
    server.handle(0, update(1))
    assert server.work(1, update(1)) is Work.AVERAGE


# --- Who comes and goes ----------------------------------------------------------------------------------------------


def test_a_newcomer_trains_at_once_and_is_awaited(started):
    # (2 + 4 + 2 · 6)/4 = 4.5
    server = started([1, 1])
    server.handle(0, update(2))
    assert models(server.handle(7, Join(2))) == [(7, [0], 0)]
    assert models(server.handle(1, update(4))) == []
    server.handle(7, update(6))
    assert model(server) == [4.5]


def test_who_has_answered_and_comes_back_gets_the_next_model(started):
    server = started([1, 1])
    server.handle(0, update(2))
    assert models(server.handle(0, Join(3))) == []
    assert models(server.handle(1, update(4))) == [(0, [3], 2), (1, [3], 2)]
    play(server, 4, 0)
    assert model(server) == [6], "with its new size: 3 + 3/4 · 4"


def test_what_someone_has_answered_counts_also_if_it_has_left(started):
    # (2 + 4)/2 = 3, for client 1 alone
    server = started([1, 1])
    server.handle(0, update(2))
    assert models(server.handle(0, Leave())) == []
    assert models(server.handle(1, update(4))) == [(1, [3], 2)]


def test_what_someone_has_answered_is_stated_also_if_it_has_left(started):
    server = started([1, 1])
    server.handle(0, update(2))
    server.handle(0, Leave())
    assert [fact.client for fact in stated(server.handle(1, update(4)), UpdateApplied)] == [0, 1]


def test_who_has_left_is_not_awaited_nor_heard(started):
    server = started([1, 1, 1])
    server.handle(2, Leave())
    assert server.handle(2, update(100)) == []
    play(server, 2, 4)
    assert model(server) == [3]


def test_if_the_last_who_was_awaited_leaves_the_round_ends(started):
    server = started([1, 1])
    server.handle(0, update(2))
    assert models(server.handle(1, Leave())) == [(0, [2], 1)]


def test_when_all_have_left_what_they_said_counts_when_the_round_runs_out(started):
    # 2, and then 2 + 6
    server = started([1])
    server.handle(1, Join(1))
    server.handle(0, update(2))
    server.handle(0, Leave())
    server.handle(1, Leave())
    assert (models(server.expire(ROUND)), server.round) == ([], 1)
    assert models(server.handle(5, Join(3))) == [(5, [2], 1)]
    assert models(server.handle(5, update(6))) == [(5, [8], 2)]


def test_a_departure_may_make_those_who_have_answered_half(started):
    server = started([1, 1, 1, 1, 1])
    asked = timers(play(server, 1, 1))
    asked += timers(server.handle(4, Leave()))
    asked += timers(server.handle(2, update(1)))
    assert asked, "three of four have answered in the first round, and the fourth is waited for without end"
