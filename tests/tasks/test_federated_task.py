"""A federated task loads the data of a client only where that client trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from spyker.config.scenario import Evaluation, TaskChoice, Training
from spyker.errors import ClientTrainingError, TaskError, UsageError
from spyker.tasks.by_value import ByValue
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.federated_task import ClientInfo, ClientRoster, FederatedTask
from spyker.tasks.registry import TaskSpec, choose
from spyker.tasks.task import Metric, Task, TrainingResult


def points(seed: int, count: int) -> tuple[Any, Any]:
    y = np.arange(count) % 2
    return (np.random.default_rng(seed).normal(size=(count, 2)) + 3 * y[:, None]).astype("f4"), y


class Blobs(FederatedTask):
    """Each client has two more points than the one before it."""

    def __init__(self, shift: float = 0.0) -> None:
        self.shift, self.loaded = shift, []  # type: ignore[var-annotated]

    def model(self) -> nn.Module:
        return nn.Linear(2, 2)

    def data(self, client: ClientInfo) -> Any:
        self.loaded.append(client)
        return points(client.seed, 10 + 2 * client.number)


class WithTest(Blobs):
    def test(self) -> Any:
        return points(99, 50)


class Centroids(FederatedTask):
    """A model of NumPy arrays, without PyTorch."""

    metric = Metric("distance", higher_is_better=False)

    def model(self) -> dict[str, Any]:
        return {"centre": np.zeros(2), "scale": np.ones((1,))}

    def data(self, client: ClientInfo) -> Any:
        return points(client.seed, 6)[0]

    def client_test(self, client: ClientInfo) -> Any:
        return points(client.seed + 1, 4)[0]

    def train(self, model: Any, data: Any, *, rate: float, seed: int, training: Training) -> Any:
        model["centre"] += rate * (data.mean(0) - model["centre"])
        return model

    def evaluate(self, model: Any, data: Any) -> float:
        return float(np.linalg.norm(data.mean(0) - model["centre"]))


def made(
    definition: Any, *, own: Any = None, options: Any = None, names: tuple[str, ...] = (), **evaluation: Any
) -> Task:
    choice = TaskChoice("task", options or {}, ByValue(definition))
    return TaskSpec(choice, 4, 1, Training(), Evaluation(**evaluation), names, own).make()


def test_making_the_task_loads_no_data() -> None:
    definition = WithTest()
    task = made(definition)
    task.initial()
    task.evaluate(task.initial())
    assert definition.loaded == []


def test_a_training_loads_the_data_of_its_client_alone_and_once() -> None:
    definition = WithTest()
    task = made(definition)
    for step in range(2):
        task.train(2, task.initial(), 0.1, step)
    assert [client.number for client in definition.loaded] == [2]
    assert task.size(2) == 14


def test_the_initial_model_depends_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    first = made(Blobs()).initial().copy()
    torch.manual_seed(6)
    assert np.array_equal(made(Blobs()).initial(), first)


class NotFinite(Blobs):
    def model(self) -> nn.Module:
        model = nn.Linear(2, 2)
        nn.init.constant_(model.weight, float("nan"))
        return model


class ArraysNotFinite(Centroids):
    def model(self) -> dict[str, Any]:
        return {"centre": np.array([0.0, np.inf])}


@pytest.mark.parametrize("own", [None, {}])
def test_a_model_that_is_not_finite_is_refused_before_the_run(own: Any) -> None:
    """An emulation, and the process that creates a federation."""
    with pytest.raises(UsageError, match=r"model\(\) returns weights that are not finite \(weight\[0, 0\] is nan\)"):
        made(NotFinite(), own=own)
    with pytest.raises(UsageError, match=r"model\(\) returns weights that are not finite \(centre\[1\] is inf\)"):
        made(ArraysNotFinite(), own=own)


class NoModel(Blobs):
    def model(self) -> Any:
        nn.Linear(2, 2)


class NoData(Blobs):
    def data(self, client: ClientInfo) -> Any:
        points(client.seed, 10)


class NoArrays(Centroids):
    def data(self, client: ClientInfo) -> Any:
        points(client.seed, 6)


def test_a_method_that_returns_none_is_named() -> None:
    with pytest.raises(UsageError, match=r"^task: model\(\) returned None\. Is `return` missing\?$"):
        made(NoModel())
    for definition in (NoData(), NoArrays()):
        with pytest.raises(UsageError, match=r"^task: client 1: data\(\) returned None\. Is `return` missing\?$"):
            made(definition).size(1)


class Unfinished(FederatedTask):
    def model(self) -> Any:
        return nn.Linear(2, 2)


class WithoutClient(Blobs):
    def data(self) -> Any:  # type: ignore[override]
        return points(0, 10)


class Plain:
    def model(self) -> Any:
        return nn.Linear(2, 2)


def test_what_a_task_lacks_is_named_without_a_traceback() -> None:
    with pytest.raises(
        UsageError, match=r"^task: Unfinished has no method data\. Unfinished needs data\(self, client\)$"
    ):
        made(Unfinished)
    with pytest.raises(
        UsageError, match=r"^task: data\(\) -> 'Any' is not allowed: .*WithoutClient needs data\(self, client\)$"
    ):
        made(WithoutClient)
    with pytest.raises(
        UsageError, match=r"does not extend spyker\.FederatedTask\. Write class Plain\(spyker\.FederatedT"
    ):
        made(Plain)


class Few(Blobs):
    def data(self, client: ClientInfo) -> Any:
        x, y = points(client.seed, 10)
        return x, y[:5]


def test_a_client_without_a_name_is_not_called_client_twice() -> None:
    with pytest.raises(UsageError, match=r"^task: client 1 has 10 inputs and 5 targets"):
        made(Few()).size(1)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (lambda x, y: (x, np.stack([y, y, y], 1)), r"Define the method loss"),
        (lambda x, y: (x.astype("f8"), y), r'astype\("float32"\)'),
        (lambda x, y: ([(x[:3], 0), (x[:4], 1)]), r"Define the method collate"),
        (lambda x, y: [{"a": 1.0, "b": 0}], r"attributes of a FederatedTask"),
    ],
)
def test_the_methods_and_attributes_of_the_task_are_named(change: Any, remedy: str) -> None:
    class Wrong(Blobs):
        def data(self, client: ClientInfo) -> Any:
            return change(*points(0, 10))

    with pytest.raises(UsageError, match=remedy):
        made(Wrong()).size(0)


class Regression(Blobs):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))

    def data(self, client: ClientInfo) -> Any:
        x, _ = points(client.seed, 10)
        return x, x.sum(1)

    def loss(self, outputs: Any, targets: Any) -> Any:
        return nn.functional.mse_loss(outputs, targets)


def test_a_regression_needs_a_score() -> None:
    with pytest.raises(UsageError, match=r"accuracy, the default score, is for classes.*Define score and metric"):
        made(Regression()).size(0)


class Empty(Blobs):
    def data(self, client: ClientInfo) -> Any:
        return float("")


def test_an_error_in_the_data_of_a_client_has_its_name() -> None:
    task = CheckedTask(made(Empty(), names=("charite", "mayo")))
    with pytest.raises(TaskError, match=r"task Empty, counting the data of client 1 \(mayo\):"):
        task.size(1)
    with pytest.raises(ClientTrainingError, match=r"training client 0 \(charite\):"):
        task.train(0, task.task.initial(), 0.1, 0)
    with pytest.raises(TaskError, match="data of client 3:"):
        task.size(3)


def test_emulated_clients_have_names_and_options() -> None:
    definition = Blobs()
    task = made(
        definition, options={"client-options": {"data": "tables/{name}-{number}.csv"}}, names=("charite", "mayo")
    )
    task.size(1)
    task.size(3)
    first, second = definition.loaded
    assert (first.name, first.options) == ("mayo", {"data": "tables/mayo-1.csv"})
    assert (second.name, second.options) == ("client-3", {"data": "tables/client-3-3.csv"})
    assert first.seed != second.seed


def test_the_further_keys_of_the_task_are_arguments_of_its_class() -> None:
    assert made(Blobs, options={"shift": 2.0}).local
    with pytest.raises(UsageError, match="shfit"):
        made(Blobs, options={"shfit": 2.0})


def test_a_process_of_a_federation_has_its_own_clients_only() -> None:
    task = made(Blobs(), own={1: ClientInfo("mayo", 1)})
    assert task.size(1) == 10  # a fifth of twelve is held out
    with pytest.raises(UsageError, match="not in this process"):
        task.size(0)


def test_changed_data_is_loaded_before_the_next_training(tmp_path: Any) -> None:
    file = tmp_path / "rows.npy"

    class Table(Blobs):
        def data(self, client: ClientInfo) -> Any:
            return points(0, len(np.load(client.options["data"])))

    np.save(file, np.zeros(10))
    task = made(Table(), own={0: ClientInfo("charite", 0, 0, {"data": str(file)})})
    announced = task.size(0)
    np.save(file, np.zeros(30))
    os.utime(file, ns=(1, 1))
    result = task.train(0, task.initial(), 0.1, 1)
    assert isinstance(result, TrainingResult)
    assert (announced, result.examples) == (8, 24)  # a fifth is held out


def test_without_test_data_clients_evaluate_with_a_part_that_they_do_not_train_on() -> None:
    task = made(Blobs())
    assert task.evaluated_by == "clients"
    found = task.evaluate_client(0, task.initial())
    assert found is not None
    assert found.examples == 2
    assert task.size(0) == 8
    with pytest.raises(UsageError, match="no test data"):
        task.evaluate(task.initial())


def test_with_central_test_data_servers_evaluate_and_nothing_is_held_out() -> None:
    task = made(WithTest())
    assert task.evaluated_by == "servers"
    assert task.size(0) == 10
    both = made(WithTest(), by="both")
    assert both.evaluated_by == "both"
    assert both.size(0) == 8


def test_servers_cannot_evaluate_without_central_test_data() -> None:
    with pytest.raises(UsageError, match=r"evaluation\.by.*no central test data"):
        made(Blobs(), by="servers")


def test_the_held_out_part_is_the_same_in_every_process() -> None:
    first, second = made(Blobs()), made(Blobs())
    assert first.evaluate_client(3, first.initial()) == second.evaluate_client(3, second.initial())


def test_a_fault_in_a_clients_data_names_the_client() -> None:
    class Wrong(Blobs):
        def data(self, client: ClientInfo) -> Any:
            return points(0, 10)[0][:, :1], points(0, 10)[1]

    task = made(Wrong(), names=("charite",))
    with pytest.raises(UsageError, match=r"client 0 \(charite\)"):
        task.train(0, task.initial(), 0.1, 0)


def test_a_model_of_arrays_trains_and_evaluates_with_its_own_code() -> None:
    task = made(Centroids())
    assert task.evaluated_by == "clients"
    result = task.train(1, task.initial(), 0.5, 0)
    assert isinstance(result, TrainingResult)
    before, after = (task.evaluate_client(1, w) for w in (task.initial(), result.weights))
    assert before is not None
    assert after is not None
    assert after.scores["distance"] < before.scores["distance"]
    assert after.examples == 4


OWN = """
import sys
import numpy as np
import spyker
from spyker.config.scenario import Training
from spyker.tasks.by_value import ByValue
from spyker.tasks.registry import TaskSpec, choose

class Arrays(spyker.FederatedTask):
    def model(self):
        return {"centre": np.zeros(2)}
    def data(self, client):
        return [1]
    def client_test(self, client):
        return [1]
    def train(self, model, data, *, rate, seed, training):
        return model
    def evaluate(self, model, data):
        return 0.0

class Network(Arrays):
    def model(self):
        import torch
        return torch.nn.Linear(2, 2)

def initial(definition):
    return TaskSpec(choose(definition), clients=2, seed=7, training=Training()).make().initial().tolist()

print(initial(Arrays), "torch" in sys.modules)
print(initial(Network) == initial(Network))
"""


def test_pytorch_is_not_imported_for_a_model_of_arrays_and_seeded_for_one_that_imports_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN, "utf-8")
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[0.0, 0.0] False\nTrue\n", "")


def test_a_definition_is_chosen_by_class_or_object() -> None:
    assert choose(Blobs).given.value is Blobs
    definition = Blobs()
    assert choose(definition).given.value is definition


def test_clients_seeds_differ() -> None:
    roster = ClientRoster(50, 1)
    assert len({roster.client(k).seed for k in range(50)}) == 50
