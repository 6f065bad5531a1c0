"""Training and outputs of one model through the native kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.tasks.plain_sgd import beyond_sgd
from spyker.vectors import Vector
from spyker_lab.native.compiler import compiled, refused
from spyker_lab.native.shapes import LayerShape, layer_shapes


class Kernel:
    """The native kernels for one model, with their working memory. Not thread-safe."""

    def __init__(self, shapes: Sequence[LayerShape]) -> None:
        self.shapes = (LayerShape * len(shapes))(*shapes)
        self.parameters = sum(shape.parameters for shape in shapes)
        self.classes = math.prod(shapes[-1].result)
        self._kernels = compiled()
        self._kernels.spyker_memory.restype = ctypes.c_int64
        self._memory = np.zeros(self._kernels.spyker_memory(self.shapes, len(shapes)), np.uint8)

    def __reduce__(self) -> tuple[type[Kernel], tuple[list[LayerShape]]]:
        """Pickle without the library, which another process loads itself."""
        return Kernel, (list(self.shapes),)

    def train(
        self,
        weights: Vector,
        inputs: Tensor,
        targets: Tensor,
        orders: Sequence[Tensor],
        rate: float,
        training: Training,
    ) -> Vector:
        """Run plain minibatch SGD, one epoch per order of the examples."""
        received, inputs, order = self._weights(weights), self._images(inputs), torch.cat(list(orders))
        if targets.dtype != torch.int64 or targets.dim() != 1 or not self._are_classes(targets):
            raise ValueError(f"the targets must be integers (int64) from 0 to {self.classes - 1}, one per example")
        trained, targets = received.copy(), targets.contiguous()
        self._kernels.spyker_train(
            *self._common(),
            address(trained),
            address(received),
            address(inputs),
            strides(inputs),
            address(targets),
            address(order),
            ctypes.c_int64(len(targets)),
            ctypes.c_int(len(orders)),
            ctypes.c_int(training.batch_size),
            ctypes.c_float(rate),
            ctypes.c_float(training.proximal),
        )
        return trained

    def outputs(self, weights: Vector, inputs: Tensor) -> Tensor:
        """Return the outputs of the model."""
        weights, inputs, outputs = self._weights(weights), self._images(inputs), torch.empty(len(inputs), self.classes)
        self._kernels.spyker_outputs(
            *self._common(),
            address(weights),
            address(inputs),
            strides(inputs),
            ctypes.c_int64(len(inputs)),
            address(outputs),
        )
        return outputs

    def _common(self) -> tuple[object, ...]:
        return self.shapes, ctypes.c_int(len(self.shapes)), address(self._memory)

    def _weights(self, weights: Vector) -> Vector:
        if weights.dtype != np.float32 or weights.shape != (self.parameters,):
            raise ValueError(f"the model has {self.parameters} weights (float32), not {weights.shape}")
        return np.ascontiguousarray(weights)

    def _images(self, inputs: Tensor) -> Tensor:
        if inputs.dtype != torch.float32:
            raise ValueError(f"the inputs must be float32, not {inputs.dtype}")
        first = self.shapes[0]
        return inputs.reshape(len(inputs), first.inputs, first.height, first.width)

    def _are_classes(self, targets: Tensor) -> bool:
        return not len(targets) or (int(targets.min()) >= 0 and int(targets.max()) < self.classes)


def kernel_for(model: nn.Module, example: Sequence[int], loss: Callable[..., Tensor], training: Training) -> Kernel:
    """Return the kernel of a model for examples of this shape; raise an error if it is not supported."""
    if key := beyond_sgd(training):
        value = getattr(training, key.replace("-", "_"))
        remedy = "Descend with sgd" if key == "optimiser" else f"Leave out training.{key}"
        raise refused(f"training.{key} is {value if isinstance(value, str) else show(value)}", remedy)
    if training.device != "cpu":
        raise refused(f"training.device is {training.device}", "Compute on the cpu")
    if loss is not nn.functional.cross_entropy:
        raise refused("the task has a loss of its own", "Use cross-entropy")
    return Kernel(layer_shapes(model, example))


def address(memory: Vector | np.ndarray[tuple[int], np.dtype[np.uint8]] | Tensor) -> ctypes.c_void_p:
    """Return the pointer to an array's data."""
    return ctypes.c_void_p(memory.data_ptr() if isinstance(memory, Tensor) else memory.ctypes.data)


def strides(images: Tensor) -> ctypes.Array[ctypes.c_int64]:
    """Return the strides of images, channels, rows and columns."""
    return (ctypes.c_int64 * 4)(*images.stride())
