"""How much of the data that clients claim to have counts."""

from typing import Any

import numpy as np
import pytest
from actions import stated

from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Join, Leave, Model, ToClient, Update
from spyker.robust.claimed_sizes import ClaimedData, ClaimedSizes, bounded_data
from spyker.robust.update_filter import FilterParameters

RULES = FilterParameters(size=2.0)
HUGE = 1 << 31


@pytest.mark.parametrize(
    ("claims", "bounded"),
    [
        ([HUGE], [HUGE]),  # nobody to compare it with
        ([10, HUGE], [10, 20]),
        ([10, 20], [10, 20]),
        ([10, 10, HUGE], [10, 10, 20]),
        ([10, 11, 12, 13, 20, HUGE], [10, 11, 12, 13, 20, 24]),
        ([1, 10, 15], [1, 10, 11]),  # no more than all others together
        ([100] * 9 + [199], [100] * 9 + [199]),
        ([10] * 9 + [HUGE] * 3, [10] * 9 + [20] * 3),
    ],
)
def test_a_claim_counts_up_to_a_multiple_of_the_median_and_half_of_all(claims: list[int], bounded: list[int]) -> None:
    sizes = ClaimedSizes(2.0, dict(enumerate(claims)))
    assert [sizes.bounded(k) for k in range(len(claims))] == bounded


def test_the_limit_follows_joins_and_departures_and_says_whom_it_concerns() -> None:
    sizes = ClaimedSizes(2.0, {0: HUGE})
    assert sizes.changed() == []
    sizes.claim(1, 10)
    assert (sizes.changed(), sizes.bounded(0)) == ([0], 20)
    sizes.claim(2, 10)
    assert (sizes.changed(), sizes.bounded(0)) == ([], 20)
    sizes.drop(1)
    sizes.drop(2)
    assert (sizes.changed(), sizes.bounded(0)) == ([0], HUGE)


def test_a_server_may_have_more_data_through_more_clients_and_not_through_claims() -> None:
    honest = {0: ClaimedData(1000, 100), 1: ClaimedData(40, 4), 2: ClaimedData(30, 2)}
    assert bounded_data(honest, 2.0) == {0: 1000, 1: 40, 2: 30}
    assert bounded_data(honest | {3: ClaimedData(HUGE, 1)}, 2.0)[3] == 20
    assert bounded_data({3: ClaimedData(HUGE, 1)}, 2.0) == {3: HUGE}


def shift(server: Any, actions: list[Any], rounds: int, liar: int) -> float:
    """Let all clients answer with no movement, but for one; return how far the model has moved."""
    before = server.weights.snapshot().copy()
    difference = server.client.difference
    for _ in range(rounds):
        tasks = [(a.client, a.message) for a in actions if isinstance(a, ToClient) and isinstance(a.message, Model)]
        actions = []
        for k, model in tasks:
            change = np.full_like(model.weights, 1.0 if k == liar else 0.0)
            weights = change if difference else model.weights + change
            examples = HUGE if k == liar else None
            actions += server.handle(k, Update(weights, model.age, model.version, examples))
    return float(np.abs(server.weights.snapshot() - before).max())


def test_an_algorithm_sees_bounded_sizes_only(build: Any) -> None:
    (server,) = build("fedavg", [[10, 10, 10, HUGE]], [0.0] * 4, robust=RULES)
    assert server.sizes == {0: 10, 1: 10, 2: 10, 3: 20}
    server.handle(4, Join(HUGE))
    assert server.sizes[4] == 20
    for k in (0, 1, 2):
        server.handle(k, Leave())
    assert server.sizes == {3: HUGE, 4: HUGE}, "nobody is left to compare them with"


def test_a_client_that_came_first_is_bounded_when_others_come(build: Any) -> None:
    for algorithm in ("fedavg", "stride"):
        (server,) = build(algorithm, [[HUGE]], [0.0] * 4, robust=RULES)
        server.handle(1, Join(10))
        server.handle(2, Join(10))
        assert server.sizes == {0: 20, 1: 10, 2: 10}, algorithm


def test_the_examples_of_an_update_are_bounded(build: Any) -> None:
    (server,) = build("fedavg", [[10, 10, 10, 10]], [0.0] * 4, robust=RULES)
    moved = shift(server, list(server.start()), 1, liar=3)
    assert server.sizes[3] == 20
    assert moved == pytest.approx(0.4), "two of five parts"


@pytest.mark.parametrize("algorithm", ["fedavg", "stride"])
def test_clients_that_learn_their_sizes_by_training_count_equally_in_the_first_round(
    build: Any, algorithm: str
) -> None:
    """As in Flower apps. Whoever answers first has nobody to be compared with."""
    (server,) = build(algorithm, [[1, 1, 1]], [0.0] * 4, robust=RULES)
    models = {a.client: a.message for a in server.start() if isinstance(a, ToClient)}
    weights: dict[int, float] = {}
    for k, examples in enumerate((HUGE, 10, 30)):
        model = models[k]
        actions = server.handle(k, Update(np.zeros_like(model.weights), model.age, model.version, examples))
        weights |= {fact.client: fact.weight for fact in stated(actions, UpdateApplied)}
    assert len(weights) == 3
    assert len(set(weights.values())) == 1
    assert server.sizes == {0: 40, 1: 10, 2: 30}


def test_a_server_with_one_client_cannot_dominate_an_exchange(build: Any) -> None:
    servers = build("stride", [[10] * 4, [HUGE], [10] * 4], [0.0] * 4, robust=RULES)
    snapshot = servers[1].take_snapshot(1)
    servers[0].merge(1, snapshot)
    assert servers[0].shares_of_data(servers[0].take_snapshot(2)) == pytest.approx({0: 4 / 10, 1: 2 / 10, 2: 4 / 10})


def test_without_a_filter_every_claim_counts(build: Any) -> None:
    (server,) = build("fedavg", [[10, 10, HUGE]], [0.0] * 4)
    server.handle(3, Join(HUGE - 1))
    assert server.sizes == {0: 10, 1: 10, 2: HUGE, 3: HUGE - 1}


def test_the_bounds_survive_a_restart(build: Any) -> None:
    (server,) = build("fedavg", [[10, 10, HUGE]], [0.0] * 4, robust=RULES)
    (restarted,) = build("fedavg", [[]], [0.0] * 4, robust=RULES)
    restarted.restore(server.state())
    restarted.handle(3, Join(HUGE))
    assert restarted.sizes == {0: 10, 1: 10, 2: 20, 3: 20}
