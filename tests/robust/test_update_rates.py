"""How often a client may answer, and what becomes of the excess."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from actions import stated
from every_algorithm import ALGORITHMS

from spyker.protocol.facts import UpdateApplied, UpdateClipped, UpdateDropped
from spyker.protocol.filtered_clients import HELD
from spyker.protocol.messages import Join, Leave, Model, ToClient, Update
from spyker.robust.update_filter import FilterParameters
from spyker.robust.update_rates import UpdateRates

RULES = FilterParameters(rate=5.0)
CLIENTS = 6
ASYNCHRONOUS = [n for n in ALGORITHMS if n in ("spyker", "sync-spyker", "fedasync", "fedbuff", "fadas", "fedasyncm")]


class Region:
    """One server whose clients answer when the test says so."""

    def __init__(self, build: Any, algorithm: str, **parameters: Any) -> None:
        self.server = build(algorithm, [[1] * CLIENTS], [0.0] * 8, robust=RULES, **parameters)[0]
        self.tasks: dict[int, Model] = {}
        self.facts: list[Any] = []
        self.perform(list(self.server.start()))

    def perform(self, actions: list[Any]) -> None:
        self.tasks |= {a.client: a.message for a in actions if isinstance(a, ToClient) and isinstance(a.message, Model)}
        self.facts += stated(actions, UpdateApplied | UpdateClipped | UpdateDropped)

    def answer(self, k: int, norm: float = 1.0) -> None:
        model = self.tasks.pop(k)
        change = np.full_like(model.weights, norm / np.sqrt(model.weights.size))
        weights = change if self.server.client.difference else model.weights + change
        self.perform(self.server.handle(k, Update(weights, model.age, model.version)))

    def count(self, kind: type, k: int) -> int:
        return sum(type(fact) is kind and fact.client == k for fact in self.facts)


@pytest.mark.parametrize("algorithm", ASYNCHRONOUS)
def test_a_client_that_answers_at_once_gets_few_updates_per_period(build: Any, algorithm: str) -> None:
    region = Region(build, algorithm)
    for _ in range(10):
        for k in range(1, CLIENTS):
            for _ in range(50):
                if 0 in region.tasks:
                    region.answer(0)
            region.answer(k)
    honest = region.count(UpdateApplied, 1)
    assert honest == 10, "nothing of the others is dropped, and each has always a task"
    assert not any(region.count(UpdateDropped, k) for k in range(1, CLIENTS))
    assert region.count(UpdateApplied, 0) <= 6 * honest
    assert region.count(UpdateDropped, 0) >= 5


def test_a_client_five_times_as_fast_loses_few_updates() -> None:
    rates, lost = UpdateRates(rate=5.0, reach=2.0), 0
    for _ in range(100):
        for k in range(1, CLIENTS):
            if 0 in rates.held:
                lost += 1
            elif rates.admits(0):
                rates.spend(0, 0.4)
            assert rates.admits(k)
            rates.spend(k, 1.0)
            rates.released(set(range(CLIENTS)))
    assert lost <= 25, "of 500"


def test_updates_that_are_sent_again_after_a_crash_are_neither_dropped_nor_counted() -> None:
    rates = UpdateRates(rate=5.0, reach=2.0)
    for _ in range(100):
        rates.resent.add(0)
        assert rates.admits(0)
        rates.spend(0, 1.0)
    assert rates.left(0) == (15.0, 6.0)
    for _ in range(15):
        assert rates.admits(0)
        rates.spend(0, 1.0)
    assert not rates.admits(0), "the next ones are counted as always"


def test_a_dropped_client_has_no_task_until_the_period_ends(build: Any) -> None:
    region = Region(build, "spyker")
    while 0 in region.tasks:
        region.answer(0)
    region.perform(region.server.handle(0, Leave()))
    region.perform(region.server.handle(0, Join(1)))
    assert 0 not in region.tasks, "also if it joins anew"
    for k in (1, 2, 3, 1, 2):
        region.answer(k)
    assert 0 not in region.tasks
    region.answer(3)
    assert 0 in region.tasks


def test_a_departure_can_end_the_period(build: Any) -> None:
    region = Region(build, "spyker")
    while 0 in region.tasks:
        region.answer(0)
    for k in (1, 2, 3, 4):
        region.perform(region.server.handle(k, Leave()))
    assert 0 not in region.tasks
    region.perform(region.server.handle(5, Leave()))
    assert 0 in region.tasks, "nobody else is left"


def test_clients_that_never_answer_do_not_hold_the_others_forever(build: Any) -> None:
    region = Region(build, "spyker")
    while 0 in region.tasks:
        region.answer(0)
    assert 0 not in region.tasks
    region.perform(region.server.expire(HELD))
    assert 0 in region.tasks


def test_of_two_clients_neither_is_limited(build: Any) -> None:
    region = Region(build, "spyker")
    for k in range(2, CLIENTS):
        region.answer(k)  # so that norms are known
        region.perform(region.server.handle(k, Leave()))
    for _ in range(100):
        region.answer(0)
    assert not region.count(UpdateDropped, 0)
    limits = [fact.limit for fact in region.facts if type(fact) is UpdateClipped]
    assert min(limits) > 0.2, "clipped to a multiple of the median, whatever it has sent before"


def test_a_round_does_not_wait_for_a_client_whose_update_was_dropped(build: Any) -> None:
    region = Region(build, "fedavg")
    rates = region.server.update_filter.rates
    rates.spent[0] = rates.periods, 2 * rates.rate, 0.0
    region.answer(0)
    assert region.count(UpdateDropped, 0) == 1
    for rounds in (1, 2):
        for k in range(1, CLIENTS):
            region.answer(k)
        assert region.server.round == rounds
    for k in range(1, CLIENTS):
        region.answer(k)
    assert sorted(region.tasks) == [0], "it takes part again after the period"


def test_a_held_client_is_part_of_a_checkpoint(build: Any) -> None:
    region = Region(build, "spyker")
    while 0 in region.tasks:
        region.answer(0)
    (restarted,) = build("spyker", [[]], [0.0] * 8, robust=RULES)
    restarted.restore(region.server.state())
    region.server = restarted
    for k in (1, 2, 3, 1, 2, 3):
        region.answer(k)
    assert 0 in region.tasks


def test_a_client_alone_and_clients_of_one_pace_are_never_limited() -> None:
    for clients in ({0}, {0, 1}, set(range(9))):
        rates = UpdateRates(rate=2.0, reach=2.0)
        for _ in range(50):
            for k in sorted(clients):
                assert rates.admits(k)
                rates.spend(k, 1.0)
                rates.released(clients)


def test_a_period_ends_when_more_than_half_of_those_who_are_there_have_sent_twice() -> None:
    random = np.random.default_rng(1)
    rates, restored = UpdateRates(rate=2.0, reach=2.0), UpdateRates(rate=2.0, reach=2.0)
    ended = 0
    for _ in range(3_000):
        k, present = int(random.integers(9)), set(map(int, random.integers(9, size=6)))
        if rates.admits(k):
            rates.spend(k, 1.0)
        enough = sum(j in rates.held or rates.sent.get(j, 0) >= 2 for j in present)
        ends, period = 2 * enough > len(present), rates.periods
        restored.restore(deepcopy(rates.state()))
        assert rates.may_end(len(present)) or not ends
        held = sorted(rates.held)
        assert rates.released(present) == restored.released(present) == (held if ends else [])
        assert rates.periods - period == ends
        ended += ends
    assert ended > 100


def test_allowances_do_not_pile_up() -> None:
    rates = UpdateRates(rate=2.0, reach=100.0)
    for _ in range(100):
        for k in (1, 2):
            rates.admits(k)
        rates.released({0, 1, 2})
    assert rates.periods == 50
    admitted = 0
    while rates.admits(0):
        rates.spend(0, 0.0)
        admitted += 1
    assert admitted == 6


def test_norms_are_spent_together() -> None:
    rates = UpdateRates(rate=100.0, reach=2.0)
    rates.spend(0, 5.5)
    assert rates.left(0)[1] == pytest.approx(0.5)
    rates.spend(0, 0.4)
    rates.spend(0, 0.4)
    assert rates.left(0)[1] == 0.0
    assert rates.admits(0), "it is clipped, and not dropped"


@pytest.mark.parametrize("algorithm", ASYNCHRONOUS)
def test_clients_owe_nothing_for_the_time_in_which_there_were_too_few_to_compare(build: Any, algorithm: str) -> None:
    region = Region(build, algorithm)
    for k in range(2, CLIENTS):
        region.perform(region.server.handle(k, Leave()))
    for _ in range(50):
        region.answer(0)
        region.answer(1)
    region.perform(region.server.handle(2, Join(1)))
    for _ in range(5):
        for k in range(3):
            region.answer(k)
    assert not [fact for fact in region.facts if isinstance(fact, UpdateDropped)]
