"""A PyTorch model whose parameters and floating-point buffers are views of one flat vector.

The gradients are views of another. A model is therefore loaded with one copy, an SGD step is one operation, and trained
weights need no copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from spyker.tasks.layout import Layout
from spyker.tasks.personal import select_personal
from spyker.vectors import Vector

VIEWS = ("shared", "personal", "trained", "parameters", "initial", "_gradient", "_parts", "_counters", "_pristine")


class FlatModel:
    """A model in one vector: personal buffers, personal parameters, shared parameters, shared buffers.

    In this order the trained parameters are contiguous, as are the shared and the personal parts. Servers and clients
    exchange the shared part; the personal part is in the client's state.
    """

    shared: Tensor
    """The shared parameters and buffers."""
    personal: Tensor
    """The personal buffers and parameters."""
    trained: Tensor
    """All parameters, the personal ones first."""
    parameters: list[Tensor]
    """The same, one by one."""

    def __init__(self, model: nn.Module, personal: Collection[str], device: torch.device, dtype: torch.dtype) -> None:
        """Move the model into one vector; ``personal`` are the names of its personal parameters and buffers."""
        self.model, self.device, self.dtype = model, device, dtype
        self._names = personal
        self._lends = False
        self._gradient: Tensor | None = None
        self._flatten()
        self.initial = self._initial_weights()
        """W⁰, in the model's memory until other weights are loaded."""
        self.initial_personal = self.personal_part()

    def _flatten(self) -> None:
        """Move the model into new memory."""
        self.model.to(self.device)
        every = dict(self.model.named_buffers())
        self._counters = [(b, b.clone()) for b in every.values() if not b.is_floating_point()]
        own, shared = divide(dict(self.model.named_parameters()), self._names)
        own_buffers, shared_buffers = divide({n: b for n, b in every.items() if b.is_floating_point()}, self._names)
        parts = own_buffers | own | shared | shared_buffers
        self.parameters = [*own.values(), *shared.values()]
        self.layout, self.personal_layout = layout_of_parts(shared | shared_buffers), layout_of_parts(own_buffers | own)
        self.buffers = elements(shared_buffers)
        start = elements(own_buffers)
        self._personal_trained = elements(own)  # at the start of the trained parameters
        self._trained_part = slice(start, start + elements(own | shared))
        self._pristine, self._gradient, self._parts = True, None, list(parts.values())
        self._use(torch.cat([flattened(part.detach()).to(self.dtype) for part in parts.values()]))

    def _use(self, memory: Tensor) -> None:
        """Make the model's parameters and buffers views of a vector."""
        self.trained = memory[self._trained_part]
        whole = self._trained_part.start + self._personal_trained
        self.personal, self.shared = memory[:whole], memory[whole:]
        self.trained.grad = self._gradient
        for part, view in zip(self._parts, views(memory, self._parts), strict=True):
            part.data = view

    def _initial_weights(self) -> Vector:
        weights = self.shared.numpy() if self._in_place else self.unload()
        weights.flags.writeable = False
        return weights

    def __getstate__(self) -> dict[str, object]:
        """Pickle without views of the flat vectors, which would be restored as copies."""
        if not self._pristine:
            self.load(self.initial)
        self.model.train()
        return {key: value for key, value in vars(self).items() if key not in VIEWS}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._flatten()
        self.initial = self._initial_weights()

    @property
    def _in_place(self) -> bool:
        """Whether the vector is float32 on the CPU, as servers need it."""
        return self.device.type == "cpu" and self.dtype == torch.float32

    # --- Weights -----------------------------------------------------------------------------------------------------

    def lend(self) -> None:
        """Release W⁰, and use the memory of weights that are given: trained weights replace them, if possible."""
        self._pristine, self._lends, self.initial = False, self._in_place, np.empty(0, np.float32)

    @property
    def borrows(self) -> bool:
        """Whether the model uses the memory of weights that are loaded."""
        return self._lends and not self._names

    def own_memory(self) -> None:
        """Detach the model from W⁰ and from weights that were given back: layers may write to them on any data."""
        if self._pristine:
            self._flatten()
            self._pristine = False
        elif self.borrows:
            self._use(self.shared.clone())

    def load(self, weights: Vector, personal: Vector | None = None) -> None:
        """Load weights into the model, and reset its counters, such as BatchNorm's count of batches.

        Args:
            weights: the shared parameters and buffers.
            personal: the personal ones; ``None``: their initial values.

        """
        for counter, first in self._counters:
            counter.copy_(first)
        if self.borrows:
            self._use(torch.from_numpy(weights))
            return
        self.own_memory()  # W⁰ keeps the memory
        if self.device.type == "cpu":
            np.copyto(self.shared.numpy(), weights)
        else:
            self.shared.copy_(torch.tensor(weights))
        if self._names:
            self.personal.copy_(torch.tensor(self.initial_personal if personal is None else personal))

    def unload(self) -> Vector:
        """Return the shared weights, as a copy unless this process only trains."""
        return self.shared.numpy() if self._lends else np.array(self.shared.cpu().numpy(), np.float32)

    def personal_part(self) -> Vector:
        """Return the personal parameters and buffers, as a copy."""
        return np.array(self.personal.cpu().numpy())

    # --- Gradients ---------------------------------------------------------------------------------------------------

    def with_gradients(self) -> None:
        """Allocate gradients as views of one vector. A process that does not train needs none."""
        if self._gradient is not None:
            return
        self._gradient = gradient = self.trained.grad = torch.zeros_like(self.trained)
        for parameter, view in zip(self.parameters, views(gradient, self.parameters), strict=True):
            parameter.grad = view

    @property
    def gradient(self) -> Tensor:
        """The gradients that :meth:`with_gradients` has allocated."""
        assert self._gradient is not None
        return self._gradient

    def received(self) -> tuple[Tensor, Tensor]:
        """Return the parameters that a client receives, without its personal ones, and their gradients."""
        return self.trained[self._personal_trained :], self.gradient[self._personal_trained :]

    def without_gradients(self) -> None:
        """Free the gradients."""
        self._gradient = self.trained.grad = None
        for parameter in self.parameters:
            parameter.grad = None


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


def views(memory: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Return consecutive pieces of a vector in the shapes of some tensors: the inverse of :func:`flattened`."""
    pieces = memory.split([part.numel() for part in parts])
    return [shaped(piece, part.shape) for piece, part in zip(pieces, parts, strict=True)]


def shaped(piece: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a view of a piece of the vector in the shape of its tensor."""
    if len(shape) == 4:
        out, channels, height, width = shape
        return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
    return piece.view(*shape)
