"""Emulations with secure aggregation: their results, their helpers, and what survives crashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from processes import FAULTS, Fault, arrange
from seal_checker import SealChecker

import spyker
from spyker.config.scenario import from_table
from spyker.errors import UsageError
from spyker.privacy.mask_helper import MaskHelper
from spyker.privacy.seals import Sealed
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.sim_seals import SimSealer

MASKED = ["fedavg", "hierfavg", "fedbuff", "stride"]


def table(algorithm: str, *, masking: bool = True, duration: float = 6.0, **sections: Any) -> dict[str, Any]:
    """Three regions with four, five and four clients."""
    world = {
        "regions": ["a", "b", "c"],
        "clients": [4, 5, 4],
        "latency-ms": [[1.0, 31.0, 47.0], [29.0, 2.0, 83.0], [43.0, 79.0, 3.0]],
    }
    return {
        "algorithm": algorithm,
        "duration": duration,
        "task": {"name": "quadratic", "dimension": 3},
        "world": world | sections.pop("world", {}),
        "training": {"rate": 0.3, "delay-ms": {"mean": 60.0, "std": 10.0}},
        "evaluation": {"interval": 0.5},
        "privacy": {"masking": masking} | sections.pop("privacy", {}),
        **sections,
    }


def of(facts: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [fact for fact in facts if fact["kind"] == kind]


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Iterator[SealChecker]:
    found = SealChecker(monkeypatch)
    yield found
    assert not found.problems


@pytest.mark.parametrize("algorithm", MASKED)
def test_a_masked_run_ends_where_one_without_masks_does(emulate: Any, checker: SealChecker, algorithm: str) -> None:
    seconds = 20.0 if algorithm == "hierfavg" else 8.0  # each of its rounds waits for a distant helper
    (facts, masked), (_, plain) = (emulate(table(algorithm, masking=m, duration=seconds)) for m in (True, False))
    assert masked["final"]["mean"] == pytest.approx(plain["final"]["mean"], abs=0.06)
    assert of(facts, "sum-opened")
    assert checker.openings
    assert all(fact["clients"] >= 3 for fact in of(facts, "sum-opened"))


@pytest.mark.parametrize("algorithm", MASKED)
def test_the_bytes_of_a_record_do_not_depend_on_the_number_of_workers(tmp_path: Path, algorithm: str) -> None:
    records = []
    for workers in (1, 2):
        run = spyker.run(
            algorithm=algorithm,
            task="quadratic",
            duration=2.0,
            clients=16,
            out=tmp_path / str(workers),
            workers=workers,
            progress=False,
            settings={"privacy.masking": True},
        )
        records.append((run.folder / "facts.jsonl").read_bytes())
    assert records[0] == records[1]
    assert b"sum-opened" in records[0]


def test_clients_report_no_losses_and_scores_unless_they_are_to() -> None:
    hidden, shown = (from_table(table("fedavg", privacy={"report-metrics": r})) for r in (False, True))
    assert hidden.privacy.hides_metrics
    assert not shown.privacy.hides_metrics


# --- Configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "sections", "complaint"),
    [
        ("spyker", {}, r"privacy\.masking: true is not allowed: spyker applies each update by itself"),
        ("stride", {"privacy": {"threshold": 5}}, r"privacy\.threshold: 5 is not allowed: a server has 4 clients"),
        ("stride", {"privacy": {"threshold": 1}}, r"privacy\.threshold: 1 is not allowed"),
        ("stride", {"privacy": {"helpers": [0, 3]}}, r"privacy\.helpers: 3 is not allowed"),
        (
            "stride",
            {"world": {"regions": ["a"], "clients": [4], "latency-ms": [[1.0]]}},
            r"privacy\.helpers.* is missing: there is no other server",
        ),
        ("fedavg", {"privacy": {"helpers": []}}, r"privacy\.helpers.* is missing"),
    ],
)
def test_configurations_that_could_open_no_sum_are_refused(
    algorithm: str, sections: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        from_table(table(algorithm, **sections))


@pytest.mark.parametrize("algorithm", MASKED)
def test_the_smallest_cohort_is_as_large_as_the_threshold(emulate: Any, algorithm: str) -> None:
    facts, _ = emulate(table(algorithm, duration=2.0, privacy={"threshold": 4}))
    assert of(facts, "sum-opened")


# --- Helpers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", MASKED)
def test_dedicated_helpers_open_all_sums_each_those_of_its_region(emulate: Any, algorithm: str) -> None:
    first = {"fedavg": 1, "fedbuff": 1, "hierfavg": 4, "stride": 3}[algorithm]
    facts, _ = emulate(table(algorithm, duration=2.0, privacy={"helpers": [0, 1, 2]}))
    pairs = {(fact["server"], fact["helper"]) for fact in of(facts, "sum-opened")}
    homes = range(1) if first == 1 else range(3)
    assert pairs == {(i, first + i) for i in homes}


def test_without_helpers_the_nearest_other_server_opens_sums(emulate: Any) -> None:
    facts, _ = emulate(table("stride", duration=2.0))
    assert {(f["server"], f["helper"]) for f in of(facts, "sum-opened")} == {(0, 1), (1, 0), (2, 0)}


@pytest.mark.parametrize("algorithm", ["stride", "fedavg", "fedbuff"])
def test_learning_goes_on_while_the_region_of_a_helper_is_cut_off(
    emulate: Any, checker: SealChecker, algorithm: str
) -> None:
    cut = {"outage": {"region": 0 if algorithm == "stride" else 1, "start": 2.0, "seconds": 20.0}}
    given = {"helpers": None} if algorithm == "stride" else {"helpers": [1, 2]}
    facts, _ = emulate(table(algorithm, duration=12.0, world=cut, privacy={k: v for k, v in given.items() if v}))
    late = [f for f in of(facts, "sum-opened") if f["t"] > 9.0]
    homes = {f["server"] for f in late}
    assert homes >= ({1, 2} if algorithm == "stride" else set()), "the other regions help each other"
    if algorithm == "fedbuff":
        assert homes == {0}
    if algorithm == "stride":
        assert {(f["server"], f["helper"]) for f in late} <= {(1, 2), (2, 1)}


def crash_and_restart(server: int, times: list[tuple[float, float]], **rules: Any) -> Any:
    def faults(world: ClusterSimulation) -> None:
        arrange(world, [], **rules)
        world.rules = replace(world.rules, checkpoint_updates=1)
        for down, up in times:
            world.schedule(down, world.crash, server)
            world.schedule(up, world.restart, server)

    return faults


@pytest.mark.parametrize(("algorithm", "server"), [("stride", 0), ("stride", 3), ("hierfavg", 1), ("hierfavg", 4)])
def test_crashes_of_home_or_helper_open_no_seal_in_two_sums(
    emulate: Any, checker: SealChecker, algorithm: str, server: int
) -> None:
    times = [(t + 0.0123 * t, t + 0.31) for t in np.arange(0.5, 3.5, 0.61)]
    faults = crash_and_restart(server, times, save_seconds=0.05)
    facts, _ = emulate(table(algorithm, privacy={"helpers": [1, 2]}), faults)
    assert of(facts, "server-resumed")
    assert [f for f in of(facts, "sum-opened") if f["t"] > 4.5], "sums are opened afterwards"
    assert checker.checkpoints


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=FAULTS)
def test_no_faults_open_a_seal_in_two_sums_or_show_an_update(
    emulate: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]
) -> None:
    for algorithm in ("stride", "fedbuff"):
        with monkeypatch.context() as patch:
            checker = SealChecker(patch)
            facts, _ = emulate(table(algorithm, duration=4.5), lambda world: arrange(world, faults, 0.013))
            assert not checker.problems
            assert [f for f in of(facts, "sum-opened") if f["t"] > 3.5], "all goes on in the end"


@pytest.mark.parametrize("algorithm", ["stride", "fedavg", "fedbuff"])
def test_learning_goes_on_when_a_helper_is_destroyed_for_good(
    emulate: Any, checker: SealChecker, algorithm: str
) -> None:
    first = 3 if algorithm == "stride" else 1  # the helpers come after the servers with clients

    def faults(world: ClusterSimulation) -> None:
        arrange(world, [])
        world.schedule(2.0, lambda: world.crash(first, lose_disk=True))

    facts, _ = emulate(table(algorithm, duration=10.0, privacy={"helpers": [0, 1]}), faults)
    late = {(f["server"], f["helper"]) for f in of(facts, "sum-opened") if f["t"] > 8.0}
    assert late
    assert {helper for _, helper in late} == {first + 1}


@pytest.mark.slow  # models of 22 MB
def test_sums_of_large_models_end_where_those_without_masks_do(emulate: Any) -> None:
    ends = []
    for masking in (True, False):
        world = {"regions": ["a"], "clients": [4], "latency-ms": [[1.0]], "bandwidth-mbit": 1e5}
        large = {"task": {"name": "quadratic", "dimension": 5_500_000}, "evaluation": {"interval": 0.3}}
        facts, summary = emulate(table("fedavg", masking=masking, duration=0.6, world=world) | large)
        ends.append(summary["final"]["mean"])
        assert of(facts, "round")
        assert bool(of(facts, "sum-opened")) is masking
    assert ends[0] == pytest.approx(ends[1], abs=0.02)


# --- What the checker finds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", ["threshold", "marks", "mask"])
def test_the_checker_notices_planted_bugs(emulate: Any, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    if bug == "mask":
        seal = SimSealer.seal
        unmasked = lambda self, said, count: Sealed(seal(self, said, count).seal, np.zeros(count, np.uint32))  # noqa: E731
        monkeypatch.setattr(SimSealer, "seal", unmasked)
    checker = SealChecker(monkeypatch, threshold=99 if bug == "threshold" else 3)
    if bug == "marks":
        masks = MaskHelper.masks

        def twice(helper: MaskHelper, home: int, asked: Any, count: int) -> Any:
            total = masks(helper, home, asked, count)
            helper.marks.clear()
            if len(asked.seals) > 3:
                masks(helper, home, asked._replace(**{n: getattr(asked, n)[1:] for n in asked._fields[2:6]}), count)
            return total

        monkeypatch.setattr(MaskHelper, "masks", twice)
    emulate(table("stride", duration=2.0), crash_and_restart(0, [(1.0, 1.3)]))
    assert checker.problems
