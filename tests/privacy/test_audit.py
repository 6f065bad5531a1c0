"""An audit with canaries: updates disclose at most the ε of the accountant, and missing noise is noticed."""

from __future__ import annotations

import math

import pytest

from benchmarks import client_audit
from benchmarks.privacy_audit import Plan, audit, lower_bound, plausibility

SMALL = Plan(epsilon=1.0, canaries=400, images=40, trainings=1, batch=1024, noise=3.8)  # the search takes seconds


def test_the_bound_of_one_run_is_worked_out_by_hand() -> None:
    # Without δ, 100 right guesses of 100 have a probability of at most q^100 = 0.05, q = e^ε / (1 + e^ε).
    likely = 0.05 ** (1 / 100)
    assert lower_bound(0.0, 1000, 100, 100) == pytest.approx(math.log(likely / (1 - likely)), abs=1e-3)
    assert lower_bound(0.0, 1000, 100, 50) == 0
    # Two guesses, ε = 0: both right with probability 1/4; one more bad event with 2 · 3 · δ · P[exactly one], over 1.
    assert plausibility(0.0, 0.01, 3, 2, 2) == pytest.approx(0.25 + 2 * 3 * 0.01 * max(0.5 / 1, 0.75 / 2))


def test_the_bound_grows_with_right_guesses_and_falls_with_delta() -> None:
    bounds = [lower_bound(1e-5, 1000, 100, right) for right in (60, 80, 95, 100)]
    assert bounds == sorted(bounds)
    assert lower_bound(1e-3, 1000, 100, 95) < lower_bound(1e-5, 1000, 100, 95)


def test_an_audit_shows_no_more_than_the_accountant_says() -> None:
    found = audit(SMALL, seed=1)
    assert found.claimed <= 1
    assert found.shown <= found.claimed


def test_an_audit_refutes_the_claim_of_a_client_that_adds_no_noise() -> None:
    found = audit(SMALL, seed=1, noise=False)
    assert found.shown > found.claimed


@pytest.mark.parametrize("algorithm", ["stride", "fedavg"])
def test_an_audit_of_a_server_shows_no_more_than_the_accountant_says_and_refutes_missing_noise(algorithm: str) -> None:
    plan = client_audit.Plan(1.0, algorithm, canaries=1000, rounds=1)
    found = client_audit.audit(plan, 1)
    assert found.shown <= found.claimed <= 1
    assert client_audit.audit(plan, 1, noise=False).shown > found.claimed
