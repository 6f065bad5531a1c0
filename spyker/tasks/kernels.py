"""Kernels that train and evaluate a :class:`~spyker.tasks.torch_task.TorchTask` in place of PyTorch.

A package offers one as an entry point of the group ``spyker.kernels``: a function with the arguments of
:class:`KernelFactory`. ``training.kernel`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn

from spyker.config.kernel_names import NAMES
from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.vectors import Vector


class Kernel(Protocol):
    """Trains and evaluates one model. It can be pickled, and one thread uses it at a time."""

    def train(
        self,
        weights: Vector,
        inputs: Tensor,
        targets: Tensor,
        orders: Sequence[Tensor],
        rate: float,
        training: Training,
    ) -> Vector:
        """Return the weights after one epoch of minibatches in each of the orders."""
        ...

    def outputs(self, weights: Vector, inputs: Tensor) -> Tensor:
        """Return the model's outputs for these inputs."""
        ...


class KernelFactory(Protocol):
    """Makes the kernel of a model, or raises :class:`~spyker.errors.UsageError` if it cannot train that model."""

    def __call__(
        self, model: nn.Module, example: Sequence[int], loss: Callable[..., Tensor], training: Training
    ) -> Kernel:
        """``example`` is the shape of one example's input."""
        ...


def find_kernel(name: str) -> KernelFactory:
    """Return the factory of the kernel with this name, which is not PyTorch."""
    NAMES.check(name, "training.kernel")
    factory: KernelFactory = NAMES.find(name, "training.kernel")
    return factory


def kernel_error(kernel: str, problem: str, remedy: str) -> UsageError:
    """Return the error of a kernel that cannot train a task."""
    return UsageError("training.kernel", f"{show(kernel)} is not allowed: {problem}", f'{remedy}, or write "torch"')
