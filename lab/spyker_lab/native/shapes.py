"""The models that the native kernels support, and their description for the kernels.

A model is a sequence of stages: a convolution, perhaps with a 2 × 2 max-pool and a ReLU behind it in either order,
which makes no difference; or, once the image is flattened, a fully connected layer, perhaps with a ReLU.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from torch import nn

from spyker.errors import UsageError
from spyker_lab.native.compiler import refused

MOST_STAGES = 64  # as in kernels.c


class LayerShape(ctypes.Structure):
    """One stage in the layout of ``kernels.c``. A fully connected layer is a 1 × 1 convolution on one pixel."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in ("inputs", "outputs", "kernel", "padding", "height", "width", "pool", "relu", "bias")
    )
    inputs: int
    outputs: int
    kernel: int
    padding: int
    height: int
    width: int
    pool: int
    relu: int
    bias: int

    @property
    def result(self) -> tuple[int, int, int]:
        """Channels, height and width of the output."""
        grown, parts = 2 * self.padding - self.kernel + 1, 2 if self.pool else 1
        return self.outputs, (self.height + grown) // parts, (self.width + grown) // parts

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return self.outputs * (self.inputs * self.kernel**2 + self.bias)


def layer_shapes(model: nn.Module, example: Sequence[int]) -> list[LayerShape]:
    """Return the stages of a model for examples of this shape; raise an error for unsupported layers."""
    if type(model) is not nn.Sequential:
        raise unsuitable(type(model).__name__)
    shapes: list[LayerShape] = []
    size = tuple(example)
    for layer in model:
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            size = (math.prod(size),)
            continue
        if type(layer) is nn.Conv2d and len(size) == 3 and size[0] == layer.in_channels and is_plain(layer):
            sides = layer.kernel_size[0], int(layer.padding[0]), *size[1:]
            shapes.append(LayerShape(layer.in_channels, layer.out_channels, *sides, bias=layer.bias is not None))
        elif type(layer) is nn.Linear and size == (layer.in_features,):
            shapes.append(LayerShape(layer.in_features, layer.out_features, 1, 0, 1, 1, bias=layer.bias is not None))
        elif type(layer) is nn.MaxPool2d and len(size) == 3 and shapes and not shapes[-1].pool and halves(layer):
            shapes[-1].pool = 1
        elif type(layer) is nn.ReLU and shapes:
            shapes[-1].relu = 1
        else:
            raise unsuitable(f"{layer} on {' × '.join(map(str, size))} numbers")
        size = shapes[-1].result if len(size) == 3 else (shapes[-1].outputs,)
        if min(size) < 1:
            raise unsuitable(f"{layer} on images that are too small for it")
    if not shapes or len(size) != 1 or len(shapes) > MOST_STAGES:
        raise unsuitable(f"{len(shapes)} layers and {len(size)}-dimensional outputs")
    if len(list(model.parameters())) != sum(1 + shape.bias for shape in shapes):
        raise unsuitable("layers that share weights")
    if not all(parameter.requires_grad for parameter in model.parameters()):
        raise unsuitable("frozen weights")
    return shapes


def is_plain(layer: nn.Conv2d) -> bool:
    """Return whether a convolution is supported: stride 1, square kernel, zero padding."""
    (height, width), padding = layer.kernel_size, layer.padding
    return (
        height == width
        and not isinstance(padding, str)
        and padding[0] == padding[1] < height
        and (layer.stride, layer.dilation, layer.groups, layer.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
    )


def halves(layer: nn.MaxPool2d) -> bool:
    """Return whether a pooling is supported: 2 × 2, an odd edge is dropped."""
    sides = {layer.kernel_size, layer.stride} <= {2, (2, 2)} and layer.padding in (0, (0, 0))
    return sides and layer.dilation in (1, (1, 1)) and not layer.ceil_mode and not layer.return_indices


def unsuitable(part: str) -> UsageError:
    """Return the error for an unsupported model."""
    return refused(
        f"the model has {part}",
        "Use an nn.Sequential of Conv2d (square, step 1) with or without MaxPool2d(2) and ReLU, Flatten and Linear",
    )
