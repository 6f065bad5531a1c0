"""Layout of a weight vector: the names and shapes of its tensors."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from spyker.tasks.task import Task
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of the tensors in a weight vector: parameters first, then buffers.

    Tensors with four dimensions, such as the weights of convolutions, are stored channels-last.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def parts(self, weights: Vector) -> dict[str, Vector]:
        """Return the tensors by name, as contiguous copies."""
        return {name: view.copy() for name, view in self.views(weights).items()}

    def views(self, weights: Vector) -> dict[str, Vector]:
        """Return the tensors by name, as views of the vector."""
        ends = list(accumulate(math.prod(shape) for shape in self.shapes))
        pieces = np.split(weights, ends[:-1])
        return {name: shaped(p, shape) for name, shape, p in zip(self.names, self.shapes, pieces, strict=True)}

    def vector(self, parts: Mapping[str, Vector]) -> Vector:
        """The inverse of :meth:`parts`."""
        return np.concatenate([flattened(parts[name]) for name in self.names])


def shaped(piece: Vector, shape: tuple[int, ...]) -> Vector:
    """Return a view of a piece of the vector in the shape of its tensor."""
    if len(shape) == 4:
        out, channels, height, width = shape
        return piece.reshape(out, height, width, channels).transpose(0, 3, 1, 2)
    return piece.reshape(shape)


def flattened(part: Vector) -> Vector:
    """Return a tensor flattened as in the vector."""
    return part.transpose(0, 2, 3, 1).reshape(-1) if part.ndim == 4 else part.reshape(-1)


def first_nonfinite(parts: Mapping[str, Vector]) -> str | None:
    """Return the first number that is not finite, as in ``weight[0, 1] is nan``; ``None`` if all are."""
    for name, part in parts.items():
        finite = np.isfinite(part)
        if not finite.all():
            place = np.unravel_index(int(finite.argmin()), part.shape)
            return f"{name}{list(map(int, place)) if place else ''} is {part[place]}"
    return None


def own_layout(task: Task) -> Layout | None:
    """Return the layout that a task declares; only PyTorch tasks do."""
    found = getattr(task, "layout", None)  # isinstance would import PyTorch
    return found if isinstance(found, Layout) else None


def layout_of(task: Task) -> Layout:
    """Return the layout of a task's weights; default: a single vector."""
    return own_layout(task) or Layout(("weights",), ((task.initial().size,),))


def layout_digest(task: Task) -> bytes:
    """Return a digest of the layout."""
    layout = own_layout(task)
    parts = [list(layout.names), [list(shape) for shape in layout.shapes]] if layout is not None else []
    return hashlib.sha256(json.dumps([parts, task.initial().size]).encode()).digest()
