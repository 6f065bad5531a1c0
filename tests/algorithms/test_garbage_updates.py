"""Clients that send garbage instead of masked updates: they are found and excluded, and the others learn meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from masked_region import CASES, Region, restarted

from spyker.protocol.facts import ClientQuarantined, SumDiscarded, SumOpened, UpdateApplied
from spyker.protocol.masked_server import LEFT_OUT, SPOILER
from spyker.protocol.messages import Leave
from spyker.robust.update_filter import FilterParameters

SECONDS = 7.0
EIGHT: dict[str, tuple[list[list[int]], dict[str, Any]]] = {
    "fedavg": ([[4] * 8], {}),
    "hierfavg": ([[4] * 8, [4] * 3], {"edge_rounds": 2}),
    "fedbuff": ([[1] * 8], {"buffer": 8, "staleness_exponent": 1.0}),
    "stride": ([[4] * 8], {"clip": 0.0, "safe": False}),
}


class Spoilt(Region):
    """A region in which some clients send random numbers, whose seals are in order."""

    def __init__(self, algorithm: str, examples: list[list[int]], offenders: set[int], **parameters: Any) -> None:
        self.offenders, self.garbage = offenders, np.random.default_rng(1)
        super().__init__(algorithm, examples, robust=FilterParameters(quarantine=SECONDS), **parameters)

    def answer(self, k: int) -> Any:
        message = super().answer(k)
        if k in self.offenders:
            message.masked[:] = self.garbage.integers(0, 1 << 32, message.masked.size)
        return message

    def excluded(self) -> list[tuple[int, str, float]]:
        return [(f.client, f.reason, f.seconds) for f in self.facts(ClientQuarantined)]

    def until_excluded(self, count: int, most: int = 30) -> None:
        for _ in range(most):
            self.rounds(1)
            if len(self.excluded()) >= count:
                return


@pytest.mark.parametrize("algorithm", EIGHT)
def test_a_client_that_sends_garbage_is_excluded_and_comes_back_later(algorithm: str) -> None:
    examples, parameters = EIGHT[algorithm]
    region = Spoilt(algorithm, examples, {2}, **parameters)
    region.until_excluded(1)
    assert region.excluded() == [(2, SPOILER, SECONDS)]
    region.tasks.pop(2, None)
    before = len(region.facts(SumDiscarded))
    region.rounds(2)
    assert len(region.facts(SumDiscarded)) == before, "sums are sound without it"
    assert 2 not in region.tasks
    region.offenders.clear()
    region.take(0, region.servers[0].expire("quarantine:2"))
    region.rounds(3)
    assert 2 in region.tasks
    assert len(region.excluded()) == 1


@pytest.mark.parametrize("algorithm", EIGHT)
def test_the_others_learn_while_the_offender_is_looked_for(algorithm: str) -> None:
    examples, parameters = EIGHT[algorithm]
    region = Spoilt(algorithm, examples, {5}, **parameters)
    region.rounds(1)
    assert not [f for f in region.facts(SumOpened) if f.server == 0]
    before = region.weights()
    region.rounds(1)
    opened = [f for f in region.facts(SumOpened) if f.server == 0]
    assert opened, "one of two groups is sound"
    assert all(f.clients >= 3 for f in opened)
    assert region.weights() != before
    assert 5 not in {f.client for f in region.facts(UpdateApplied) if f.server == 0 and f.weight > 0} or (
        algorithm == "fedbuff"  # it records updates when they arrive
    )


@pytest.mark.parametrize("algorithm", ["fedavg", "stride"])
def test_two_offenders_are_found_and_the_others_go_on(algorithm: str) -> None:
    region = Spoilt(algorithm, [[4] * 10], {1, 6}, **EIGHT[algorithm][1])
    region.until_excluded(2)
    assert sorted(k for k, *_ in region.excluded()) == [1, 6]


@pytest.mark.parametrize("clients", [4, 5])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedbuff", "stride"])
def test_with_too_few_clients_for_two_groups_some_are_left_out_in_turn(algorithm: str, clients: int) -> None:
    parameters = EIGHT[algorithm][1] | ({"buffer": clients} if algorithm == "fedbuff" else {})
    region = Spoilt(algorithm, [[4] * clients], {0}, **parameters)
    region.until_excluded(1)
    assert [k for k, *_ in region.excluded()] == [0]
    assert LEFT_OUT in {f.reason for f in region.facts(SumDiscarded)}


def test_with_as_many_clients_as_a_sum_needs_a_fact_says_that_the_offender_cannot_be_found_out() -> None:
    region = Spoilt("fedavg", [[4] * 3], {0})
    region.rounds(8)
    assert not region.excluded()
    reasons = {f.reason for f in region.facts(SumDiscarded)}
    assert len(reasons) == 1
    assert reasons.pop().endswith("cannot be found out: there are 3 clients, as many as a sum needs")


def test_without_robust_filtering_nobody_is_excluded() -> None:
    examples, parameters = CASES["fedavg"]
    region = Region("fedavg", examples, **parameters)
    for _ in range(5):
        update = region.answer(1)
        update.masked[:] = 1 << 31
        region.tell(0, 1, update)
        region.rounds(1)
    assert not region.facts(ClientQuarantined)
    assert not region.servers[0].masked_sums.search.searching
    assert "robust.when" in region.facts(SumDiscarded)[-1].reason


def test_clients_that_leave_during_the_search_are_no_reason_to_stop_it() -> None:
    region = Spoilt("fedavg", [[4] * 9], {3})
    region.rounds(2)
    for k in (0, 1):
        region.tasks.pop(k, None)
        region.tell(0, k, Leave())
    region.until_excluded(1)
    assert [k for k, *_ in region.excluded()] == [3]


@pytest.mark.parametrize("algorithm", EIGHT)
def test_a_search_continues_after_restarts_in_the_middle_of_an_opening(algorithm: str) -> None:
    examples, parameters = EIGHT[algorithm]
    region, other = (Spoilt(algorithm, examples, {2}, **parameters) for _ in range(2))
    for _ in range(12):
        for each in (region, other):
            each.train()
        restarted(region)
        for each in (region, other):
            each.deliver()
            each.renew()
    assert region.excluded() == other.excluded() != []
    assert region.weights() == pytest.approx(other.weights(), abs=1e-6)


def test_one_sum_per_round_comes_back_when_no_sum_has_been_spoilt_for_a_while() -> None:
    region = Spoilt("fedavg", [[4] * 9], {3})
    region.until_excluded(1)
    region.rounds(15)
    before = len(region.facts(SumOpened))
    region.rounds(3)
    assert len(region.facts(SumOpened)) == before + 3
