"""Algorithms whose clients mask their updates: the same models as without masks, whatever happens in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from actions import timers
from masked_region import CASES, ROUNDING, Region, restarted, through_json, updates_of

from spyker.algorithms.stride_messages import ExchangeModel
from spyker.protocol.facts import ClientQuarantined, RateHalved, RoundEnded, SumDiscarded, SumOpened, UpdateApplied
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.masked_server import OPENING
from spyker.protocol.messages import (
    Join,
    Leave,
    MaskedModel,
    MaskedUpdate,
    MaskTotal,
    OpenRefused,
    OpenRequest,
    ToClient,
    ToServer,
    Update,
)
from spyker.robust.update_filter import FilterParameters
from spyker.sim.sim_seals import SimSealer


@pytest.mark.parametrize("algorithm", CASES)
def test_the_model_is_that_without_masks_up_to_rounding(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    masked, plain = (Region(algorithm, examples, masks=masks, **parameters) for masks in (True, False))
    for _ in range(6):
        masked.rounds(1)
        plain.rounds(1)
        for i in range(len(examples)):
            assert masked.weights(i) == pytest.approx(plain.weights(i), abs=ROUNDING)
    assert len(masked.facts(SumOpened)) == 6 * len(examples)
    assert not masked.facts(SumDiscarded)
    applied = [[(f.server, f.client, f.version) for f in region.facts(UpdateApplied)] for region in (masked, plain)]
    assert sorted(applied[0]) == sorted(applied[1])


def test_the_safety_rules_of_stride_take_the_mean_norm_for_the_median() -> None:
    masked, plain = (Region("stride", [[3, 5, 4, 4]], masks=m, clip=0.0) for m in (True, False))
    masked.rounds(4)
    plain.rounds(4)
    assert masked.weights() == pytest.approx(plain.weights(), rel=0.02)


def test_two_stride_servers_exchange_the_same_models_as_without_masks() -> None:
    masked, plain = (Region("stride", [[3, 5, 4], [2, 2, 3]], masks=m, clip=0.0, safe=False) for m in (True, False))
    for _ in range(3):
        masked.rounds(1)
        plain.rounds(1)
    assert masked.weights(0) == pytest.approx(plain.weights(0), abs=1e-3)
    assert masked.weights(1) == pytest.approx(plain.weights(1), abs=1e-3)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_fedbuff_weighs_masked_updates_by_their_staleness(exponent: float) -> None:
    def play(masks: bool) -> list[float]:
        region = Region("fedbuff", [[1] * 6], masks=masks, buffer=4, staleness_exponent=exponent)
        region.train(0, 1, 2, 3)
        region.deliver()
        region.train(4, 5)  # one step old
        region.tasks |= {k: region.servers[0].handle(k, Join(1))[0].message for k in (0, 1)}
        region.train(0, 1)
        region.deliver()
        return region.weights()

    assert play(True) == pytest.approx(play(False), abs=ROUNDING)


def test_fedbuff_collects_updates_for_the_next_step_while_a_sum_is_being_opened() -> None:
    region = Region("fedbuff", [[1] * 4], buffer=4, staleness_exponent=1.0)
    region.train()
    assert region.servers[0].opening
    region.train()
    assert len([m for *_, m in region.mail if isinstance(m, OpenRequest)]) == 1
    region.deliver()
    assert [f.round for f in region.facts(RoundEnded)] == [1, 2]
    assert len(region.facts(SumOpened)) == 2


# --- While a sum is being opened --------------------------------------------------------------------------------------

ROUNDS = ["fedavg", "hierfavg", "stride"]


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_client_that_leaves_while_the_sum_is_opened_still_counts_and_is_not_given_a_task(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    masked, plain = (Region(algorithm, examples, masks=masks, **parameters) for masks in (True, False))
    for region in (masked, plain):
        region.train(*range(len(examples[0])))
    assert masked.servers[0].opening
    masked.tell(0, 1, Leave())
    masked.deliver()
    plain.deliver()
    assert masked.weights() == pytest.approx(plain.weights(), abs=ROUNDING)
    assert 1 in {f.client for f in masked.facts(UpdateApplied)}
    assert 1 not in masked.tasks
    masked.rounds(2)
    assert len([f for f in masked.facts(RoundEnded) if f.server == 0]) >= 2


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_client_that_joins_while_the_sum_is_opened_takes_part_in_the_next_round(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, **parameters)
    region.train(*range(len(examples[0])))
    newcomer = len(region.clients)
    region.clients.append(MaskingClient(newcomer, 0, SimSealer(5, newcomer), 4, 0))
    region.homes.append(0)
    region.tell(0, newcomer, Join(4))
    region.deliver()
    assert newcomer not in {f.client for f in region.facts(UpdateApplied)}
    region.rounds(2)
    assert newcomer in {f.client for f in region.facts(UpdateApplied)}
    assert not region.facts(SumDiscarded)


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_all_clients_may_leave_while_the_sum_is_opened(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, **parameters)
    region.train(*range(len(examples[0])))
    for k in range(len(examples[0])):
        region.tell(0, k, Leave())
    region.deliver()
    assert len([f for f in region.facts(RoundEnded) if f.server == 0]) == 1
    for k in range(len(examples[0])):
        region.tell(0, k, Join(4))
    region.rounds(2)
    assert len([f for f in region.facts(RoundEnded) if f.server == 0]) >= 2


def test_a_late_update_of_stride_counts_in_the_next_round() -> None:
    region = Region("stride", [[4, 4, 4, 4]], clip=0.0)
    region.train(0, 1, 2)
    region.take(0, region.servers[0].expire("round"))
    region.deliver()
    assert {f.client for f in region.facts(UpdateApplied)} == {0, 1, 2}
    region.train(3)
    region.train(0, 1, 2)
    region.deliver()
    last = region.facts(UpdateApplied)[3:]
    assert {f.client for f in last} == {0, 1, 2, 3}
    assert {f.client: f.staleness > 0 for f in last}[3]


def test_a_late_update_of_stride_that_arrives_while_a_sum_is_opened_waits_for_the_next_one() -> None:
    region = Region("stride", [[4, 4, 4, 4]], clip=0.0)
    region.train(0, 1, 2)
    region.take(0, region.servers[0].expire("round"))
    region.train(3)
    region.deliver()
    assert {f.client for f in region.facts(UpdateApplied)} == {0, 1, 2}
    region.rounds(1)
    assert {f.client for f in region.facts(UpdateApplied)[3:]} == {0, 1, 2, 3}


def test_stride_waits_for_as_many_clients_as_a_sum_needs() -> None:
    region = Region("stride", [[4, 4, 4, 4]], clip=0.0)
    region.train(0, 1)  # half of the clients, but fewer than the threshold
    assert not [t for t, seconds in timers(region.actions) if t == "round" and seconds is not None]
    region.take(0, region.servers[0].expire("round"))
    assert not region.servers[0].opening
    assert not region.facts(SumDiscarded)
    region.train(2)
    assert [t for t, seconds in timers(region.actions) if t == "round" and seconds is not None]
    region.take(0, region.servers[0].expire("round"))
    region.deliver()
    assert {f.client for f in region.facts(UpdateApplied)} == {0, 1, 2}


# --- Sums that are not opened -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_round_is_repeated_if_its_sum_is_refused(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, **parameters)
    before = region.weights()
    region.train(*range(len(examples[0])))
    _, helper, request = next(entry for entry in region.mail if isinstance(entry[2], OpenRequest))
    region.mail.clear()
    region.tell(0, helper, OpenRefused(request.number, "no"))
    assert region.facts(SumDiscarded) == [SumDiscarded(0, helper, 4, "no")]
    assert region.weights() == before
    assert not region.facts(UpdateApplied)
    assert set(range(4)) <= region.tasks.keys(), "all clients train again"
    region.rounds(1)
    assert region.weights() != before


def test_fedbuff_continues_after_a_refused_sum() -> None:
    region = Region("fedbuff", [[1] * 4], buffer=4)
    before = region.weights()
    region.train()
    _, helper, request = region.mail.popleft()
    region.tell(0, helper, OpenRefused(request.number, "no"))
    assert region.weights() == before
    region.rounds(1)
    assert region.weights() != before


def spoilt(update: MaskedUpdate) -> MaskedUpdate:
    """An update whose seal nobody can open."""
    seal = update.seal.copy()
    seal[100] ^= 1
    return MaskedUpdate(
        **{name: getattr(update, name) for name in update.__dataclass_fields__ if name != "seal"}, seal=seal
    )


@pytest.mark.parametrize("algorithm", CASES)
def test_a_client_whose_seals_cannot_be_opened_is_excluded_and_comes_back(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, robust=FilterParameters(quarantine=7.0), **parameters)
    region.tell(0, 2, spoilt(region.answer(2)))
    region.train(0, 1, 3)
    region.deliver()
    assert region.facts(ClientQuarantined) == [ClientQuarantined(0, 2, "seal", 7.0)]
    region.tasks.pop(2, None)
    region.rounds(1)
    assert 2 not in region.tasks
    region.rounds(1)
    assert region.facts(SumOpened)
    region.take(0, region.servers[0].expire("quarantine:2"))
    region.rounds(2)
    assert 2 in region.tasks


def test_a_helper_names_nobody_who_was_not_asked_for() -> None:
    region = Region("fedavg", [[1] * 4], robust=FilterParameters())
    region.train()
    _, helper, request = region.mail.popleft()
    region.tell(0, helper, OpenRefused(request.number, "no", (4, 99)))
    assert not region.facts(ClientQuarantined)


def test_a_sum_that_its_clients_cannot_cause_is_discarded_and_the_round_repeated() -> None:
    region = Region("fedavg", [[1] * 4])
    update = region.answer(1)
    update.masked[:] = np.random.default_rng(1).integers(0, 1 << 32, update.masked.size)
    region.tell(0, 1, update)
    region.train(0, 2, 3)
    region.deliver()
    (fact,) = region.facts(SumDiscarded)
    assert "larger" in fact.reason
    assert region.tasks.keys() == {0, 1, 2, 3}


@pytest.mark.parametrize("spoil", ["masks", "extra"])
def test_an_answer_of_the_wrong_length_is_discarded(spoil: str) -> None:
    region = Region("fedavg", [[1] * 4])
    region.train()
    _, helper, request = region.mail.popleft()
    sizes = {"masks": 3, "extra": 2} | {spoil: 1}
    arrays = {name: np.zeros(size, np.uint32) for name, size in sizes.items()}
    region.tell(0, helper, MaskTotal(request.number, **arrays))
    assert len(region.facts(SumDiscarded)) == 1
    assert region.tasks.keys() == {0, 1, 2, 3}


def test_answers_of_others_than_the_helper_or_to_other_requests_are_ignored() -> None:
    region = Region("fedavg", [[1] * 4])
    region.train()
    (_, helper, request) = region.mail[0]
    zeros = np.zeros(3, np.uint32), np.zeros(2, np.uint32)
    assert region.tell(0, helper + 1, MaskTotal(request.number, *zeros)) == []
    assert region.tell(0, helper, MaskTotal(request.number + 1, *zeros)) == []
    assert region.tell(0, helper + 1, OpenRefused(request.number, "no", (0, 1))) == []
    region.deliver()
    assert region.facts(RoundEnded)
    assert region.tell(0, helper, MaskTotal(request.number, *zeros)) == [], "a second answer"


@pytest.mark.parametrize("algorithm", CASES)
def test_updates_in_clear_are_not_taken_and_their_client_has_left(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, **parameters)
    region.tell(0, 0, Update(np.full(3, 1e9, np.float32), 0.0, 0))
    region.tasks.pop(0, None)
    region.train(1, 2, 3)
    region.deliver()
    assert max(map(abs, region.weights())) < 40
    assert 0 not in {f.client for f in region.facts(UpdateApplied) if f.server == 0}


@pytest.mark.parametrize("algorithm", CASES)
def test_masked_updates_are_not_taken_where_nobody_asked_for_them(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    update = Region(algorithm, examples, **parameters).answer(0)
    plain = Region(algorithm, examples, masks=False, **parameters)
    before = plain.weights()
    plain.tell(0, 0, update)
    assert plain.weights() == before


@pytest.mark.parametrize("algorithm", CASES)
def test_updates_of_the_wrong_length_spoil_no_sum(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, **parameters)
    update = region.answer(0)
    fields = {name: getattr(update, name) for name in update.__dataclass_fields__}
    region.tell(0, 0, MaskedUpdate(**fields | {"extra": np.zeros(1, np.uint32)}))
    region.train(1, 2, 3)
    region.deliver()
    region.rounds(1)
    assert region.facts(SumOpened)
    assert not region.facts(SumDiscarded)


# --- Helpers that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", CASES)
def test_a_helper_that_is_suspected_is_replaced_by_the_next_one(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    region = Region(algorithm, examples, **parameters)
    first = region.first_helper
    assert {region.tasks[k].helper for k in range(4)} == {first}
    region.train(*range(4))
    region.mail.clear()  # the helper is lost
    region.tasks = {k: task for k, task in region.tasks.items() if k >= 4}
    region.take(0, region.servers[0].suspect(frozenset({first})))
    assert [f.reason for f in region.facts(SumDiscarded)] == ["it is suspected"]
    if algorithm == "fedbuff":  # clients have tasks already; these are for the lost helper
        region.tasks = {k: region.servers[0].handle(k, Join(1))[0].message for k in range(4)}
    assert {region.tasks[k].helper for k in range(4)} == {first + 1}
    region.rounds(1)
    assert [f.helper for f in region.facts(SumOpened) if f.server == 0] == [first + 1]


def test_if_all_helpers_are_suspected_the_server_waits_for_the_one_it_asked() -> None:
    region = Region("fedavg", [[1] * 4])
    region.train()
    region.take(0, region.servers[0].suspect(frozenset({1, 2})))
    assert region.servers[0].opening
    region.deliver()
    assert region.facts(SumOpened)


def test_a_helper_that_is_removed_is_given_up_at_once() -> None:
    region = Region("stride", [[4] * 4, [4] * 3, [4] * 3], helpers={0: (1, 2), 1: (2, 0), 2: (0, 1)})
    region.train(0, 1, 2, 3)
    assert {receiver for _, receiver, _ in region.mail} == {1}
    region.mail.clear()
    region.tasks.clear()
    region.take(0, region.servers[0].reform(1, (0, 2), leads=True))
    assert [f.reason for f in region.facts(SumDiscarded)] == ["it is no longer a member"]
    assert not region.servers[0].opening
    assert {task.helper for task in region.tasks.values()} == {2}


def test_a_helper_that_does_not_answer_in_time_is_given_up_until_it_answers_again() -> None:
    region = Region("fedavg", [[1] * 4])
    region.train()
    assert timers(region.actions)[-1] == (OPENING, 30.0)
    lost = region.mail.popleft()
    region.take(0, region.servers[0].expire(OPENING))
    assert [f.reason for f in region.facts(SumDiscarded)] == ["it has not answered"]
    assert {task.helper for task in region.tasks.values()} == {2}
    region.mail.append(lost)  # the answer comes too late
    before = region.weights()
    region.deliver()
    assert region.weights() == before, "and does not count"
    region.rounds(1)
    assert {task.helper for task in region.tasks.values()} == {1}, "but the helper is there again"


# --- Checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", CASES)
def test_a_server_that_restarts_between_request_and_answer_continues(algorithm: str) -> None:
    examples, parameters = CASES[algorithm]
    masked, plain = (Region(algorithm, examples, masks=masks, **parameters) for masks in (True, False))
    masked.rounds(2)
    plain.rounds(2)
    for region in (masked, plain):
        region.train()
    restarted(masked)
    assert masked.servers[0].opening
    for region in (masked, plain):
        region.deliver()
        region.renew()
    assert masked.weights() == pytest.approx(plain.weights(), abs=ROUNDING)
    masked.rounds(1)
    plain.rounds(1)
    assert masked.weights() == pytest.approx(plain.weights(), abs=ROUNDING)


def test_a_helper_that_restarts_refuses_what_it_has_opened() -> None:
    region = Region("fedavg", [[1] * 4])
    region.train()
    (home, helper, request) = region.mail[0]
    region.tell(helper, home, request)
    region.mail.clear()
    again = region.build()[helper]
    again.restore(through_json(region.servers[helper]))
    (action,) = again.handle(home, request)
    assert isinstance(action.message, OpenRefused)
    assert action.message.places == (0, 1, 2, 3)


# --- Stride's own -----------------------------------------------------------------------------------------------------


def test_a_first_round_that_diverges_is_repeated_with_half_the_rate() -> None:
    region = Region("stride", [[4] * 4])
    rate = region.tasks[0].rate
    for k in range(4):
        model = region.tasks.pop(k)
        region.clients[k].handle(0, model)
        (action,) = region.clients[k].trained(np.full(3, np.inf, np.float32))
        region.tell(0, k, action.message)
    before = region.weights()
    region.deliver()
    assert len(region.facts(RateHalved)) == 1
    assert region.weights() == before
    assert {task.rate for task in region.tasks.values()} == {rate / 2}
    region.rounds(1)
    assert region.facts(RoundEnded)


def test_stride_records_updates_whose_sum_was_not_opened_with_weight_0() -> None:
    region = Region("stride", [[4] * 7], clip=0.0)
    region.train(0, 1, 2)
    sums = region.servers[0].masked_sums
    sums.scale -= 2
    tasks = {k: region.servers[0]._to_mask(ToClient(k, plain(region.tasks[k]))).message for k in (3, 4, 5, 6)}
    region.tasks |= tasks
    region.train(3, 4, 5, 6)
    first = next(i for i, entry in enumerate(region.mail) if isinstance(entry[2], OpenRequest))
    _, helper, request = region.mail[first]
    del region.mail[first]
    region.tell(0, helper, OpenRefused(request.number, "no"))
    region.deliver()
    weights = {f.client: f.weight for f in region.facts(UpdateApplied)}
    assert {k for k, weight in weights.items() if weight == 0} == {0, 1, 2}
    assert {k for k, weight in weights.items() if weight > 0} == {3, 4, 5, 6}


def plain(task: MaskedModel) -> Any:
    """The task without what it says about masks."""
    from spyker.protocol.messages import Model

    return Model(task.weights, task.age, task.version, task.rate)


def test_no_state_of_a_server_contains_an_update_in_clear() -> None:
    region = Region("stride", [[4] * 4])
    shown = []
    for k in range(4):
        model = region.tasks[k]
        shown.append(updates_of(k, model.weights) - model.weights)
        region.train(k)
        for array in region.servers[0].state().vectors.values():
            for difference in shown:
                scale = model.scale
                coded = np.rint(difference.astype(np.float64) * 2.0**scale).astype(np.int64).astype(np.uint32)
                if len(array) == len(difference):
                    assert not np.array_equal(array.astype(np.uint32), coded)
                    assert not np.allclose(array, difference)


def test_the_norm_of_strides_round_is_the_median_and_not_the_mean_of_what_was_clipped() -> None:
    region = Region("stride", [[4] * 4], clip=0.5)
    region.rounds(1)
    server = region.servers[0]
    first = server.recent_norms[-1]
    assert region.tasks[0].bound == pytest.approx(first / 2)
    region.rounds(1)
    assert server.recent_norms[-1] > 0.7 * first


def test_bounds_do_not_fall_below_those_of_the_first_round_and_estimates_do() -> None:
    region = Region("fedavg", [[4] * 4])
    region.rounds(1)
    first = region.tasks[0]
    region.rounds(8)
    assert region.tasks[0].median < 0.2 * first.median
    assert region.tasks[0].bound == first.bound


# --- Many clients gone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", CASES)
def test_rounds_complete_with_49_of_100_clients_gone(algorithm: str) -> None:
    examples = [[4] * 100, *CASES[algorithm][0][1:]]
    parameters = CASES[algorithm][1] | ({"buffer": 40} if algorithm == "fedbuff" else {})
    region = Region(algorithm, examples, **parameters)
    for k in range(1, 99, 2):
        region.tasks.pop(k)
        region.tell(0, k, Leave())
    region.rounds(2)
    opened = [f.clients for f in region.facts(SumOpened) if f.server == 0]
    assert len(opened) >= 2
    if algorithm != "fedbuff":  # whose sums have as many clients as its buffer
        assert opened == [51, 51]
    assert not region.facts(SumDiscarded)
    assert len([f for f in region.facts(RoundEnded) if f.server == 0]) >= 2


def test_a_server_with_too_few_clients_for_a_sum_takes_part_in_exchanges_at_once() -> None:
    """No round ends there, so that the others would wait for its progress in vain."""
    server = Region("stride", [[1], [1, 1, 1]]).servers[0]
    weights = server.weights.snapshot()
    actions = server.handle(1, ExchangeModel(weights, np.zeros_like(weights), 3.0, 3, 1))
    assert [a.server for a in actions if isinstance(a, ToServer) and isinstance(a.message, ExchangeModel)] == [1]
