"""Two hundred seeds, of which make test runs ten, and the campaign itself."""

import re
from dataclasses import replace

import pytest

from chaos.__main__ import main
from chaos.campaign import campaign, run_plan, shrink
from chaos.fault_plan import ATTACKS, WEIGHTS, Fault, fault_plan

SEEDS, CHUNK = 200, 10


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1 + CHUNK, SEEDS + 1, CHUNK))]
)
def test_nothing_that_must_hold_is_violated(first: int) -> None:
    for seed in range(first, first + CHUNK):
        verdict = run_plan(fault_plan(seed, short=True))
        assert not verdict.violation, f"seed {seed}, short: {verdict.violation}"


def test_the_same_seed_is_the_same_history() -> None:
    assert run_plan(fault_plan(3, short=True)) == run_plan(fault_plan(3, short=True))


def test_every_kind_of_blow_and_every_algorithm_occurs() -> None:
    plans = [fault_plan(seed, short=True) for seed in range(1, SEEDS + 1)]
    assert {fault.what for each in plans for fault in each.faults} == {*WEIGHTS, *ATTACKS}
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
        return run_plan(fault_plan(1, short=True))._replace(seed=seed, violation="three" if seed == 3 else "")

    monkeypatch.setattr("chaos.campaign.run_seed", fails_at_three)
    assert [verdict.seed for verdict in campaign(range(1, 9), workers=1)] == [1, 2, 3]
    assert tried == [1, 2, 3]


def test_ctrl_c_tells_how_far_it_came(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pressed_at_three(seed: int) -> object:
        if seed == 3:
            raise KeyboardInterrupt
        return run_plan(fault_plan(1, short=True))._replace(seed=seed)

    monkeypatch.setattr("chaos.campaign.run_seed", pressed_at_three)
    assert main(["--seeds", "1-9", "--workers", "1"]) == 130
    assert re.match(r"2 seeds, [\d,]+ events, no violation so far, \d+ s\n", capsys.readouterr().out)
    assert main(["--seeds", "1-1", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 seed, ")


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--minutes", "-1"], "--minutes: -1 is not allowed. It must be greater than 0"),
        (["--workers", "0"], "--workers: 0 is not allowed. It must be an integer greater than 0"),
        (["--seeds", "5-1"], "--seeds: '5-1' is not allowed. Write a number, such as 7, or a range, such as 1-200"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], args: list[str], what: str
) -> None:
    assert main(args) == 2
    assert what in capsys.readouterr().err
