"""The harness of the benchmarks; what they measure is not for a test to time."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks import measure, run, stride_worlds
from benchmarks.grid.ablation import Unbounded
from benchmarks.measure import Result, in_turn


def test_a_bar_is_met_or_missed() -> None:
    assert Result("a", 0.8, 0.7).met
    assert not Result("a", 0.6, 0.7).met
    assert Result("a", 1.4, 1.5, at_most=True).met
    assert not Result("a", 1.6, 1.5, at_most=True).met
    assert Result("a", 0.1, None).met


def test_two_things_are_measured_in_turn_and_their_medians_taken() -> None:
    order: list[str] = []
    values = iter([1.0, 10.0, 9.0, 90.0, 2.0, 20.0])

    def noted(name: str) -> float:
        order.append(name)
        return next(values)

    assert in_turn(lambda: noted("a"), lambda: noted("b"), 3) == (2.0, 20.0)
    assert order == ["a", "b"] * 3


@pytest.mark.parametrize(("ratio", "code"), [(0.8, 0), (0.6, 1)])
def test_a_missed_bar_ends_with_1_and_everything_is_kept_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ratio: float, code: int
) -> None:
    made_up = ModuleType("benchmarks.made_up")
    made_up.measure = lambda: [Result("made up", ratio, 0.7, details={"speed": 3.0})]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.made_up", made_up)
    monkeypatch.setattr(run, "NAMES", ("made_up",))
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    assert run.main(["made_up"]) == code
    assert ("NO" in capsys.readouterr().out) == bool(code)
    (kept,) = json.loads((tmp_path / "made_up.json").read_text())
    assert (kept["ratio"], kept["bar"], kept["met"], kept["details"]) == (ratio, 0.7, not code, {"speed": 3.0})


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nonsense"]) == 2
    assert "mix_kernel" in capsys.readouterr().err


def test_the_cost_of_the_safety_rules_can_be_measured_in_every_world_of_the_race() -> None:
    for world in stride_worlds.WORLDS.values():
        without, safe = (stride_worlds.scenarios(world, 1, safe=safe)[0] for safe in (False, True))
        assert (without.parameters.safe, safe.parameters.safe) == (False, True)
        assert without.evaluation.stop_at == world.target
    assert {"paper-size", "cifar10", "wikitext2"} == stride_worlds.WORLDS.keys() - set(stride_worlds.COMPACT)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.99])
def test_a_reach_without_bound_limits_progress_by_a_number(agreement: float) -> None:
    reach = Unbounded()
    reach.observe(np.ones(3, np.float32), 1.0, 1.0, np.ones(3, np.float32))
    limit = reach.between_exchanges(agreement, 1.0)
    assert (limit == 1.0) if agreement == 0 else (limit > 1e100)
