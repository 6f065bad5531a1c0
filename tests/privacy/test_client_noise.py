"""The noise of client-level differential privacy, its cost, and what it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from spyker.config.client_privacy import ClientBudget, check_noise, client_privacy
from spyker.config.privacy_settings import PrivacySettings
from spyker.config.scenario import load
from spyker.errors import UsageError
from spyker.node.secret_noise import secret_noise
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of, noise_for
from spyker.privacy.client_noise import ClientPrivacy, NoisySums, clipped, normals
from spyker.privacy.gaussian_accounting import gaussian_delta, gaussian_epsilon, gaussian_noise, log_normal
from spyker.sim.sim_noise import sim_noise
from spyker.vectors import Vector

SIZE = 1000
ZERO = np.zeros(SIZE, np.float32)
UNIT = {"privacy.unit": "client", "privacy.epsilon": 8.0, "privacy.delta": 1e-6, "privacy.trainings": 100}


def sums(server: int = 0, *, noise: float = 1.0, clip: float = 1.0, stream: Any = None) -> NoisySums:
    return NoisySums(server, SIZE, ClientPrivacy(clip, noise, 10, {0: 5}, 1e-6, stream or sim_noise(1)))


def released(made: NoisySums, update: Vector = ZERO) -> Vector:
    made.add(update, 1.0)
    return made.release()


# --- The sum ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [1e-3, 0.7, 1.0, 50.0])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e30])
def test_an_update_is_on_the_grid_and_no_longer_than_the_clipping_norm(clip: float, scale: float) -> None:
    grid = sums(clip=clip)._privacy.grid
    assert grid == 2.0 ** round(math.log2(grid))
    update = (np.random.default_rng(2).normal(size=SIZE) * scale).astype(np.float32)
    coded = clipped(update, clip, grid)
    assert coded.dtype == np.int64
    norm = float(np.linalg.norm(coded * grid))
    assert norm <= clip
    if scale == 1e30:
        assert norm > 0.999 * clip


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_counts_as_zeros(bad: float) -> None:
    update = np.ones(SIZE, np.float32)
    update[3] = bad
    assert not clipped(update, 1.0, 2.0**-30).any()


def test_what_is_released_are_multiples_of_the_grid() -> None:
    made = sums(clip=0.3, noise=3.0)
    update = np.random.default_rng(2).normal(size=SIZE).astype(np.float32)
    multiples = released(made, update).astype(np.float64) / made._privacy.grid
    assert np.array_equal(multiples, np.rint(multiples))


def test_one_client_is_in_a_sum_once_and_in_no_more_sums_than_its_budget_allows() -> None:
    made = sums()
    counted = 0
    for _ in range(20):
        for _ in range(2):
            if made.admits(7):
                made.count(7)
                counted += 1
        made.close()
    assert counted == 10


# --- The noise --------------------------------------------------------------------------------------------------------


def test_normal_numbers_are_normal() -> None:
    bits = sim_noise(3)(0)(b"label", 200_000)
    numbers = normals(bits)
    assert numbers.size == bits.size
    edges = [-3.0, -2.0, -1.0, 0.0, 0.5, 1.5, 2.5]
    for edge in edges:
        expected = math.exp(log_normal(edge))
        assert np.mean(numbers <= edge) == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / 2e5))
    assert abs(np.corrcoef(numbers[:100_000], numbers[100_000:])[0, 1]) < 0.02
    extremes = np.array([0, 2**64 - 1] * 2, np.uint64)
    assert np.isfinite(normals(extremes)).all()


def test_the_noise_has_the_stated_deviation() -> None:
    made = sums(noise=2.5, clip=4.0)
    numbers = np.concatenate([released(made) for _ in range(50)])
    assert np.std(numbers) == pytest.approx(10.0, rel=0.02)
    assert abs(np.mean(numbers)) < 0.25


def test_two_sums_never_have_the_same_noise() -> None:
    """Other numbers of the release, other servers, other secrets, and other sums under the same number."""
    step = np.full(SIZE, 0.01, np.float32)
    exact = released(sums(noise=0.0), step)
    first = sums()
    noises = [released(first), released(first), released(sums(server=1)), released(sums(), step) - exact]
    noises.append(released(sums(stream=sim_noise(2))))
    for i, one in enumerate(noises):
        for other in noises[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_the_same_sum_has_the_same_noise_after_a_restart() -> None:
    first = sums()
    released(first)
    state = first.state()
    expected = released(first, np.full(SIZE, 0.01, np.float32))
    again = sums()
    again.restore(state)
    assert released(again, np.full(SIZE, 0.01, np.float32)).tolist() == expected.tolist()


def test_a_checkpoint_has_no_sum() -> None:
    made = sums(noise=0.0)
    made.add(np.ones(SIZE, np.float32), 1.0)
    again = sums(noise=0.0)
    again.restore(made.state())
    assert not again.release().any()


def test_deployed_noise_follows_from_the_secret_alone() -> None:
    one, same, other = (secret_noise(secret)(0) for secret in (b"a" * 32, b"a" * 32, b"b" * 32))
    assert one(b"label", 64).tolist() == same(b"label", 64).tolist()
    assert one(b"label", 64).dtype == np.uint64
    found = [one(b"label", 64), one(b"other", 64), other(b"label", 64), sim_noise(0)(0)(b"label", 64)]
    assert len({numbers.tobytes() for numbers in found}) == 4


# --- The cost ---------------------------------------------------------------------------------------------------------


def test_epsilon_is_that_of_the_analytic_gaussian_mechanism() -> None:
    """Balle and Wang 2018: with ε = 1 and δ = 1e-5 the noise multiplier is 3.7304."""
    assert gaussian_noise(1.0, 1e-5, 1) == pytest.approx(3.7304, abs=1e-3)
    for steps, noise, delta in [(1, 1.0, 1e-5), (200, 10.5, 1e-6), (20, 3.0, 1e-6), (1000, 40.0, 1e-9)]:
        mu = math.sqrt(steps) / noise
        epsilon = epsilon_of([Booking(Mechanism(noise, 1.0, 1), steps)], delta)
        assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-4)
        assert epsilon_of([Booking(Mechanism(noise / math.sqrt(steps), 1.0, 1), 1)], delta) == pytest.approx(epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 8.0, 50.0])
def test_the_noise_spends_the_budget_and_no_more(epsilon: float) -> None:
    for steps in (1, 30, 500):
        noise = gaussian_noise(epsilon, 1e-6, steps)
        spent = epsilon_of([Booking(Mechanism(noise, 1.0, 1), steps)], 1e-6)
        assert 0.999 * epsilon < spent <= epsilon


@pytest.mark.filterwarnings("ignore")
def test_epsilon_equals_that_of_opacus_for_the_same_schedule() -> None:
    from opacus.accountants import PRVAccountant

    for noise, steps in [(3.0, 20), (10.5, 200), (1.2, 4)]:
        library = PRVAccountant()
        library.history = [(noise, 1.0, steps)]
        # Its result is an upper bound, by at most 0.01 by default.
        exact = epsilon_of([Booking(Mechanism(noise, 1.0, 1), steps)], 1e-6)
        assert exact <= library.get_epsilon(1e-6) <= exact + 0.02
    assert gaussian_noise(8.0, 1e-6, 100) == pytest.approx(noise_for(8.0, 1e-6, 1.0, 100), rel=5e-3)


def test_several_multipliers_compose_exactly() -> None:
    bookings = [Booking(Mechanism(2.0, 1.0, 1), 3), Booking(Mechanism(5.0, 1.0, 1), 10)]
    assert epsilon_of(bookings, 1e-6) == pytest.approx(gaussian_epsilon(math.sqrt(3 / 4 + 10 / 25), 1e-6))


def test_absurd_costs_have_no_error() -> None:
    assert gaussian_epsilon(0.0, 1e-6) == 0.0
    assert gaussian_epsilon(1e200, 1e-6) == math.inf
    assert gaussian_epsilon(1e-9, 1e-6) < 1e-9
    assert gaussian_epsilon(100.0, 1e-12) == pytest.approx(5000, rel=0.2)


def test_a_given_noise_multiplier_ends_with_the_budget_or_the_plan() -> None:
    def participations(**settings: Any) -> int:
        budget = ClientBudget.of(PrivacySettings(unit="client", delta=1e-6, noise_multiplier=3.0, **settings))
        assert budget is not None
        return budget.participations

    assert participations(trainings=7) == 7
    most = participations(epsilon=8.0)
    assert participations(epsilon=8.0, trainings=1000) == most
    assert participations(epsilon=8.0, trainings=2) == 2
    cost = [epsilon_of([Booking(Mechanism(3.0, 1.0, 1), n)], 1e-6) for n in (most, most + 1)]
    assert cost[0] <= 8 < cost[1]


# --- What it needs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["spyker", "fedasync", "sync-spyker"])
def test_algorithms_without_rounds_are_refused_with_the_reason(algorithm: str) -> None:
    with pytest.raises(UsageError, match=r"privacy.unit: client is not allowed: .* applies each update by itself"):
        load(None, UNIT | {"algorithm": algorithm})


@pytest.mark.parametrize("missing", ["privacy.epsilon", "privacy.trainings"])
def test_the_noise_needs_a_budget_and_a_plan(missing: str) -> None:
    with pytest.raises(UsageError, match=f"{missing}: is missing"):
        load(None, {key: value for key, value in UNIT.items() if key != missing})


def test_a_model_with_buffers_is_refused_with_a_remedy() -> None:
    with pytest.raises(UsageError, match=r"model has 4 buffers.*GroupNorm"):
        client_privacy(load(None, UNIT), 100, 4, sim_noise(0))


def test_a_masked_sum_that_is_rounded_too_much_is_refused() -> None:
    scenario = load(None, UNIT | {"privacy.masking": True}, clients=10_000)
    assert client_privacy(scenario, 20_000, 0, sim_noise(0)) is not None
    with pytest.raises(UsageError, match=r"privacy.masking: true is not allowed.*more regions, or no masking"):
        client_privacy(scenario, 100_000_000, 0, sim_noise(0))


def test_few_clients_are_warned_about_before_a_run() -> None:
    warning = check_noise(load(None, UNIT, clients=100), 1370)
    assert warning is not None
    assert "of 25 clients with 1,370 weights" in warning
    assert "Use more clients per server" in warning
    assert check_noise(load(None, UNIT, clients=10_000), 1370) is None
    assert check_noise(load(None, {}, clients=100), 1370) is None
    buffered = check_noise(load(None, UNIT | {"algorithm": "fedbuff"}, clients=10_000), 1370)
    assert buffered is not None  # its buffer has few updates


def test_clients_send_no_metrics_unless_it_is_allowed() -> None:
    assert load(None, UNIT).privacy.hides_metrics
    assert not load(None, UNIT | {"privacy.report-metrics": True}).privacy.hides_metrics
