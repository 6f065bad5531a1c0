"""The measurements of records, and the comparison of an emulation with a deployment."""

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.wan.compare import Observed, compare, observe
from chaos.wan.costs import Costs, measure, with_costs
from spyker.config.scenario import dump, load
from spyker.protocol.facts import Merged, RoundEnded, SyncStarted, UpdateApplied
from spyker.records import Evaluated, RecordWriter, run_started

LATENCY = [[1.0, 100.0], [100.0, 1.0]]
SCENARIO = load(
    None,
    {
        "world.regions": ["a", "b"],
        "world.clients": [1, 1],
        "world.latency-ms": LATENCY,
        "world.bandwidth-mbit": 1e6,
        "world.mix-ms": 3.0,
        "training.delay-ms": [50.0, 60.0],
    },
)


def update(server: int, client: int, version: int, age: float) -> UpdateApplied:
    return UpdateApplied(server, client, 0.0, 1.0, age, version, 0.1)


def judged(size: int, score: float) -> Evaluated:
    return Evaluated(0, size, score, score, score, score, [score])


def write(folder: Path, began: float, facts: list[tuple[float, object]]) -> Path:
    writer = RecordWriter(folder, dump(SCENARIO))
    writer.write(0.0, run_started(SCENARIO, "accuracy", True, 0, began))
    for t, fact in facts:
        writer.write(t, fact)  # type: ignore[arg-type]
    writer.close({"parameters": 100})
    return folder


@pytest.fixture
def records(tmp_path: Path) -> list[Path]:
    """Two servers, the second of which began a second later, and a synchronisation that the first one started."""
    first = [
        (0.1, update(0, 0, 1, 1.0)),
        (0.165, update(0, 0, 2, 2.0)),
        (0.2, SyncStarted(0, 1)),
        (1.0, judged(1000, 0.4)),
        (2.0, judged(2000, 0.8)),
        (2.1, update(0, 0, 3, 3.0)),
    ]
    second = [
        (0.1, update(1, 1, 1, 1.0)),
        (0.175, update(1, 1, 2, 2.0)),
        (0.35, Merged(1, 0, 1, 0.5, 1.5)),
        (1.5, judged(700, 0.6)),
    ]
    return [write(tmp_path / "0", 100.0, first), write(tmp_path / "1", 99.975, second)]


def test_a_run_is_read_up_to_a_time(records: list[Path]) -> None:
    seen = observe(records, 2.0, 1.0)
    assert (seen.versions, seen.ages) == ({0: 2, 1: 2}, {0: 2.0, 1: 1.5})
    assert (seen.synchronisations, seen.bytes) == (1, 2700)
    assert seen.times == [1.0, 2.0]
    assert seen.accuracy == pytest.approx([0.5, 0.7])
    assert (seen.reached(0.6), seen.reached(0.9)) == (2.0, None)


def test_costs_are_what_the_scenario_does_not_explain(records: list[Path], tmp_path: Path) -> None:
    rounds = [(t, RoundEnded(0, i + 1)) for i, t in enumerate((0.3, 0.6, 0.9))]
    costs = measure(records, write(tmp_path / "fedavg", 0.0, rounds), SCENARIO)
    # 65 and 75 ms between updates, of which 50 and 60 are training, 2 latency and 3 the mix
    assert costs.update == pytest.approx(10.0, abs=0.01)
    # sent at 100.2, received at 99.975 + 0.35, of which 100 ms are latency
    assert costs.saving == pytest.approx(25.0, abs=0.01)
    # 300 ms a round, of which 260 are the far client's training and latency and 10 the update's; two clients
    assert costs.sending == pytest.approx(15.0, abs=0.01)


def test_costs_go_where_the_emulated_world_has_a_place_for_them() -> None:
    slower = with_costs(SCENARIO, Costs(10.0, 25.0, 5.0))
    assert slower.training.delay_ms == pytest.approx((60.0, 70.0))
    assert slower.world.latency_ms == ((1.0, 125.0), (125.0, 1.0))
    single = with_costs(replace(SCENARIO, algorithm="fedasync"), Costs(10.0, 25.0, 5.0))
    assert single.world.latency_ms == SCENARIO.world.latency_ms
    assert (slower.world.average_ms, single.world.average_ms) == (20.0, 25.0)  # for one client, and for two


SEEN = Observed({0: 100}, {0: 90.0}, 20, 0, 10_000, [1.0, 2.0], [0.5, 0.9], 0.15)


@pytest.mark.parametrize(
    ("change", "row", "agrees"),
    [
        ({}, "version", True),
        ({"versions": {0: 104}}, "version", True),
        ({"versions": {0: 94}}, "version", False),
        ({"versions": {}}, "version", False),
        ({"ages": {0: 80.0}}, "age", False),
        ({"synchronisations": 22}, "synchronisations", True),
        ({"synchronisations": 17}, "synchronisations", False),
        ({"bytes": 10_600}, "MB sent", False),
        ({"accuracy": [0.52, 0.88]}, "accuracy, mean distance of the curves", True),
        ({"accuracy": [0.4, 0.9]}, "accuracy, mean distance of the curves", False),
    ],
)
def test_worlds_agree_or_they_do_not(change: dict[str, object], row: str, agrees: bool) -> None:
    rows = {r.what: r for r in compare(SEEN, replace(SEEN, **change), [0.8], ["Paris"])}  # type: ignore[arg-type]
    assert rows[row].agrees is agrees
    assert all(r.agrees is not False for name, r in rows.items() if name != row)
