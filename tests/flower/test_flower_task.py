"""What an app is told, and what becomes of its answers."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spyker
from spyker.api.read_scenario import read_scenario
from spyker.cli.federation_create import served_model
from spyker.config.scenario import Evaluation, Scenario, dump
from spyker.engines.engine import EvaluateJob, TrainJob
from spyker.engines.start_engine import start_engine
from spyker.errors import TaskError, UsageError
from spyker.records import Evaluated
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.registry import evaluated_by, evaluated_by_deployed, task_spec
from spyker.tasks.task import ClientEvaluation, Metric

pytest.importorskip("flwr", reason="needs Flower: pip install 'spyker-fl[flower]'")
import tiny_apps

from spyker.flower.arrays import NamedArrays


def scenario(app: str = "tiny_apps:telling", clients: int = 4, **options: Any) -> Scenario:
    """By default, of the app that tells, with its server."""
    if app == "tiny_apps:telling":
        options = {"server": "tiny_apps:server"} | options
    settings = {f"task.{key.replace('_', '-')}": value for key, value in ({"app": app} | options).items()}
    return read_scenario({"world": {"regions": ["Paris"]}}, task="flower", clients=clients, seed=5, settings=settings)


def make(*args: Any, **options: Any) -> Any:
    return task_spec(scenario(*args, **options)).make()


def test_an_app_is_told_rate_age_round_and_partition() -> None:
    task = make(node_config='data="/data/a.csv"')
    task.train(2, task.initial(), 0.125, 6, 17.5)
    assert tiny_apps.heard["config"] == {
        "lr": 0.125,  # and not what the ServerApp says
        "spyker-rate": 0.125,
        "spyker-age": 17.5,
        "server-round": 7,
        "sum": 0 + 1 + 2 + 3,  # the ServerApp's own, from the answers to its query
    }
    assert tiny_apps.heard["node"] == {"partition-id": 2, "num-partitions": 4, "data": "/data/a.csv"}


def run_once(chosen: Scenario, out: Path, **settings: Any) -> spyker.Run:
    """Train for a moment with FedAvg, in this process, so that ``tiny_apps.heard`` is told."""
    fast = {"training.delay-ms": [100.0] * chosen.client_count}
    return spyker.run(chosen, algorithm="fedavg", settings=fast | settings, duration=0.2, workers=0, out=out)


def test_an_app_trains_at_the_rate_of_its_train_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_once(scenario(), tmp_path / "run")
    assert tiny_apps.heard["config"]["lr"] == 99.0  # type: ignore[index]
    assert run.scenario["training"]["rate"] == 99.0
    assert "learning rate: 99, as lr in the train config of tiny_apps:server" in capsys.readouterr().err


def test_training_rate_takes_the_place_of_the_apps_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_once(scenario(), tmp_path / "run", **{"training.rate": 0.5})
    assert tiny_apps.heard["config"]["lr"] == 0.5  # type: ignore[index]
    assert run.scenario["training"]["rate"] == 0.5
    assert "learning rate: 0.5, as training.rate is set; the app has lr = 99" in capsys.readouterr().err


def test_a_rate_that_a_client_reads_from_the_run_config_is_spykers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rated_project.py").write_text("from tiny_apps import old as app\n", "utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nlearning-rate = 0.3\nepochs = 1\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    run = run_once(scenario("rated_project:app", evaluate="none"), tmp_path / "run")
    assert run.scenario["training"]["rate"] == 0.3
    assert tiny_apps.heard["run"] == {"learning-rate": 0.3, "epochs": 1}
    run_once(scenario("rated_project:app", evaluate="none"), tmp_path / "other", **{"training.rate": 0.5})
    assert tiny_apps.heard["run"] == {"learning-rate": 0.5, "epochs": 1}


def test_an_app_without_a_rate_is_sent_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_once(scenario("tiny_apps:old"), tmp_path / "run")
    assert run.scenario["training"]["rate"] == 0.05
    said = capsys.readouterr().err
    assert "learning rate: the app names none; 0.05 is sent as lr, which the app may ignore" in said


def test_a_scenario_keeps_the_rate_open_until_the_app_is_there() -> None:
    assert "rate" not in tomllib.loads(dump(scenario()))["training"]
    assert tomllib.loads(dump(read_scenario(task="digits")))["training"]["rate"] == 0.05


@pytest.mark.parametrize(
    ("options", "who"),
    [
        (
            {"app": "tiny_apps:old", "server": "tiny_apps:old_server"},
            "on the server, by the evaluate_fn of tiny_apps:old_server",
        ),
        ({}, "by the clients, each with its own data (4 of 4)"),
        ({"evaluate": "none"}, "none (task.evaluate)"),
    ],
)
def test_who_evaluates_is_said(options: dict[str, Any], who: str) -> None:
    assert f"evaluation: {who}" in make(**options).notes


def test_the_key_of_the_rate_is_the_apps() -> None:
    task = make(rate_key="eta")
    task.train(2, task.initial(), 0.125, 0)
    config: Any = tiny_apps.heard["config"]
    assert (config["eta"], config["lr"]) == (0.125, 99.0)


def test_arrays_have_their_shapes_and_types_in_the_app_and_the_others_stay() -> None:
    task = make()
    weights = task.initial()
    assert (weights.dtype, weights.size) == (np.float32, 24 + 2)
    trained = task.train(0, weights, 0.1, 0).weights
    arrays: Any = tiny_apps.heard["arrays"]
    for name, array in tiny_apps.MODEL.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_allclose(arrays[name], array)
    np.testing.assert_array_equal(trained, weights + 1)
    task.train(0, trained, 0.1, 1)
    assert tiny_apps.heard["arrays"]["seen"] == 7  # type: ignore[index]


def test_examples_and_numbers_are_in_the_answer() -> None:
    trained = make().train(0, make().initial(), 0.1, 0)
    assert trained.examples == 30
    assert {"count": 1.0, "each.0": 0.5, "each.1": 0.25}.items() <= trained.metrics.items()


def test_an_app_finds_its_state_again() -> None:
    task = make()
    guard, weights, state = CheckedTask(task), task.initial(), None
    for count in (1, 2, 3):
        trained: Any = guard.train(1, weights, 0.1, count - 1, state)
        state = trained.state
        assert trained.metrics["count"] == count


def test_random_numbers_follow_from_seed_client_and_step() -> None:
    task = make()
    draw = [task.train(k, task.initial(), 0.1, step).metrics["draw"] for k, step in ((0, 0), (0, 0), (1, 0), (0, 1))]
    assert draw[0] == draw[1]
    assert len(set(draw)) == 3


def test_clients_judge_weighted_by_their_examples() -> None:
    task = make(clients=3)
    assert task.metric == Metric("rmse", higher_is_better=False), "and less of an error is better"
    assert task.evaluate(task.initial()) == pytest.approx((0 * 10 + 1 * 20 + 2 * 30) / 60)
    few = make(clients=3, evaluate_clients=2, metric="mass")
    assert few.metric == Metric("mass")
    assert few.evaluate(few.initial()) == pytest.approx(1 * 20 / 30)
    assert np.isnan(make(evaluate="none").evaluate(task.initial()))


@pytest.mark.parametrize("workers", [0, 1])
def test_clients_find_their_state_when_they_evaluate(workers: int, tmp_path: Path) -> None:
    chosen = scenario(clients=2, metric="count")
    settings = {"training.delay-ms": [400.0, 400.0], "evaluation.interval": 1.0}
    run = spyker.run(
        chosen, algorithm="fedavg", settings=settings, duration=2, workers=workers, out=tmp_path / "run", progress=False
    )
    counts = [stated.fact.mean for stated in run.record.facts(Evaluated)]
    assert counts == [0, 2, 4], "trainings of each client so far"


def test_a_numpy_client_is_asked_for_the_first_model() -> None:
    task = make("tiny_apps:old")
    np.testing.assert_array_equal(task.initial(), [3, 3, 3, 3, 0])
    trained = task.train(0, task.initial(), 0.5, 0, 2.0)
    np.testing.assert_array_equal(trained.weights, [4, 4, 4, 4, 1])
    assert (trained.examples, trained.metrics) == (12, {"loss": 0.5, "done": 1.0})
    assert tiny_apps.heard["config"] == {"lr": 0.5, "spyker-rate": 0.5, "spyker-age": 2.0, "server-round": 1}
    assert (task.metric.name, task.evaluate(task.initial())) == ("accuracy", 0.75)


def test_a_server_fn_has_the_first_model_the_configuration_and_the_judge() -> None:
    task = make("tiny_apps:old", server="tiny_apps:old_server", metric="loss")
    np.testing.assert_array_equal(task.initial(), np.ones(5))
    task.train(0, task.initial(), 0.5, 0)
    assert tiny_apps.heard["config"]["momentum"] == 0.9  # type: ignore[index]
    assert task.evaluate(task.initial()) == 4.0


def test_a_server_app_runs_once_however_many_workers_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task, engine = start_engine(scenario(server="tiny_apps:leaving"), workers=2)
    with engine:
        trainings = [TrainJob(k, task.initial(), 0.1, 0) for k in range(3)]
        evaluation = EvaluateJob(task.initial())
        for job in (*trainings, evaluation):
            engine.submit(job, 0.0)
        assert all((engine.trained(job) == task.initial() + 1).all() for job in trainings)
        assert engine.score(evaluation) == pytest.approx(0.6)


def test_a_strategy_with_its_own_start_evaluates_on_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = make(server="tiny_apps:leaving")
    assert (task.evaluator, task.metric.name) == ("server", "accuracy")
    assert task.evaluate(task.initial()) == pytest.approx(0.6)


def test_a_function_has_the_first_model() -> None:
    task = make("tiny_apps:failing", model="tiny_apps:model")
    assert task.layout.names == ("image", "wide")
    assert task.evaluator == "none", "this app has no evaluation"


def test_a_project_names_the_server_and_has_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_project.py").write_text("from tiny_apps import telling as app, server\n", "utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nserverapp = "own_project:server"\nclientapp = "own_project:app"\n'
        '[tool.flwr.app.config]\nepochs = 1\ndeep.key = "a"\n',
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    task = make("own_project:app", run_config='deep.key="b c"')
    task.train(0, task.initial(), 0.1, 0)
    assert tiny_apps.heard["run"] == {"epochs": 1, "deep.key": "b c"}
    assert tiny_apps.heard["config"]["deep.key"] == "b c"  # type: ignore[index]
    with pytest.raises(UsageError, match=r"task.run-config: epoch: is not in .* Did you mean 'epochs'"):
        make("own_project:app", run_config="epoch=2")


@pytest.mark.parametrize(
    ("app", "complaint"),
    [
        ("failing", r"^task FlowerTask, training client 3:\n(.*\n)*LookupError: the disk of this client is empty$"),
        ("refusing", "training client 3:\n(.*\n)*.*the app answered with error 3: not today$"),
        (
            "reshaping",
            r"training client 3:\n(.*\n)*.*reshaping returned the array 'wide' in the shape \(5,\)",
        ),
    ],
)
def test_what_goes_wrong_names_client_and_reason(app: str, complaint: str) -> None:
    task = make(f"tiny_apps:{app}", model="tiny_apps:model")
    with pytest.raises(TaskError, match=complaint):
        CheckedTask(task).train(3, task.initial(), 0.1, 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"app": "no_such_package.client_app:app"}, 'task.app: "no_such_package.client_app:app" cannot be imported'),
        ({"app": "tiny_apps:tellin"}, "task.app: .*tiny_apps has no 'tellin'.*Did you mean 'telling'"),
        ({"app": "tiny_apps:server"}, "task.app: tiny_apps:server is a ServerApp. Name a ClientApp"),
        ({"app": "tiny_apps"}, 'task.app: "tiny_apps" is not allowed. Write package.module:app'),
        (
            {"app": "tiny_apps:failing"},
            "task.app: tiny_apps:failing has no initial model.*task.model",
        ),
        ({"server": "tiny_apps:telling"}, "task.server: tiny_apps:telling is a ClientApp"),
        ({"server": "tiny_apps:idle"}, "task.server: ended without sending a model to a client"),
        ({"server": "tiny_apps:crowded"}, "task.server: waits for more nodes than the 4 clients"),
        (
            {"model": "tiny_apps:trees"},
            r"task.app: tiny_apps:telling is not allowed: its model is bytes \(the array '0' of uint8\), as of XGBoost "
            "and other trees, and not arrays of floating-point numbers, so servers cannot average it. Choose an "
            "app whose model is float arrays, or let Flower run this one",
        ),
        ({"model": "tiny_apps:no_trees"}, r"its model is bytes \(the array '0' of uint8\)"),
        (
            {"model": "tiny_apps:counts"},
            "task.app: tiny_apps:telling is not allowed: its model has no floating-point array, only 'sum' of int64, "
            "'seen' of int64, so servers cannot average it",
        ),
        ({"evaluate": "server"}, "task.evaluate: server is not allowed: the app has no such evaluation"),
        ({"run_config": "epochs"}, 'task.run-config: "epochs" is not allowed. Write key=value'),
        ({"model": "tiny_apps:heard"}, "task.model: tiny_apps:heard is a dict. Name a function"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        make(**options)


def test_numbers_that_are_not_finite_are_found_in_their_arrays() -> None:
    task = make("tiny_apps:diverging", model="tiny_apps:model")
    said = task.explain(1, task.initial(), 0.1, 0)
    assert "tiny_apps:diverging returned numbers that are not finite in 'wide'. Look at its training and data" in said


def test_statistics_of_a_normalisation_stand_last() -> None:
    rows = {"0.running_var": np.ones(3), "0.weight": np.zeros((2, 3)), "0.running_mean": np.zeros(3)}
    arrays = NamedArrays.of({name: array.astype(np.float32) for name, array in rows.items()})
    assert arrays.layout.names == ("0.weight", "0.running_var", "0.running_mean")
    assert arrays.buffers == 6
    np.testing.assert_array_equal(arrays.vector(rows), [0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0])


def test_a_client_needs_the_file_and_not_the_server_app(tmp_path: Path) -> None:
    """The clients of a federation do not run the ServerApp, which may need data that they do not have."""
    task = make()
    task.write_setup(tmp_path / "setup")
    alone = make(server="tiny_apps:no_such_server", setup=str(tmp_path / "setup"))
    np.testing.assert_array_equal(alone.initial(), task.initial())
    alone.train(2, alone.initial(), 0.125, 6, 17.5)
    assert tiny_apps.heard["config"]["sum"] == 0 + 1 + 2 + 3


@pytest.mark.parametrize("content", [b"", b"\xff" * 20])
def test_a_damaged_setup_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "setup").write_bytes(content)
    with pytest.raises(UsageError, match=r"task\.setup.*federation create"):
        make(setup=str(tmp_path / "setup"))


def test_a_client_evaluates_alone_with_its_own_data_and_state() -> None:
    task = make(clients=3)
    task.hold_out(0.2)
    assert task.evaluate_client(1, task.initial()) == ClientEvaluation(20, {"rmse": 1.0})
    assert task.metric == Metric("rmse", higher_is_better=False), "without a call of another client"
    few = make(clients=3, evaluate_clients=2, metric="count")
    trained = CheckedTask(few).train(1, few.initial(), 0.1, 0)
    again: Any = CheckedTask(few).train(1, few.initial(), 0.1, 1, trained.state, evaluate=True)  # type: ignore[union-attr]
    assert again.evaluation == ClientEvaluation(20, {"count": 1.0})
    assert few.evaluate_client(2, few.initial()) is None


def test_clients_evaluate_a_deployed_app_and_emulations_are_as_before() -> None:
    task = make(clients=3)
    unset = Evaluation()
    assert evaluated_by(unset, task) == "servers"
    assert evaluated_by_deployed(unset, task) == "clients"
    assert evaluated_by_deployed(Evaluation(by="servers"), task) == "servers"
    federation, *_ = served_model(scenario(clients=3), None)
    assert federation.evaluation.by == "clients"
    assert served_model(scenario(clients=3, evaluate="none"), None)[0].evaluation.by == "servers"
