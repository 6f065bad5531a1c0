"""Which task a scenario means, and what it is given."""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from remembering_task import Remembering
from remembering_task import make as make_remembering
from stub_task import Stub

from spyker.cli.main import main
from spyker.config.scenario import Scenario, TaskChoice, dump, from_table, load
from spyker.errors import UsageError
from spyker.tasks.registry import choose, resolve, task_spec, with_task_defaults
from spyker.tasks.task import Metric, Task

NOISY = """
from spyker.tasks.task import Metric
from stub_task import Stub

class Noisy(Stub):
    metric = Metric("error", higher_is_better=False)

def make(clients, seed, training, noise_level=0.0, layers=()):
    task = Noisy(3)
    task.noise, task.layers = noise_level, layers
    return task
"""


@pytest.fixture
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "noisy_task.py").write_text(NOISY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("key", ["noise-level", "noise_level"])
def test_an_option_with_a_dash_arrives_and_reads_back(key: str, noisy: Path) -> None:
    scenario = resolve(load(None, {"task.name": "noisy_task:make", f"task.{key}": 0.3}))
    assert task_spec(scenario).make().noise == 0.3  # type: ignore[attr-defined]
    (noisy / "again.toml").write_text(dump(scenario))
    assert resolve(load(noisy / "again.toml")) == scenario
    for other in ("noise-level", "noise_level"):  # the command line's word counts, however the file spells it
        task = task_spec(resolve(load(noisy / "again.toml", {f"task.{other}": 0.7}))).make()
        assert task.noise == 0.7  # type: ignore[attr-defined]


def test_options_may_be_tables_and_lists(noisy: Path) -> None:
    layers = [{"width": 3, "a b": [1.5, "x"]}, {"width": 4}]
    scenario = resolve(from_table({"task": {"name": "noisy_task:make", "layers": layers}}))
    assert tomllib.loads(dump(scenario))["task"]["layers"] == layers


def test_an_option_set_in_both_spellings_is_refused() -> None:
    with pytest.raises(UsageError, match=r"task.noise_level: is the same key as task.noise-level, which is also set"):
        from_table({"task": {"name": "a:b", "noise-level": 1, "noise_level": 2}})


def test_a_run_replaces_a_record_with_such_an_option(noisy: Path) -> None:
    command = ["run", "--task", "noisy_task:make", "--clients", "4", "--duration", "1", "--out", "r", "--overwrite"]
    assert main(command) == 0
    assert main([*command, "--set", "task.noise-level=0.3"]) == 0
    assert tomllib.loads((noisy / "r" / "scenario.toml").read_text())["task"]["noise-level"] == 0.3
    facts = (noisy / "r" / "facts.jsonl").read_bytes()
    for setting in ("task.noise-levle=1", "task.noise level=1"):
        assert main([*command, "--set", setting]) == 2
    assert (noisy / "r" / "facts.jsonl").read_bytes() == facts


def test_targets_follow_the_metric_unless_the_scenario_has_some(noisy: Path) -> None:
    command = ["run", "--clients", "4", "--duration", "1", "--overwrite", "--out", "r"]

    def targets(*more: str) -> Any:
        assert main([*command, *more]) == 0
        assert tomllib.loads((noisy / "r" / "scenario.toml").read_text())["evaluation"]["targets"] is not None
        return list(json.loads((noisy / "r" / "summary.json").read_text())["time_to_target"])

    assert targets("--task", "quadratic") == ["0.9", "0.95"]
    assert targets("--task", "noisy_task:make") == []
    assert targets("--task", "noisy_task:make", "--set", "evaluation.targets=[0.5]") == ["0.5"]
    assert Task.metric.targets == ()  # 0.9 of what?
    scenario = resolve(load(None))
    task = Stub(4)
    task.metric = Metric("loss", targets=(0.1,))
    assert with_task_defaults(scenario, task).evaluation.targets == (0.1,)


def test_tasks_of_installed_packages_are_found(
    noisy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    about = noisy / "noise_fl-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: noise-fl\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[spyker.tasks]\nnoisy = noisy_task:make\ngone = no_module:make\n")
    scenario = resolve(load(None, {"task.noise-level": 0.2}, task="noisy"))
    assert task_spec(scenario).make().noise == 0.2  # type: ignore[attr-defined]
    assert resolve(from_table(tomllib.loads(dump(scenario)))) == scenario
    with pytest.raises(UsageError, match=r"Did you mean 'noisy'\?"):
        resolve(load(None, task="nosiy"))
    with pytest.raises(UsageError, match=r"module:function, or choose one of.* digits.* noisy, gone"):
        resolve(load(None, task="xyz"))
    with pytest.raises(UsageError, match=r'"gone" cannot be imported'):
        task_spec(resolve(load(None, task="gone"))).make()
    command = ["run", "--task", "noisy", "--clients", "4", "--duration", "1", "--workers", "1", "--out", "r"]
    assert main(command) == 0


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'cifar10'\?"):
        resolve(load(None, task="cifar-10"))
    with pytest.raises(UsageError, match=r'"xyz" is not allowed\. Write module:function, or choose one of'):
        resolve(load(None, task="xyz"))


def chosen(task: Any, options: dict[str, object] | None = None) -> Scenario:
    return resolve(replace(load(None), task=choose(task, options)))


def test_a_program_may_give_a_name_a_function_or_a_task() -> None:
    assert chosen("digits") == resolve(load(None))
    scenario = chosen(make_remembering, {"ballast": 3})
    assert scenario.task.name == "remembering_task:make"  # which can be run again from the record
    assert task_spec(scenario).make().ballast == 3  # type: ignore[attr-defined]
    assert resolve(from_table(tomllib.loads(dump(scenario)))).task == TaskChoice(scenario.task.name, {"ballast": 3})
    task = Remembering(5)
    scenario = chosen(task)
    assert scenario.task.name == "remembering_task.Remembering"
    assert task_spec(scenario).make() is task
    with pytest.raises(UsageError, match=r"it was an object of a Python program"):
        resolve(from_table(tomllib.loads(dump(scenario))))

    def here(clients: int, seed: int, training: object) -> Task:
        return Remembering(clients)

    scenario = chosen(here)
    assert scenario.task.name.endswith("<locals>.here")
    assert task_spec(scenario).make().ballast == 100  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="Python program"):
        resolve(from_table(tomllib.loads(dump(scenario))))


def test_what_a_program_cannot_give() -> None:
    with pytest.raises(UsageError, match=r"task: 3 is not allowed\. Give a name, a factory function"):
        chosen(3)
    with pytest.raises(UsageError, match="options are not allowed: the task is an object"):
        chosen(Remembering(5), {"ballast": 3})
    with pytest.raises(UsageError, match=r"task.ballast: <object .*> is not allowed in a scenario file"):
        chosen(make_remembering, {"ballast": object()})
