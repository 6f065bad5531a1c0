"""DP-SGD in the training of PyTorch tasks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from spyker.config.privacy_settings import PrivacySettings
from spyker.config.scenario import Training, load
from spyker.errors import UsageError
from spyker.tasks.registry import task_spec
from spyker.tasks.task import TrainingResult
from spyker.tasks.torch_task import TorchTask

SETTINGS = PrivacySettings(unit="example", noise_multiplier=1.0, trainings=3)


def data(count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 4, generator=generator), torch.randint(3, (count,), generator=generator)


def task(
    settings: PrivacySettings = SETTINGS, *, deployed: bool = False, model: nn.Module | None = None, **training: object
) -> TorchTask:
    torch.manual_seed(0)
    made = TorchTask(model or nn.Linear(4, 3), [data()], data(), Training(batch_size=10, **training))
    made.protect_examples(settings, deployed=deployed)
    return made


def trained(made: TorchTask, step: int = 0) -> np.ndarray:
    made.privacy_cost(0)
    result = made.train(0, made.initial(), 0.1, step)
    return np.array(result.weights if isinstance(result, TrainingResult) else result)


def test_an_emulated_training_is_repeatable_and_a_deployed_one_never_is() -> None:
    assert np.array_equal(trained(task()), trained(task()))
    assert not np.array_equal(trained(task()), trained(task(), step=1))
    deployed = task(deployed=True)
    assert not np.array_equal(trained(deployed), trained(deployed))
    assert not np.array_equal(trained(task(deployed=True)), trained(task()))


def test_a_deployed_training_that_was_not_booked_does_not_begin() -> None:
    made = task(deployed=True)
    with pytest.raises(RuntimeError, match="without having booked"):
        made.train(0, made.initial(), 0.1, 0)


def test_one_example_moves_a_step_by_at_most_the_clipping_norm() -> None:
    quiet = PrivacySettings(unit="example", noise_multiplier=1e-9, trainings=3, clip_norm=0.5)
    inputs, targets = data(10)
    wild = inputs.clone()
    wild[0] *= 1000
    found = []
    for each in (inputs, wild):
        torch.manual_seed(0)
        made = TorchTask(nn.Linear(4, 3), [(each, targets)], None, Training(batch_size=10, rate=1.0))
        made.protect_examples(quiet, deployed=False)
        result = made.train(0, made.initial(), 1.0, 0)
        found.append(np.array(result))
    assert np.linalg.norm(found[0] - found[1]) <= 2 * 0.5 / 10 + 1e-6  # the example with and without its factor


def test_a_step_with_an_empty_sample_is_noise() -> None:
    made = task()
    trainer = made._trainer(0, made.initial(), 0.1, 0, None)
    list(trainer._descend())
    before = made.flat.gradient.clone()
    loss = trainer._noisy_gradient([])  # type: ignore[attr-defined]
    assert float(loss) == 0
    assert float(made.flat.gradient.norm()) > 0
    assert not torch.equal(before, made.flat.gradient)


def test_a_batch_norm_layer_is_named_with_its_remedy() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    with pytest.raises(UsageError, match=r"the layer 1 is BatchNorm1d.*GroupNorm"):
        task(model=model)


@pytest.mark.parametrize("optimiser", ["adam", "momentum"])
def test_other_optimisers_work(optimiser: str) -> None:
    assert np.isfinite(trained(task(optimiser=optimiser))).all()


def test_an_emulated_client_with_a_spent_budget_trains_no_more() -> None:
    made = task()
    with pytest.raises(UsageError, match="has spent its privacy budget with 3 trainings"):
        made.train(0, made.initial(), 0.1, 3)


def test_the_training_loss_is_sent_only_if_allowed() -> None:
    made = task(report_loss=True)
    assert not isinstance(made.train(0, made.initial(), 0.1, 0), TrainingResult)
    allowed = PrivacySettings(unit="example", noise_multiplier=1.0, trainings=3, report_metrics=True)
    result = task(allowed, report_loss=True).train(0, made.initial(), 0.1, 0)
    assert isinstance(result, TrainingResult)
    assert result.metrics


def test_clients_do_not_evaluate_unless_it_is_allowed() -> None:
    private = {"privacy.unit": "example", "privacy.noise-multiplier": 1.0, "privacy.trainings": 3}
    scenario = load(None, private | {"evaluation.by": "clients"}, clients=4)
    from spyker.tasks.registry import resolve

    with pytest.raises(UsageError, match="clients send no scores"):
        task_spec(resolve(scenario)).make()


def test_the_noise_needs_a_budget_and_a_plan() -> None:
    with pytest.raises(UsageError, match=r"privacy.trainings: is missing"):
        load(None, {"privacy.unit": "example", "privacy.epsilon": 8.0})
