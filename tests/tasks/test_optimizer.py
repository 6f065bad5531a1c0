"""Optimisers, schedules and clipping of torch.optim by name: the same numbers as in a loop of one's own."""

import pickle
import tomllib
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from spyker.config.scenario import Training, dump, load
from spyker.errors import UsageError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.optimizer import OPTIMISERS, SCHEDULES, OptimizerConfig
from spyker.tasks.task import TrainingResult
from spyker.tasks.torch_task import TorchTask

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
Y = (X.sum(1) > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def task_of(training: Training, network: nn.Module | None = None) -> TorchTask:
    return TorchTask(network or model(), [(X, Y)], (X, Y), training, seed=7)


def plain_loop(task: TorchTask, optimiser: torch.optim.Optimizer, network: nn.Module, step: int = 0) -> Any:
    """One training, as anybody would write it."""
    task.seed_all(int(np.random.SeedSequence((7, 0, step)).generate_state(1, np.uint64)[0]))
    for _ in range(task.training.epochs):
        for batch in torch.randperm(20).split(task.training.batch_size):

            def closure(batch: torch.Tensor = batch) -> torch.Tensor:
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(network(X[batch]), Y[batch])
                loss.backward()
                if task.training.clip_norm:
                    nn.utils.clip_grad_norm_(network.parameters(), task.training.clip_norm)
                return loss

            if isinstance(optimiser, torch.optim.LBFGS):
                optimiser.step(closure)  # type: ignore[arg-type]
            else:
                closure()
                optimiser.step()
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy()


@pytest.mark.parametrize("name", [name for name in OPTIMISERS if name not in ("SparseAdam", "Muon")])
def test_any_optimiser_does_what_it_does_in_a_plain_loop(name: str) -> None:
    task, network = task_of(Training(optimiser=name, epochs=2, batch_size=8)), model()
    expected = plain_loop(task, getattr(torch.optim, name)(network.parameters(), lr=0.05), network)
    np.testing.assert_allclose(task.train(0, task.initial(), 0.05, 0), expected, rtol=2e-5, atol=2e-6)


def test_options_and_clipping_are_the_optimisers_own() -> None:
    options = {"momentum": 0.8, "nesterov": True, "weight-decay": 0.1}
    task = task_of(Training(optimiser="sgd", optimiser_options=options, clip_norm=0.05, batch_size=8))
    network = model()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.8, nesterov=True, weight_decay=0.1)
    expected = plain_loop(task, optimiser, network)
    np.testing.assert_allclose(task.train(0, task.initial(), 0.5, 0), expected, rtol=2e-5, atol=2e-6)


def test_what_is_frozen_does_not_move_not_even_by_weight_decay() -> None:
    network = model()
    network[0].weight.requires_grad_(requires_grad=False)  # type: ignore[index]
    task = task_of(Training(optimiser="AdamW", optimiser_options={"weight-decay": 0.5}), network)
    before, after = task.state_dict(task.initial()), task.state_dict(task.train(0, task.initial(), 0.1, 0))  # type: ignore[arg-type]
    assert torch.equal(before["0.weight"], after["0.weight"])
    assert not torch.equal(before["2.weight"], after["2.weight"])


def test_an_optimiser_starts_afresh_unless_it_is_kept() -> None:
    fresh, kept = (CheckedTask(task_of(Training(optimiser="adam", keep_optimiser=keep))) for keep in (None, True))
    start = fresh.task.initial()
    assert isinstance(fresh.train(0, start, 0.1, 0), np.ndarray)
    first = kept.train(0, start, 0.1, 0)
    assert isinstance(first, TrainingResult)
    assert isinstance(first.state, bytes)
    second = kept.train(0, first.weights, 0.2, 1, first.state)
    assert isinstance(second, TrainingResult)
    task, network = kept.task, model()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.1)
    plain_loop(task, optimiser, network)  # type: ignore[arg-type]
    optimiser.param_groups[0]["lr"] = 0.2
    expected = plain_loop(task, optimiser, network, step=1)  # type: ignore[arg-type]
    np.testing.assert_allclose(second.weights, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "options", "rates"),
    [
        ("StepLR", {"step-size": 2, "gamma": 0.5}, [0.4, 0.4, 0.2, 0.2, 0.1]),
        ("exponentiallr", {"gamma": 0.5}, [0.4, 0.2, 0.1]),
        ("MultiStepLR", {"milestones": [1, 3]}, [0.4, 0.04, 0.04, 0.004]),
        ("CosineAnnealingLR", {"T-max": 2}, [0.4, 0.2, 0.0]),
    ],
)
def test_a_schedule_counts_a_clients_epochs(name: str, options: dict[str, Any], rates: list[float]) -> None:
    descent = OptimizerConfig(Training(schedule=name, schedule_options=options))
    again = pickle.loads(pickle.dumps(descent))
    for schedule in (descent.schedule, again.schedule):
        assert schedule is not None
        assert [schedule.rate(0.4, epoch) for epoch in reversed(range(len(rates)))] == pytest.approx(rates[::-1])
        assert schedule.rate(0.8, 1) == pytest.approx(2 * rates[1])


def test_a_training_begins_its_schedule_where_the_last_one_ended() -> None:
    options = {"step-size": 2, "gamma": 0.5}
    scheduled = task_of(Training(epochs=2, schedule="StepLR", schedule_options=options))
    plain = task_of(Training(epochs=2))
    start = plain.initial()
    for step, rate in ((0, 0.4), (1, 0.2), (2, 0.1)):
        assert np.array_equal(scheduled.train(0, start, 0.4, step), plain.train(0, start, rate, step))


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_every_schedule_that_is_offered_can_be_had(name: str) -> None:
    options = {
        "StepLR": {"step-size": 1},
        "MultiStepLR": {"milestones": [1]},
        "ExponentialLR": {"gamma": 0.9},
        "CosineAnnealingLR": {"T-max": 9},
        "CosineAnnealingWarmRestarts": {"T-0": 3},
        "CyclicLR": {"base-lr": 0.1, "max-lr": 0.2},
        "OneCycleLR": {"max-lr": 0.2, "total-steps": 9},
    }
    schedule = OptimizerConfig(Training(schedule=name, schedule_options=options.get(name))).schedule
    assert schedule is not None
    assert schedule.rate(0.1, 3) > 0


@pytest.mark.parametrize(
    ("training", "complaint"),
    [
        (Training(optimiser="adma"), r"training\.optimiser: \"adma\" is not allowed\. Did you mean 'adam'"),
        (
            Training(optimiser_options={"lr": 1}),
            r"optimiser-options\.lr: 1 is not allowed\. Set training\.rate instead",
        ),
        (Training(optimiser_options={"momentun": 1}), r"momentun: is not an argument of SGD\. Did you mean 'momentum'"),
        (Training(optimiser="AdamW", optimiser_options={"betas": [3, 4]}), r"does not suit AdamW: Invalid beta"),
        (Training(optimiser="Muon"), r"training\.optimiser: does not suit Muon.*2D"),
        (Training(schedule="cosine"), r"training\.schedule: \"cosine\" is not allowed\. (Did you mean|Choose)"),
        (Training(schedule="ReduceLROnPlateau"), r"training\.schedule: \"ReduceLROnPlateau\" is not allowed"),
        (Training(schedule="StepLR"), r"does not suit StepLR:.*step_size"),
        (Training(schedule_options={"gamma": 1}), r"is set without training\.schedule"),
    ],
)
def test_what_torch_does_not_have_is_refused(training: Training, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        task_of(training)


def test_a_scenario_that_asks_for_nothing_new_is_written_as_ever() -> None:
    written = " ".join(tomllib.loads(dump(load(None)))["training"])
    assert not [key for key in ("options", "keep-optimiser", "schedule", "clip-norm", "report-loss") if key in written]


def test_the_keys_are_read_from_a_scenario_and_written_to_it() -> None:
    settings = {
        "training.optimiser": "AdamW",
        "training.optimiser-options.weight-decay": 0.1,
        "training.schedule": "StepLR",
        "training.schedule-options": {"step-size": 3},
        "training.clip-norm": 2,
        "training.keep-optimiser": True,
        "training.report-loss": True,
    }
    scenario = load(None, settings)
    assert load(tomllib.loads(dump(scenario))) == scenario
    assert scenario.training.optimiser_options == {"weight-decay": 0.1}
    with pytest.raises(UsageError, match=r"training\.optimiser-options: 3 is not allowed: it must be a table"):
        load(None, {"training.optimiser-options": 3})
    with pytest.raises(UsageError, match=r"training\.clip-norm: 0 is not allowed"):
        load(None, {"training.clip-norm": 0})
