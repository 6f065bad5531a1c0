"""The parameters and buffers of a PyTorch model as parts of vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, nn

from spyker.tasks.layout import Layout
from spyker.tasks.personal import select_personal


def personal_names(model: nn.Module, patterns: Sequence[str]) -> frozenset[str]:
    """Return the names of the personal parameters and buffers."""
    buffers = [name for name, buffer in model.named_buffers() if buffer.is_floating_point()]
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    affine = {f"{name}.{part}".lstrip(".") for name in norms for part in ("weight", "bias")}
    parameters = [name for name, _ in model.named_parameters()]
    return select_personal([*parameters, *buffers], patterns, {*buffers, *affine.intersection(parameters)})


def divide(parts: dict[str, Tensor], personal: Collection[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the personal and the shared parts."""
    own = {name: part for name, part in parts.items() if name in personal}
    return own, {name: part for name, part in parts.items() if name not in personal}


def layout_of_parts(parts: Mapping[str, Tensor]) -> Layout:
    """Return the layout of a vector of these parts."""
    return Layout(tuple(parts), tuple(tuple(part.shape) for part in parts.values()))


def elements(parts: Mapping[str, Tensor]) -> int:
    """Return the number of elements of all parts."""
    return sum(part.numel() for part in parts.values())


def flattened(part: Tensor) -> Tensor:
    """Flatten a tensor of the model; convolution weights become channels-last, which is faster."""
    return part.permute(0, 2, 3, 1).reshape(-1) if part.dim() == 4 else part.reshape(-1)


def shaped(piece: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a view of a piece of the vector in the shape of its tensor: the inverse of :func:`flattened`."""
    if len(shape) == 4:
        out, channels, height, width = shape
        return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
    return piece.view(*shape)
