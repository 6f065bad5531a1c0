"""What the numbers of a weight vector mean, to whoever has to do with a model outside of its task: names and shapes."""

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
    """The parts of a weight vector in their order: of a PyTorch model first parameters, then buffers.

    The weights of convolutions, and whatever else has four dimensions, lie in the vector channels-last.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def parts(self, weights: Vector) -> dict[str, Vector]:
        """The weights by name, in arrays of their own and in the order of memory that others expect."""
        return {name: view.copy() for name, view in self.views(weights).items()}

    def views(self, weights: Vector) -> dict[str, Vector]:
        """The weights by name, in the memory of the vector."""
        ends = list(accumulate(math.prod(shape) for shape in self.shapes))
        pieces = np.split(weights, ends[:-1])
        return {name: shaped(p, shape) for name, shape, p in zip(self.names, self.shapes, pieces, strict=True)}

    def vector(self, parts: Mapping[str, Vector]) -> Vector:
        """The inverse of :meth:`parts`."""
        return np.concatenate([flattened(parts[name]) for name in self.names])


def shaped(piece: Vector, shape: tuple[int, ...]) -> Vector:
    """A piece of the vector in the shape of its part: a view."""
    if len(shape) == 4:
        out, channels, height, width = shape
        return piece.reshape(out, height, width, channels).transpose(0, 3, 1, 2)
    return piece.reshape(shape)


def flattened(part: Vector) -> Vector:
    """A part as a piece of the vector."""
    return part.transpose(0, 2, 3, 1).reshape(-1) if part.ndim == 4 else part.reshape(-1)


def own_layout(task: Task) -> Layout | None:
    """What a task says about its weights; only a PyTorch task does."""
    found = getattr(task, "layout", None)  # asking for its type would import PyTorch
    return found if isinstance(found, Layout) else None


def layout_of(task: Task) -> Layout:
    """What the weights of a task mean; of one that does not say, they are one vector."""
    return own_layout(task) or Layout(("weights",), ((task.initial().size,),))


def layout_digest(task: Task) -> bytes:
    """The same in 32 bytes."""
    layout = own_layout(task)
    parts = [list(layout.names), [list(shape) for shape in layout.shapes]] if layout is not None else []
    return hashlib.sha256(json.dumps([parts, task.initial().size]).encode()).digest()
