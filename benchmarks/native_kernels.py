"""Training and evaluation with the native kernels against PyTorch, on one core.

Both sides are the same task on the same random images, one call after the other. Time is that of the processor, since
a shared machine's clock says more about its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.measure import Result, in_turn
from spyker.config.scenario import Training
from spyker.tasks.built_in.models import cifar10_cnn, mnist_cnn
from spyker.tasks.torch_task import Examples, TorchTask

TEST_IMAGES = 1000
CASES = (  # name, model, image, training images, bar for training, bar for evaluation
    ("MNIST", mnist_cnn, (1, 28, 28), 60, 3.0, 2.5),
    ("MNIST", mnist_cnn, (1, 28, 28), 600, 3.0, None),
    ("CIFAR-10", cifar10_cnn, (3, 32, 32), 100, 1.5, 1.0),
)


def measure() -> list[Result]:
    torch.set_num_threads(1)
    results = []
    for name, model, image, count, training_bar, evaluation_bar in CASES:
        theirs, ours = (task_of(kernel, model, image, count) for kernel in ("torch", "native"))
        weights = theirs.initial()
        results.append(
            compare(
                f"training on {count} images of {name}",
                lambda task, weights=weights: task.train(0, weights, 0.05, 0),
                theirs,
                ours,
                training_bar,
            )
        )
        if evaluation_bar is not None:
            results.append(
                compare(
                    f"evaluation on {TEST_IMAGES:,} images of {name}",
                    lambda task, weights=weights: task.evaluate(weights),
                    theirs,
                    ours,
                    evaluation_bar,
                )
            )
    return results


def task_of(kernel: str, model: Callable[[], nn.Module], image: tuple[int, ...], count: int) -> TorchTask:
    torch.manual_seed(1)
    return TorchTask(model(), [examples(image, count)], examples(image, TEST_IMAGES), Training(kernel=kernel), seed=1)


def examples(image: tuple[int, ...], count: int) -> Examples:
    return torch.randn(count, *image), torch.randint(0, 10, (count,))


def compare(name: str, call: Callable[[TorchTask], object], theirs: TorchTask, ours: TorchTask, bar: float) -> Result:
    repeat = 1 + int(0.2 / seconds(call, theirs, 1))
    in_turn(lambda: seconds(call, theirs, 1), lambda: seconds(call, ours, 1), 2)  # touch all memory once
    slow, fast = in_turn(lambda: seconds(call, theirs, repeat), lambda: seconds(call, ours, repeat), 7)
    return Result(
        f"{name}: torch / native", slow / fast, bar, details={"torch_ms": slow * 1000, "native_ms": fast * 1000}
    )


def seconds(call: Callable[[TorchTask], object], task: TorchTask, repeat: int) -> float:
    began = time.process_time()
    for _ in range(repeat):
        call(task)
    return (time.process_time() - began) / repeat
