"""Personalised parameters stay with their client, in both kinds of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from spyker.config.scenario import Evaluation, TaskChoice, Training
from spyker.errors import ClientTrainingError, UsageError
from spyker.tasks.by_value import ByValue
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.federated_task import ClientInfo, FederatedTask
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import TaskSpec
from spyker.tasks.served_model import ModelSpec
from spyker.tasks.task import Metric, Task, TrainingResult
from spyker.tasks.torch_task import TorchTask


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 4, 2))


def images(seed: int, count: int = 12) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 1, 4, 4)).astype("f4"), np.arange(count) % 2


def torch_task(personal: tuple[str, ...] = ("3.*",), **training: Any) -> TorchTask:
    task = TorchTask(
        network(),
        [images(0), images(1)],
        images(2),
        Training(rate=0.1, batch_size=4, **training),
        client_tests=[images(3), images(4)],
        personal=personal,
    )
    assert isinstance(task, TorchTask)
    return task


def trained(task: Task, weights: Any = None, step: int = 0, state: Any = None, client: int = 0) -> TrainingResult:
    found = task.train(client, task.initial() if weights is None else weights, 0.1, step, state)  # type: ignore[call-arg]
    assert isinstance(found, TrainingResult)
    return TrainingResult(found.weights.copy(), found.examples, found.metrics, found.state)


def parts(task: TorchTask, weights: Any, state: Any) -> dict[str, Any]:
    return task.client_model(weights, state)


def test_the_weights_hold_shared_parameters_only() -> None:
    task = torch_task()
    assert task.layout.names == ("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var")
    assert task.initial().size == sum(p.numel() for n, p in network().state_dict().items() if n in task.layout.names)
    assert task.buffers == 4
    assert ModelSpec.of(task).layout.names == task.layout.names
    assert layout_digest(task) != layout_digest(torch_task(personal=()))


def test_a_training_equals_one_of_the_whole_model_that_starts_from_the_same_numbers() -> None:
    """Which parameters are personal changes where they are kept, not what a step does to them."""
    plain, personal = torch_task(personal=()), torch_task(personal=("3.*", "0.bias", "buffers"))
    for task in (plain, personal):
        assert task.evaluate(task.initial()) == plain.evaluate(plain.initial())
    result = plain.train(0, plain.initial(), 0.1, 0)
    whole = parts(plain, result if isinstance(result, np.ndarray) else result.weights, None)
    own = trained(personal)
    for name, part in parts(personal, own.weights, own.state).items():
        assert np.array_equal(part, whole[name]), name


def test_the_next_training_starts_from_the_clients_own_parameters() -> None:
    task = torch_task()
    first = trained(task)
    again, fresh = trained(task, step=1, state=first.state), trained(task, step=1)
    assert not np.array_equal(again.weights, fresh.weights)
    head = parts(task, task.initial(), first.state)["3.weight"]
    moved = parts(task, task.initial(), again.state)["3.weight"]
    assert 0 < np.abs(moved - head).max() < 1
    assert not np.array_equal(head, parts(task, task.initial(), None)["3.weight"])


def test_one_client_does_not_see_the_parameters_of_another() -> None:
    task = torch_task()
    expected = trained(torch_task(), client=1)
    trained(task, client=0)
    found = trained(task, client=1)
    assert np.array_equal(found.weights, expected.weights)
    assert np.array_equal(found.state["personal"], expected.state["personal"])  # type: ignore[index]


def test_buffers_selects_all_buffers_and_the_parameters_of_batch_norm() -> None:
    task = torch_task(personal=("buffers",))
    assert task.personal == {"1.weight", "1.bias", "1.running_mean", "1.running_var"}
    assert task.buffers == 0
    assert task.layout.names == ("0.weight", "0.bias", "3.weight", "3.bias")
    single = TorchTask(
        nn.BatchNorm1d(3), [(np.ones((4, 3), "f4"), np.zeros(4, int))], None, Training(), personal=["running_*"]
    )
    assert single.personal == {"running_mean", "running_var"}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("haed.*",), r"haed\.\*.* matches no parameter.*The model has 0\.weight, 0\.bias"),
        (("*",), r"matches every parameter.*The model has 0\.weight"),
        (("0.*", "1.*", "3.*"), "none is left to share"),
    ],
)
def test_patterns_that_match_nothing_or_everything_are_refused(patterns: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        torch_task(personal=patterns)


def test_a_model_without_buffers_has_none_to_keep() -> None:
    with pytest.raises(UsageError, match=r"buffers.* matches no parameter"):
        TorchTask(nn.Linear(2, 2), [(np.ones((4, 2), "f4"), np.zeros(4, int))], None, Training(personal=("buffers",)))


def test_the_setting_takes_precedence_over_the_task() -> None:
    task = TorchTask(network(), [images(0)], None, Training(personal=("0.bias",)), personal=["3.*"])
    assert task.personal == {"0.bias"}
    none = TorchTask(network(), [images(0)], None, Training(personal=()), personal=["3.*"])
    assert none.personal == frozenset()


def test_a_client_reports_the_personalised_and_the_shared_score() -> None:
    task = torch_task()
    state = None
    weights = task.initial()
    for step in range(3):
        result = trained(task, weights, step, state)
        weights, state = result.weights, result.state
    found = task.evaluate_client(0, weights, state)
    assert found is not None
    assert found.scores.keys() == {"accuracy", "shared accuracy"}
    without = task.evaluate_client(0, weights, None)
    assert without is not None
    assert without.scores["accuracy"] == without.scores["shared accuracy"] == found.scores["shared accuracy"]
    whole = torch_task(personal=())
    complete = whole.layout.vector(task.client_model(weights, state))
    expected = whole.evaluate_client(0, complete)
    assert expected is not None
    assert expected.scores == {"accuracy": found.scores["accuracy"]}


def test_central_evaluation_uses_the_initial_personal_parameters_and_says_so() -> None:
    task = torch_task()
    result = trained(task)
    whole = torch_task(personal=())
    complete = whole.layout.vector(task.client_model(result.weights, None))
    assert task.evaluate(result.weights) == whole.evaluate(complete)
    assert "initial values of the personal parameters" in " ".join(task.notes)


@pytest.mark.parametrize("optimiser", ["adam", "momentum", "LBFGS"])
def test_a_kept_optimiser_state_covers_personal_parameters(optimiser: str) -> None:
    task = torch_task(optimiser=optimiser, keep_optimiser=True)
    first = trained(task)
    assert set(first.state) == {"optimiser", "personal"}  # type: ignore[call-overload]
    kept = trained(task, step=1, state=first.state)
    reset = trained(task, step=1, state={"personal": first.state["personal"]})  # type: ignore[index]
    assert not np.array_equal(kept.state["personal"], reset.state["personal"])  # type: ignore[index]


def test_the_proximal_term_applies_to_shared_parameters_only() -> None:
    assert not np.array_equal(trained(torch_task()).weights, trained(torch_task(proximal=1.0)).weights)

    def head_alone(proximal: float) -> Any:
        model = network()
        for parameter in [*model[0].parameters(), *model[1].parameters()]:
            parameter.requires_grad = False
        training = Training(rate=0.1, batch_size=4, proximal=proximal, personal=("3.*",))
        return trained(TorchTask(model, [images(0)], None, training)).state

    assert np.array_equal(head_alone(0.0)["personal"], head_alone(5.0)["personal"])


def test_clipping_and_bfloat16_apply_to_personal_parameters() -> None:
    loose, tight = trained(torch_task()), trained(torch_task(clip_norm=1e-6))
    start = torch_task().flat.personal_part()
    assert np.abs(tight.state["personal"] - start).max() < 1e-5  # type: ignore[index]
    assert np.abs(loose.state["personal"] - start).max() > 1e-3  # type: ignore[index]
    cast = trained(torch_task(autocast="bfloat16"))
    assert cast.state["personal"].dtype == np.float32  # type: ignore[index]
    assert not np.array_equal(cast.state["personal"], loose.state["personal"])  # type: ignore[index]


def test_other_kernels_are_refused() -> None:
    with pytest.raises(UsageError, match=r"training\.kernel.*personal"):
        torch_task(kernel="native")


def test_personal_parameters_that_are_not_finite_are_an_error_of_that_client() -> None:
    task = torch_task()
    state = {"personal": np.full(task.flat.personal_part().size, np.inf, np.float32)}
    with pytest.raises(UsageError, match="personal parameters of client 0 are not finite"):
        task.train(0, task.initial(), 0.1, 0, state)


def test_a_worker_that_only_trains_gives_the_same() -> None:
    expected = trained(torch_task())
    task = torch_task()
    task.train_only()
    found = trained(task, torch_task().initial())
    assert np.array_equal(found.weights, expected.weights)
    assert np.array_equal(found.state["personal"], expected.state["personal"])  # type: ignore[index]


def test_a_copied_task_begins_with_the_initial_personal_parameters() -> None:
    import cloudpickle

    task = torch_task()
    trained(task)
    copy = cloudpickle.loads(cloudpickle.dumps(task))
    assert np.array_equal(trained(copy).weights, trained(torch_task()).weights)


class Bend(FederatedTask):
    """A model of arrays: a shared slope and a personal offset."""

    metric = Metric("error", higher_is_better=False)
    personal = ("offset",)

    def model(self) -> dict[str, Any]:
        return {"offset": np.zeros(1), "slope": np.zeros(1)}

    def data(self, client: ClientInfo) -> Any:
        return np.full(4, float(client.number), np.float32)

    def client_test(self, client: ClientInfo) -> Any:
        return self.data(client)

    def test(self) -> Any:
        return np.zeros(4)

    def train(self, model: Any, data: Any, *, rate: float, seed: int, training: Training) -> None:
        model["offset"] += data.mean() + 1
        model["slope"] += 1

    def evaluate(self, model: Any, data: Any) -> float:
        return float(model["offset"][0] + 100 * model["slope"][0])


def made(definition: Any, training: Training | None = None) -> Task:
    choice = TaskChoice("task", {}, ByValue(definition))
    return TaskSpec(choice, 2, 1, training or Training(), Evaluation(by="both")).make()


def test_arrays_can_be_personal() -> None:
    task = made(Bend())
    assert task.initial().tolist() == [0.0]
    first = trained(task, client=1)
    second = trained(task, first.weights, 1, first.state, client=1)
    assert second.weights.tolist() == [2.0]
    assert task.client_model(second.weights, second.state) == {"offset": [4.0], "slope": [2.0]}
    found = task.evaluate_client(1, second.weights, second.state)
    assert found is not None
    assert found.scores == {"error": 204.0, "shared error": 200.0}
    assert task.evaluate(second.weights) == 200.0
    with pytest.raises(UsageError, match="matches every parameter"):
        made(Bend(), Training(personal=("*",)))


def test_a_federated_task_of_torch_takes_its_class_attribute() -> None:
    class Images(Bend):
        personal = ("3.*",)

        def model(self) -> Any:
            return network()

        def data(self, client: ClientInfo) -> Any:
            return images(client.seed)

        def test(self) -> Any:
            return images(7)

    assert made(Images()).personal == {"3.weight", "3.bias"}


def test_a_task_without_named_parameters_refuses_the_setting() -> None:
    class Plain(Task):
        def initial(self) -> Any:
            return np.zeros(2, np.float32)

        def size(self, client: int) -> int:
            return 1

        def train(self, client: int, weights: Any, rate: float, step: int) -> Any:
            return weights

        def evaluate(self, weights: Any) -> float:
            return 0.0

    with pytest.raises(UsageError, match=r"training\.personal: .*Plain does not support"):
        TaskSpec(TaskChoice("task", {}, ByValue(Plain())), 2, 1, Training(personal=("w",))).make()


def test_the_state_of_a_client_goes_through_an_engine() -> None:
    checked = CheckedTask(torch_task())
    first = checked.train(0, checked.task.initial(), 0.1, 0)
    assert isinstance(first, TrainingResult)
    assert isinstance(first.state, bytes)
    second = checked.train(0, checked.task.initial(), 0.1, 1, first.state, evaluate=True)
    assert isinstance(second, TrainingResult)
    assert second.evaluation is not None
    assert set(second.evaluation.scores) == {"accuracy", "shared accuracy"}
    with pytest.raises(ClientTrainingError):
        checked.train(0, checked.task.initial() * np.float32(np.nan), 0.1, 1, first.state)
