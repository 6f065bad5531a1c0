"""``spyker.run``: from what is said to a record, and who may watch."""

import os
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest

import spyker
from spyker.algorithms.fedasync import FedAsync
from spyker.api.read_scenario import read_scenario
from spyker.config.scenario import dump
from spyker.errors import UsageError
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Update
from spyker.records import Evaluated, RecordError
from spyker.tasks.built_in.quadratic import Options, make

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 2.0, "clients": 8, "progress": False}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_its_record(here: Path) -> None:
    run = spyker.run(algorithm="fedavg", seed=7, settings={"training.rate": 0.2}, out="a", **QUICK)
    assert (run.folder, run.finished) == (Path("a"), True)
    assert (run.scenario["algorithm"], run.scenario["seed"], run.scenario["training"]["rate"]) == ("fedavg", 7, 0.2)
    assert run.scenario["world"]["clients"] == [2, 2, 2, 2]
    assert run.summary is not None
    assert run.summary["updates"] == len(list(run.facts("update"))) > 0


def test_without_a_folder_it_makes_one_in_runs(here: Path) -> None:
    assert [str(spyker.run(**QUICK).folder) for _ in range(2)] == ["runs/stride-quadratic", "runs/stride-quadratic-2"]


def test_a_scenario_may_be_a_file_a_dictionary_or_one_that_was_read(here: Path) -> None:
    table = {"duration": 1.5, "task": {"name": "quadratic"}, "world": {"regions": ["Paris"], "clients": [3]}}
    scenario = read_scenario(table, seed=4)
    Path("s.toml").write_text(dump(scenario))
    for number, source in enumerate((table, scenario, "s.toml", Path("s.toml"))):
        run = spyker.run(source, seed=4, out=str(number), progress=False)
        assert run.scenario["world"]["regions"] == ["Paris"]
    facts = {Path(str(i), "facts.jsonl").read_bytes() for i in range(4)}
    scenarios = {Path(str(i), "scenario.toml").read_bytes() for i in range(4)}
    assert (len(facts), len(scenarios)) == (1, 1)
    assert table == {"duration": 1.5, "task": {"name": "quadratic"}, "world": {"regions": ["Paris"], "clients": [3]}}


def test_keywords_win_over_settings_and_those_over_the_scenario(here: Path) -> None:
    said = {"duration": 3.0, "seed": 3, "task": {"name": "digits"}}
    run = spyker.run(said, seed=1, settings={"seed": 2, "duration": 1.0}, task="quadratic", out="a", progress=False)
    assert tomllib.loads(Path("a/scenario.toml").read_text())["seed"] == run.scenario["seed"] == 1
    assert run.scenario["duration"] == 1.0


def test_what_is_wrong_changes_nothing(here: Path) -> None:
    spyker.run(out="a", **QUICK)
    before = Path("a/facts.jsonl").read_bytes()
    with pytest.raises(RecordError, match="exists already"):
        spyker.run(out="a", **QUICK)
    for wrong in ({"algorithm": "spiker"}, {"workers": -1}, {"settings": {"no.such": 1}}, {"preset": "tnued"}):
        with pytest.raises(UsageError):
            spyker.run(out="a", overwrite=True, **(QUICK | wrong))
        with pytest.raises(UsageError):
            spyker.run(out="b", **(QUICK | wrong))
    with pytest.raises(UsageError, match="callbacks"):
        spyker.run(out="a", overwrite=True, callbacks=[3], **QUICK)  # type: ignore[list-item]
    assert Path("a/facts.jsonl").read_bytes() == before
    assert [path.name for path in here.iterdir()] == ["a"]


class Watcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def begin(self, scenario: spyker.Scenario) -> None:
        self.heard.append(scenario.algorithm)

    def fact(self, t: float, fact: object) -> None:
        if isinstance(fact, Evaluated):
            self.heard.append((t, fact.mean))

    def end(self, run: spyker.Run) -> None:
        self.heard.append(run)


def test_callbacks_are_told_when_it_begins_what_happens_and_what_came_of_it() -> None:
    watcher, told = Watcher(), []
    run = spyker.run(callbacks=[watcher, lambda t, fact: told.append(fact.kind)], **QUICK)
    assert watcher.heard[0] == "stride"
    assert watcher.heard[1:-1] == [(t, fact.mean) for t, fact, _ in run.facts("evaluation")]
    assert watcher.heard[-1] is run
    assert told == [fact.kind for _, fact, _ in run.facts()]


def test_a_callback_may_end_a_run_in_good_order() -> None:
    run = spyker.run(callbacks=[lambda t, fact: t > 1], **QUICK)
    assert run.summary is not None
    assert not run.finished
    assert 1 < run.summary["time"] < 1.5
    assert run.summary["updates"] == len(list(run.facts("update")))


def test_what_a_callback_raises_arrives_and_leaves_a_readable_record() -> None:
    def fail(t: float, fact: object) -> None:
        if t > 1:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        spyker.run(out="a", callbacks=[fail], **QUICK)
    run = spyker.load("a")
    assert isinstance(run, spyker.Run)
    assert run.summary is None
    assert len(list(run.facts("evaluation"))) >= 2
    assert "stopped early" in repr(run)


def test_an_interrupt_ends_it_in_good_order_and_is_raised() -> None:
    interrupted = []

    def interrupt(t: float, fact: object) -> None:
        if t > 1 and not interrupted:  # a second one would not wait for good order
            interrupted.append(t)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        spyker.run(out="a", callbacks=[interrupt], **QUICK)
    assert signal.getsignal(signal.SIGINT) is before
    run = spyker.load("a")
    assert isinstance(run, spyker.Run)
    assert run.summary is not None
    assert not run.finished


def test_it_runs_in_any_thread() -> None:
    done = []
    thread = threading.Thread(target=lambda: done.append(spyker.run(**QUICK)))
    thread.start()
    thread.join()
    assert done[0].finished


def test_the_folder_of_datasets_holds_for_one_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "data").mkdir()
    spyker.run(data_dir="data", **QUICK)
    assert "SPYKER_DATA" not in os.environ
    monkeypatch.setenv("SPYKER_DATA", str(here))
    spyker.run(data_dir="data", **QUICK)
    assert os.environ["SPYKER_DATA"] == str(here)


SCRIPT = """
import spyker

def make(clients, seed, training, width=4):
    import torch
    torch.manual_seed(seed)
    def blobs(n):
        y = torch.arange(n) % 2
        return torch.randn(n, 2) + 4.0 * y[:, None], y
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))
    return spyker.TorchTask(model, [blobs(16) for _ in range(clients)], blobs(200), training, seed=seed)

options = dict(clients=8, duration=3, progress=False, settings={"training.rate": 0.5})
made = spyker.run(task=make, workers=2, out="made", **options)
there = spyker.run(task=make, workers=0, out="there", **options)
given = spyker.run(task=make(8, 1, spyker.Scenario().training), workers=0, out="given", **options)
swept = spyker.sweep(task=make, vary={"task.width": [2, 4]}, jobs=1, out="swept", **options)
print(made.summary["parameters"], made.summary["final"]["mean"] > 0.9, swept.table["task.width"].tolist())
"""


def test_a_script_may_hold_its_task_and_needs_no_guard(here: Path) -> None:
    (here / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["22", "True", "[2,", "4]"]
    facts = (here / "made" / "facts.jsonl").read_bytes()
    assert facts == (here / "there" / "facts.jsonl").read_bytes()
    assert facts.count(b"update") == (here / "given" / "facts.jsonl").read_bytes().count(b"update")


class Halves(FedAsync):
    """Every update moves the server half of the way."""

    def receive(self, sender: int, message: Any) -> None:
        if isinstance(message, Update):
            self.weights.mix(message.weights, 0.5)
            self.version += 1
            self.record(UpdateApplied(self.id, sender, 0.0, 0.5, self.age, self.version, self.rate))
            self.send_client(sender, self.model(self.rate))


def test_an_algorithm_may_be_a_class() -> None:
    run = spyker.run(algorithm=Halves, **QUICK)
    assert run.folder.name == "halves-quadratic"
    assert {fact.weight for _, fact, _ in run.facts("update")} == {0.5}
    assert list(spyker.compare([Halves, "fedavg"], **QUICK)) == ["halves", "fedavg"]


def test_a_task_of_a_program_goes_with_its_scenario() -> None:
    def small(clients: int, seed: int, training: object, dimension: int = 3) -> spyker.Task:
        return make(Options(dimension=dimension), clients, seed, training)

    scenario = read_scenario(task=small, duration=1.0, settings={"task.dimension": 2})
    runs = [spyker.run(scenario, progress=False), spyker.run(scenario, settings={"task.dimension": 5}, progress=False)]
    assert [(run.summary or {})["parameters"] for run in runs] == [2, 5]
    assert [run.folder.name for run in runs] == ["stride-small", "stride-small-2"]
