"""The native kernels do what PyTorch does, up to the rounding of float32."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from spyker.config.scenario import Scenario, TaskChoice, Training, load
from spyker.engines.engine import TrainJob
from spyker.engines.start_engine import start_engine
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.errors import DivergenceError, UsageError
from spyker.records import line
from spyker.sim.simulate import simulate
from spyker.tasks.built_in.models import cifar10_cnn, digits_cnn, mnist_cnn
from spyker.tasks.by_value import ByValue
from spyker.tasks.registry import TaskSpec, resolve
from spyker.tasks.torch_task import LazyDataset, TorchTask
from spyker_lab.native import compiler

SHAPES = {digits_cnn: (1, 8, 8), mnist_cnn: (1, 28, 28), cifar10_cnn: (3, 32, 32)}
Make = Callable[[], nn.Module]


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the library is, so that each process of these tests need not compile it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("native")
        patch.setenv("SPYKER_CACHE", str(folder))
        try:
            compiler.find_compiler()
        except UsageError:
            pytest.skip("there is no C compiler here")
        compiler.compiled.cache_clear()
        compiler.compiled()
        return folder


@pytest.fixture(autouse=True)
def with_compiled(own_cache: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYKER_CACHE", str(compiled))


def task_of(kernel: str, make: Make, shape: tuple[int, ...], count: int, **training: object) -> TorchTask:
    torch.manual_seed(1)
    model = make()
    test = torch.randn(50, *shape), torch.randint(0, 3, (50,))
    data = torch.randn(count, *shape), torch.randint(0, 3, (count,))
    return TorchTask(model, [data], test, Training(kernel=kernel, **training), seed=3)  # type: ignore[arg-type]


def both(make: Make, shape: tuple[int, ...], count: int, **training: object) -> tuple[TorchTask, TorchTask]:
    torch.set_num_threads(1)
    theirs, ours = (task_of(kernel, make, shape, count, **training) for kernel in ("torch", "native"))
    assert np.array_equal(theirs.initial(), ours.initial())
    return theirs, ours


def assert_same_training(theirs: TorchTask, ours: TorchTask) -> None:
    """Nearly all weights are equal up to rounding. Where two pixels of a pool are equal up to rounding, the other may
    be chosen, and what a single pixel taught is in other weights.
    """
    received = theirs.initial()
    expected = theirs.train(0, received, 0.02, 5)
    change, error = np.abs(expected - received), np.abs(ours.train(0, received, 0.02, 5) - expected)
    assert change.max() > 0
    assert np.quantile(error, 0.97) < 1e-4 * change.max()
    assert np.linalg.norm(error) < 2e-3 * np.linalg.norm(change)


@pytest.mark.parametrize("make", SHAPES)
@pytest.mark.parametrize(
    ("count", "batch_size", "epochs", "proximal"), [(60, 32, 1, 0.0), (33, 32, 2, 0.5), (24, 10, 2, 0.0)]
)
def test_it_trains_as_torch_does(make: Make, count: int, batch_size: int, epochs: int, proximal: float) -> None:
    assert_same_training(*both(make, SHAPES[make], count, batch_size=batch_size, epochs=epochs, proximal=proximal))


def test_a_batch_may_be_larger_than_its_blocks() -> None:
    assert_same_training(*both(digits_cnn, (1, 8, 8), 100, batch_size=64, epochs=2))


def test_of_equal_pixels_in_a_pool_the_first_is_chosen() -> None:
    theirs, ours = both(digits_cnn, (1, 8, 8), 20)
    received = theirs.initial().copy()
    received[:72], received[72:80] = 0, 1  # the convolution: its bias is all that comes out
    expected = theirs.train(0, received, 0.1, 5)
    assert np.abs(expected[:72]).max() > 1e-3
    np.testing.assert_allclose(ours.train(0, received, 0.1, 5), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", SHAPES)
def test_it_judges_as_torch_does(make: Make) -> None:
    theirs, ours = both(make, SHAPES[make], 1)
    assert ours.kernel is not None
    weights, inputs = theirs.initial(), theirs.test.read()[0]
    theirs.flat.load(weights)
    with torch.no_grad():
        torch.testing.assert_close(ours.kernel.outputs(weights, inputs), theirs.model(inputs), rtol=1e-4, atol=1e-5)
    assert ours.evaluate(weights) == theirs.evaluate(weights)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[Make, tuple[int, int, int]]:
    """Any model that the kernels know, and the shape of its images."""
    shape = channels, height, width = tuple(draw(st.integers(1, most)) for most in (4, 12, 12))
    layers: list[Make] = []
    for _ in range(draw(st.integers(0, 3))):
        kernel = draw(st.integers(1, 5))
        padding = draw(st.integers(0, kernel - 1))
        grown = 2 * padding - kernel + 1
        pool = min(height, width) + grown >= 2 and draw(st.booleans())
        if min(height, width) + grown < 1:
            break
        outputs = draw(st.integers(1, 14))
        layers.append(partial(nn.Conv2d, channels, outputs, kernel, padding=padding, bias=draw(st.booleans())))
        behind: list[Make] = [partial(nn.MaxPool2d, 2)] * pool + [nn.ReLU] * draw(st.booleans())
        layers += draw(st.permutations(behind))
        channels, height, width = outputs, (height + grown) >> pool, (width + grown) >> pool
    layers.append(nn.Flatten)
    features = channels * height * width
    for _ in range(draw(st.integers(0, 2))):
        outputs = draw(st.integers(1, 40))
        layers += [partial(nn.Linear, features, outputs, bias=draw(st.booleans())), nn.ReLU]
        features = outputs
    layers.append(partial(nn.Linear, features, 3))
    return lambda: nn.Sequential(*(make() for make in layers)), shape


@given(stacks(), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=60)
def test_any_sizes_will_do(stack: tuple[Make, tuple[int, int, int]], count: int, batch_size: int) -> None:
    assert_same_training(*both(*stack, count, batch_size=batch_size))


def test_the_same_training_gives_the_same_bytes_in_any_process() -> None:
    task = task_of("native", mnist_cnn, (1, 28, 28), 40)
    received = task.initial()
    first = task.train(0, received, 0.1, 5)
    task.train(0, first, 0.5, 6)
    task.evaluate(first)
    assert np.array_equal(task.train(0, received, 0.1, 5), first)
    choice = TaskSpec(TaskChoice("mine", {}, ByValue(task)), clients=1, seed=3, training=task.training)
    with ProcessPoolEngine(choice, received.size, 1) as engine:
        job = TrainJob(0, received, 0.1, 5)
        engine.submit(job, 0.0)
        assert np.array_equal(engine.trained(job), first)


def facts_of(scenario: Scenario, workers: int) -> list[str]:
    lines: list[str] = []
    task, engine = start_engine(scenario, workers)
    with engine:
        simulate(scenario, task, engine, lambda t, fact, queue: lines.append(line(t, fact, queue)))
    return lines


def test_workers_may_compile_side_by_side_and_change_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = resolve(load(None, {"duration": 0.5, "training.kernel": "native"}, clients=20))
    alone = facts_of(scenario, 0)
    assert len(alone) > 40
    monkeypatch.setenv("SPYKER_CACHE", str(own_cache))  # empty
    assert facts_of(scenario, 2) == alone
    assert [path.suffix for path in (own_cache / "native").iterdir()] == [".so"]


def test_a_training_that_runs_away_is_seen() -> None:
    theirs, ours = both(mnist_cnn, (1, 28, 28), 60, epochs=3)
    for task in (theirs, ours):
        assert not np.isfinite(task.train(0, task.initial(), 1e30, 5)).all()
    weights = ours.initial().copy()
    weights[:] = np.nan
    assert np.isnan(ours.train(0, weights, 0.1, 5)).all()
    scenario = resolve(load(None, {"duration": 2.0, "training.kernel": "native", "training.rate": 1e30}, clients=20))
    with pytest.raises(DivergenceError):
        facts_of(scenario, 0)


@pytest.mark.parametrize("pixel", range(4))
def test_pool_and_relu_let_pass_what_is_not_a_number(pixel: int) -> None:
    layers = nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(1, 3)
    task = task_of("native", lambda: nn.Sequential(*layers), (1, 2, 2), 1)
    assert task.kernel is not None
    image = torch.ones(1, 1, 2, 2)
    image.view(-1)[pixel] = torch.nan
    assert task.kernel.outputs(task.initial(), image).isnan().all()


def test_without_a_compiler_it_says_so(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    compiler.compiled.cache_clear()
    with pytest.raises(UsageError, match=r'training\.kernel.*no C compiler.*Install gcc, or write "torch"'):
        task_of("native", digits_cnn, (1, 8, 8), 4)
    assert not own_cache.exists()


def test_a_compiler_that_fails_leaves_nothing_behind(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "cc"
    broken.write_text('#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo "cc: no disk" >&2; exit 3;; esac\n')
    broken.chmod(0o755)
    monkeypatch.setenv("SPYKER_CACHE", str(own_cache))
    monkeypatch.setenv("CC", str(broken))
    compiler.compiled.cache_clear()
    with pytest.raises(UsageError, match=r"training\.kernel.*no disk.*Set CC"):
        task_of("native", digits_cnn, (1, 8, 8), 4)
    assert list((own_cache / "native").iterdir()) == []


@pytest.mark.parametrize(
    ("layers", "what"),
    [
        ([nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(18, 3)], "stride"),
        ([nn.Conv2d(1, 2, 3, padding=3), nn.Flatten(), nn.Linear(288, 3)], "padding"),
        ([nn.Conv2d(1, 2, (3, 1)), nn.Flatten(), nn.Linear(96, 3)], "kernel_size"),
        ([nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)], "MaxPool2d"),
        ([nn.Conv2d(1, 2, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 3)], "MaxPool2d"),
        ([nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)], "Dropout"),
        ([nn.Conv2d(1, 2, 3), nn.ReLU()], "outputs"),
        ([nn.Linear(8, 3)], r"Linear.*1 × 8 × 8"),
    ],
)
def test_other_layers_are_refused(layers: list[nn.Module], what: str) -> None:
    with pytest.raises(UsageError, match=rf"training\.kernel.*{what}.*Use an nn\.Sequential.*torch"):
        task_of("native", lambda: nn.Sequential(*layers), (1, 8, 8), 4)


def test_shared_and_frozen_weights_are_refused() -> None:
    square = nn.Linear(64, 64)
    with pytest.raises(UsageError, match="share weights"):
        task_of("native", lambda: nn.Sequential(nn.Flatten(), square, square), (1, 8, 8), 4)
    square.requires_grad_(False)
    with pytest.raises(UsageError, match="frozen"):
        task_of("native", lambda: nn.Sequential(nn.Flatten(), square, nn.Linear(64, 3)), (1, 8, 8), 4)


def test_other_optimisers_and_losses_are_refused() -> None:
    with pytest.raises(UsageError, match=r"training\.kernel.*optimiser is adam.*sgd"):
        task_of("native", digits_cnn, (1, 8, 8), 4, optimiser="adam")
    data = torch.zeros(4, 1, 8, 8), torch.zeros(4).long()
    with pytest.raises(UsageError, match=r"training\.kernel.*loss"):
        TorchTask(digits_cnn(), [data], data, Training(kernel="native"), loss=nn.functional.nll_loss)


@pytest.mark.parametrize(
    ("inputs", "targets", "problem"),
    [
        (torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 2, 10]), "from 0 to 9"),
        (torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 2, -1]), "from 0 to 9"),
        (torch.zeros(4, 1, 8, 8), torch.zeros(4, 10), "int64"),
        (torch.zeros(4, 1, 8, 8).double(), torch.zeros(4).long(), "float32"),
    ],
)
def test_data_that_it_cannot_take_is_refused(inputs: torch.Tensor, targets: torch.Tensor, problem: str) -> None:
    good = torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 2, 9])
    later = LazyDataset(4, lambda: (inputs, targets))  # nobody looks at it before it is trained on
    task = TorchTask(digits_cnn(), [good, later], good, Training(kernel="native"))
    with pytest.raises(ValueError, match=problem):
        task.train(1, task.initial(), 0.1, 0)
