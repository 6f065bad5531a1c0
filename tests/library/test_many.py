"""``spyker.compare``, ``spyker.sweep`` and ``spyker.load``."""

from pathlib import Path
from typing import Any

import pytest

import spyker
from spyker.api.compare import Comparison
from spyker.errors import UsageError
from spyker.records import RecordError

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 2.0, "clients": 8, "progress": False}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_comparison_is_runs_by_name_a_table_and_plots() -> None:
    runs = spyker.compare(["spyker", "fedavg"], settings={"evaluation.targets": [0.1, 2.0]}, out="c", **QUICK)
    assert list(runs) == ["spyker", "fedavg"]
    assert isinstance(runs["fedavg"], spyker.Run)
    assert list(runs.table.index) == ["spyker", "fedavg"]
    hit = runs["spyker"].reached(0.1)
    assert hit is not None
    assert (runs.table.loc["spyker", "time to 0.1"], runs.table.loc["spyker", "updates to 0.1"]) == hit
    assert runs.table["time to 2"].isna().all()
    assert runs.plot("both.png").axes[0].get_legend() is not None
    for name in ("both.png", "c/table.md", "c/covered-time.png"):
        assert Path(name).stat().st_size > 100
    assert repr(runs) == "<Comparison: spyker, fedavg (c)>"
    assert runs._repr_html_().count("<tr>") == 3


def test_a_comparison_over_seeds_has_a_run_for_each_and_a_line_for_all() -> None:
    runs = spyker.compare(["spyker", "fedavg"], seed=4, seeds=2, out="c", **QUICK)
    assert list(runs) == ["spyker-seed-4", "fedavg-seed-4", "spyker-seed-5", "fedavg-seed-5"]
    assert [run.scenario["seed"] for run in runs.values()] == [4, 4, 5, 5]
    assert {label: len(seeds) for label, seeds in runs.shown.lines.items()} == {"Spyker": 2, "FedAvg": 2}
    assert list(runs.table.groupby("algorithm")["seed"].count()) == [2, 2]
    assert "| Spyker | " in Path("c/table.md").read_text()
    assert "± is the standard deviation over seeds" in Path("c/table.md").read_text()
    alone = spyker.run(algorithm="fedavg", seed=5, **QUICK)
    assert alone.summary == runs["fedavg-seed-5"].summary  # its data are those of its seed
    with pytest.raises(UsageError, match="--seeds"):
        spyker.compare(["spyker"], seeds=0, **QUICK)


def test_what_a_callback_ends_is_one_run_of_several() -> None:
    begun: list[str] = []

    class Impatient:
        def begin(self, scenario: spyker.Scenario) -> None:
            begun.append(scenario.algorithm)

        def fact(self, t: float, fact: object) -> bool:
            return begun[-1] == "spyker" and t > 0.5

    runs = spyker.compare(["spyker", "fedavg"], callbacks=[Impatient()], **QUICK)
    assert begun == ["spyker", "fedavg"]
    assert [run.finished for run in runs.values()] == [False, True]


def test_all_algorithms_are_known_before_the_first_runs(here: Path) -> None:
    for wrong in (["spyker", "fedagv"], ["spyker", "spyker"], []):
        with pytest.raises(UsageError):
            spyker.compare(wrong, **QUICK)
    assert not list(here.iterdir())


def test_records_are_loaded_one_or_all() -> None:
    made = spyker.compare(["spyker", "fedavg"], out="c", **QUICK)
    one, all_of_them = spyker.load("c/fedavg"), spyker.load("c")
    assert isinstance(one, spyker.Run)
    assert isinstance(all_of_them, Comparison)
    assert one.summary == made["fedavg"].summary
    assert set(all_of_them) == {"spyker", "fedavg"}
    with pytest.raises(RecordError, match=r"nowhere does not exist\. Name a folder made by --out"):
        spyker.load("nowhere")
    Path("empty").mkdir()
    with pytest.raises(RecordError, match=r"empty holds no run record\. Name a folder made by --out"):
        spyker.load("empty")
    with pytest.raises(RecordError, match=r"c/fed does not exist\. The runs in c are fedavg, spyker"):
        spyker.load("c/fed")


def test_a_sweep_has_a_row_per_combination_and_seed_and_goes_on(here: Path) -> None:
    vary = {"algorithm": ["spyker", "fedavg"], "training.rate": [0.1]}
    options = QUICK | {"settings": {"evaluation.targets": [0.1]}, "seeds": 2, "jobs": 1, "out": "s"}
    sweep = spyker.sweep(vary=vary, **options)
    assert list(sweep.table["algorithm"]) == ["spyker", "spyker", "fedavg", "fedavg"]
    assert list(sweep.table["seed"]) == [1, 2, 1, 2]
    assert (sweep.table["final covered"] > 0).all()
    assert Path("s/sweep.csv").exists()
    assert repr(sweep) == "<Sweep: 2 combinations of algorithm, training.rate (s)>"
    assert sweep._repr_html_().count("<tr>") == 3
    made = {path: path.stat().st_mtime_ns for path in Path("s/runs").glob("*/summary.json")}
    with pytest.raises(UsageError, match="--resume"):
        spyker.sweep(vary=vary, **options)
    more = spyker.sweep(vary=vary | {"training.rate": [0.1, 0.2]}, resume=True, **options)
    assert len(more.table) == 8
    assert made.items() <= {path: path.stat().st_mtime_ns for path in Path("s/runs").glob("*/summary.json")}.items()


def test_the_name_of_one_algorithm_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^algorithms: 'stride' is not allowed: it must be a list\. Write \['stride'\]$"
    ):
        spyker.compare("stride", task="quadratic", out=tmp_path / "a")
    assert not list(tmp_path.iterdir())
