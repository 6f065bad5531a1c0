"""Two hundred seeds of torture, and what torture itself promises."""

import re
from dataclasses import replace

import pytest

from spyker.cli.main import main
from spyker.torture.campaign import campaign, shrink, torture
from spyker.torture.fault_plan import WEIGHTS, Fault, fault_plan

SEEDS, CHUNK = 200, 20


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_nothing_that_must_hold_is_violated(first: int) -> None:
    for seed in range(first, first + CHUNK):
        verdict = torture(fault_plan(seed, short=True))
        assert not verdict.violation, f"seed {seed}, short: {verdict.violation}"


def test_the_same_seed_is_the_same_history() -> None:
    assert torture(fault_plan(3, short=True)) == torture(fault_plan(3, short=True))


def test_every_kind_of_blow_and_every_algorithm_occurs() -> None:
    plans = [fault_plan(seed, short=True) for seed in range(1, SEEDS + 1)]
    assert {fault.what for each in plans for fault in each.faults} == set(WEIGHTS)
    assert {each.algorithm for each in plans} == {"spyker", "stride", "sync-spyker", "hierfavg"}


def test_a_failing_plan_is_shrunk_to_the_blows_that_matter() -> None:
    faults = tuple(Fault(float(t), "crash", t) for t in range(2, 12))
    failing = replace(fault_plan(1), faults=faults)
    small = shrink(failing, lambda candidate: {4, 9} <= {fault.a for fault in candidate.faults})
    assert [fault.a for fault in small.faults] == [4, 9]


def test_a_campaign_ends_at_the_first_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def fails_at_three(seed: int) -> object:
        tried.append(seed)
        return torture(fault_plan(1, short=True))._replace(seed=seed, violation="three" if seed == 3 else "")

    monkeypatch.setattr("spyker.torture.campaign.torture_seed", fails_at_three)
    assert [verdict.seed for verdict in campaign(range(1, 9), workers=1)] == [1, 2, 3]
    assert tried == [1, 2, 3]


def test_ctrl_c_tells_how_far_it_came(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pressed_at_three(seed: int) -> object:
        if seed == 3:
            raise KeyboardInterrupt
        return torture(fault_plan(1, short=True))._replace(seed=seed)

    monkeypatch.setattr("spyker.torture.campaign.torture_seed", pressed_at_three)
    assert main(["torture", "--seeds", "1-9", "--workers", "1"]) == 130
    assert re.match(r"2 seeds, [\d,]+ events, no violation so far, \d+ s\n", capsys.readouterr().out)
    assert main(["torture", "--seeds", "1-1", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 seed, ")
