"""The race: what is searched, what is run, and that nothing of it is run twice."""

import csv
import re
import shutil
from pathlib import Path

import pytest
from every_algorithm import ALGORITHMS

from spyker.cli.main import main
from spyker.config.scenario import load
from spyker.records import find_runs
from spyker.tasks.registry import resolve
from spyker_lab.commands import race as command
from spyker_lab.race.race_document import BEGIN, END
from spyker_lab.race.search import MARGIN, SEED
from spyker_lab.race.spaces import RATE, SPACES, STARTS
from spyker_lab.race.worlds import (
    FULL,
    IID,
    IMBALANCE,
    OURS,
    QUICK,
    ROOM,
    STAGES,
    STAY,
    TWO_LABELS,
    Course,
    RaceWorld,
)

TINY: dict[str, object] = {
    "task.name": "quadratic",
    "task.dimension": 3,
    "world.regions": ["a", "b"],
    "world.clients": [3, 3],
    "world.latency-ms": [[1.0, 40.0], [40.0, 1.0]],
    "evaluation.interval": 0.25,
}
ROOMY: dict[str, object] = {"world.regions": ["here"], "world.clients": [6], "world.latency-ms": [[0.0]]}
ALONE = {"seeds": 2, "target": 0.3, "horizon": 3.0}
SMALL_COURSE = Course(
    "full",
    "",
    {
        world.name: world
        for world in (
            RaceWorld(IID, "IID", "one", TINY, IID, "paper", **ALONE),  # type: ignore[arg-type]
            RaceWorld(TWO_LABELS, "two labels", "two", TINY | {"task.dimension": 4}, TWO_LABELS, "paper", **ALONE),  # type: ignore[arg-type]
            RaceWorld(IMBALANCE, "uneven", "three", TINY | {"world.clients": [5, 1]}, TWO_LABELS, **ALONE),  # type: ignore[arg-type]
            RaceWorld(ROOM, "one room", "four", TINY | ROOMY, TWO_LABELS, **ALONE),  # type: ignore[arg-type]
        )
    },
    trials=3,
    algorithms=(OURS, "fedasync", "fedavg"),
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_space_of_keys_that_exist_and_begins_inside_it(algorithm: str) -> None:
    space = SPACES[algorithm]
    assert space["training.rate"] == RATE
    assert 2 <= len(space) <= 4
    assert STARTS[algorithm].keys() == space.keys()
    for key, distribution in space.items():
        value = STARTS[algorithm][key]
        assert distribution._contains(distribution.to_internal_repr(value)), (key, value)
    load(None, {"algorithm": algorithm, **STARTS[algorithm]})


@pytest.mark.parametrize("course", [FULL, QUICK], ids=lambda course: course.name)
def test_every_world_can_be_run_and_takes_settings_that_are_searched(course: Course) -> None:
    for world in course.worlds.values():
        assert course.worlds[world.takes].searched
        assert world.stage in STAGES
        assert "world.regions" not in world.settings or world.name == ROOM
        for algorithm in ALGORITHMS:
            scenario = resolve(load(None, {**world.settings, "algorithm": algorithm}))
            assert scenario.evaluation.interval == 0.25
        if world.searched:
            resolve(load(None, {**world.settings, **course.held_back}))


def test_the_whole_race_is_the_size_that_was_asked_for() -> None:
    assert [world.name for world in FULL.worlds.values() if world.searched] == [IID, TWO_LABELS, "uneven"]
    for world in FULL.worlds.values():
        assert world.seeds >= {"paper": 5, "others": 3, "size": 2, "tasks": 3}[world.stage]
        if world.compact:
            assert world.settings["task.images-per-client"] == 60


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small race, with everything that it leaves."""
    folder = tmp_path_factory.mktemp("race")
    (folder / "README.md").write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    (folder / "docs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "FULL", SMALL_COURSE)
        assert main([*arguments(folder), "--jobs", "2"]) == 0
    return folder


def arguments(folder: Path) -> list[str]:
    places = ["--document", str(folder / "docs" / "race.md"), "--readme", str(folder / "README.md")]
    return ["race", "--out", str(folder / "out"), *places]


def test_all_is_told(raced: Path) -> None:
    text = (raced / "docs" / "race.md").read_text()
    assert "not run yet" not in text.replace("has not been run yet", "").replace("HierFAVGM", "", 1).split("(b)")[0]
    assert all(f"### {world.title}" in text for world in SMALL_COURSE.worlds.values())
    assert all(f"({bar})" in text for bar in "abcde")
    assert (raced / "docs" / "images" / "race" / "race.png").exists()
    readme = (raced / "README.md").read_text()
    assert readme.startswith(f"above\n{BEGIN}\n")
    assert readme.endswith(f"{END}\nbelow\n")
    assert "old" not in readme
    assert "](docs/images/race/race.png)" in readme
    assert re.search(r"\| IID \| (> )?\d", readme)


def test_every_algorithm_has_the_same_search_on_other_seeds_than_the_race(raced: Path) -> None:
    trials = list(csv.DictReader((raced / "out" / "trials.csv").open()))
    studies = {(t["algorithm"], t["world"]) for t in trials}
    assert studies == {(a, w) for a in SMALL_COURSE.algorithms for w in (IID, TWO_LABELS)}
    assert len(trials) == SMALL_COURSE.trials * len(studies)
    for trial in trials:
        if trial["trial"] == "1":
            started = " ".join(f"{key}={value}" for key, value in STARTS[trial["algorithm"]].items())
            assert trial["settings"] == started
    runs = find_runs(raced / "out" / "runs")
    assert {run.scenario["seed"] for run in runs} == {SEED, 1, 2}


def test_a_trial_is_cut_off_when_it_is_later_than_the_best_before_it(raced: Path) -> None:
    for algorithm in SMALL_COURSE.algorithms:
        best = [3.0]
        for trial in csv.DictReader((raced / "out" / "trials.csv").open()):
            if (trial["algorithm"], trial["world"]) == (algorithm, IID):
                assert float(trial["limit"]) == min(3.0, min(best) + MARGIN)
                best += [float(trial["time"])] if trial["time"] else []


def test_runs_go_on_until_it_is_decided_whether_the_target_holds(raced: Path) -> None:
    for run in find_runs(raced / "out" / "runs"):
        evaluation = run.scenario["evaluation"]
        if run.scenario["seed"] != SEED and "stop-at" in evaluation:
            assert (evaluation["stop-at"], evaluation["stop-after"]) == (0.3, STAY)
            assert run.scenario["duration"] == 3.0 + STAY


def test_nothing_is_run_twice_and_the_document_is_the_same(raced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FULL", SMALL_COURSE)
    runs = {p: p.stat().st_mtime_ns for p in (raced / "out" / "runs").glob("*/summary.json")}
    text = (raced / "docs" / "race.md").read_bytes()
    assert main([*arguments(raced), "--resume"]) == 0
    assert runs == {p: p.stat().st_mtime_ns for p in (raced / "out" / "runs").glob("*/summary.json")}
    assert (raced / "docs" / "race.md").read_bytes() == text


def test_a_report_runs_nothing_and_says_what_is_missing(
    raced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "FULL", SMALL_COURSE)
    shutil.copytree(raced / "out" / "runs", tmp_path / "out" / "runs")
    gone = [run for run in find_runs(tmp_path / "out" / "runs") if run.scenario["world"]["clients"] == [5, 1]]
    for run in gone:
        shutil.rmtree(run.folder)
    kept = sorted((tmp_path / "out" / "runs").iterdir())
    assert main(["race", "--out", str(tmp_path / "out"), "--report"]) == 0
    assert sorted((tmp_path / "out" / "runs").iterdir()) == kept
    text = (tmp_path / "out" / "race.md").read_text()
    assert "| uneven | – |" in text
    assert re.search(r"\| IID \| (> )?\d", text)
    assert (
        "(e) | most clients in one region: at most 1 point of final accuracy lost against an even split | not run"
        in text
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--only", "two-label"], "two-labels"),
        (["--algorithms", "fedavgg"], "fedavg"),
        (["--trials", "0"], "--trials"),
        (["--seeds", "0"], "--seeds"),
        (["--jobs", "0"], "--jobs"),
        (["--document", "/nowhere/at/all.md"], "--document"),
        (["--readme", "README.md"], "--document"),
        (["--quick", "--readme", "README.md", "--document", "x.md"], "smoke test"),
        (["--document", "x.md", "--readme", "no-such.md"], "--readme"),
        (["--document", "x.md", "--readme", "LICENSE"], "no markers"),
        (["--report"], "not the folder of a race"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["race", "--out", str(tmp_path / "out"), *words]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
