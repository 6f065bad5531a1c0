"""The two example apps in both worlds, and the same models as Spyker's own tasks: their results are equal."""

import json
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import native_digits
import numpy as np
import pytest
from deployment import until
from safetensors.numpy import load_file

import spyker
from spyker.api.read_scenario import read_scenario
from spyker.cli.main import main
from spyker.config.scenario import dump
from spyker.net.local_cluster import LocalCluster
from spyker.protocol.facts import ClientReported
from spyker.records import RunRecord, first_fact

pytest.importorskip("flwr", reason="needs Flower: pip install 'spyker-fl[flower]'")
EXAMPLES = Path(__file__).parents[2] / "examples"
KINDS = {"pytorch": 0.1, "sklearn": 0.01}


def app(kind: str) -> str:
    return f"digits_{kind}.client_app:app"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = EXAMPLES / f"flower-{request.param}"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return str(request.param)


def native(kind: str, out: Path, **more: Any) -> spyker.Run:
    task = getattr(native_digits, kind)
    return spyker.run(task=task, out=out, workers=0, progress=False, model=True, **more)


def facts(run: RunRecord) -> list[str]:
    """All but the first, which says what the run is."""
    return (run.folder / "facts.jsonl").read_text("utf-8").splitlines()[1:]


@pytest.mark.timeout(300)
def test_an_emulated_app_is_equal_to_a_task(kind: str, tmp_path: Path) -> None:
    rate = KINDS[kind]
    settings = ["--set", f"training.rate={rate}", "--set", "evaluation.interval=0.5"]
    where = ["--clients", "4", "--duration", "1", "--seed", "3", "--workers", "1", "--out", str(tmp_path / "flower")]
    assert main(["run", "--flower", app(kind), *settings, *where]) == 0
    theirs = spyker.Run(tmp_path / "flower")
    settings_too = {"training.rate": rate, "evaluation.interval": 0.5}
    ours = native(kind, tmp_path / "native", clients=4, duration=1, seed=3, settings=settings_too)
    assert facts(theirs.record) == facts(ours.record)
    model, same = (load_file(run.folder / "model.safetensors") for run in (theirs, ours))
    assert {name: array.tobytes() for name, array in model.items()} == {n: a.tobytes() for n, a in same.items()}
    scores = [fact["mean"] for line in facts(theirs.record) if "mean" in (fact := json.loads(line))]
    assert scores[-1] > scores[0] + 0.3, "and it has learnt"
    assert any("train_" in line for line in facts(theirs.record)), "its metrics are among the facts"


def told(record: Path) -> dict[int, list[tuple[int | None, dict[str, float]]]]:
    """What each client reported, in its order."""
    reports = defaultdict(list)
    for stated in RunRecord(record).facts():
        if isinstance(stated.fact, ClientReported):
            reports[stated.fact.client].append((stated.fact.examples, stated.fact.metrics))
    return reports


@pytest.mark.timeout(300)
def test_a_deployed_app_is_equal_to_a_task(kind: str, tmp_path: Path) -> None:
    """Rounds of two clients, each a process: what they report follows from all that was trained and averaged before."""
    rate = KINDS[kind]
    table = {
        "algorithm": "fedavg",
        "world": {"regions": ["Paris"], "clients": [2]},
        "training": {"rate": rate},
        "evaluation": {"interval": 0.25},
        "robust": {"when": "never"},  # with the filter, sizes that are known late count late
    }
    scenario = read_scenario(table, task="flower", settings={"task.app": app(kind)})
    plain = tmp_path / "plain.toml"  # without a task
    text = dump(scenario)
    plain.write_text(text[: text.index("[task]")] + text[text.index("[world]") :], "utf-8")
    with LocalCluster(scenario, tmp_path / "local", insecure=True, paced=False, duration=None) as local:
        local.servers.append(local.serve(0))
        join = [sys.executable, "-m", "spyker", "join", str(plain), "--flower", app(kind), "--insecure"]
        for k in range(2):
            log = (tmp_path / f"client-{k}.log").open("wb")
            command = [*join, "--server", local.addresses[0], "--clients", str(k)]
            local.clients.append(subprocess.Popen(command, stdout=log, stderr=log))
        record = local.record(0)
        until(lambda: first_fact(record) is not None and min(map(len, told(record).values()), default=0) >= 4, 200)
        local.servers[0].send_signal(signal.SIGTERM)
        assert local.servers[0].wait(200) == 0
    deployed = told(record)
    rounds = max(map(len, deployed.values()))
    ours = native(kind, tmp_path / "native", scenario=table, duration=0.5 * rounds)
    emulated = told(ours.folder)
    assert sorted(deployed) == sorted(emulated) == [0, 1]
    for k, reports in deployed.items():
        assert len(reports) <= len(emulated[k])
        assert reports == emulated[k][: len(reports)]


@pytest.mark.parametrize("kind", ["pytorch"], indirect=True)
def test_an_app_is_as_good_as_a_pytorch_task(kind: str) -> None:
    """With one batch per epoch the order of the images does not matter, and the sums differ in their rounding alone."""
    from digits_pytorch.task import Net, load_data, load_test_data
    from spyker.config.scenario import Training
    from spyker.tasks.registry import task_spec
    from spyker.tasks.torch_task import TorchTask

    settings = {"task.app": app(kind), "task.run-config": "batch-size=1000 local-epochs=3"}
    flower = task_spec(read_scenario(task="flower", clients=4, settings=settings)).make()
    datasets = [load_data(k, 4, 1000)[0].dataset for k in range(4)]
    training = Training(batch_size=1000, epochs=3)
    task = TorchTask(Net(), datasets, load_test_data().dataset, training)
    start = flower.initial()
    trained = flower.train(1, start, 0.5, 0)
    np.testing.assert_allclose(trained.weights, task.train(1, start, 0.5, 0), atol=1e-5)  # type: ignore[union-attr]
    assert flower.evaluate(start) == pytest.approx(task.evaluate(start))
