"""Conversion between the named arrays of a Flower app and a weight vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spyker.tasks.layout import Layout
from spyker.vectors import Vector

NDArray: TypeAlias = npt.NDArray[Any]


class ArrayMismatchError(ValueError):
    """The arrays do not match the model."""


@dataclass(frozen=True, slots=True)
class NamedArrays:
    """The arrays of a model, in order.

    Floating-point arrays are sent as float32 and converted back to their type for the app. Other arrays, such as
    BatchNorm's count of batches, keep their initial values in every training.
    """

    layout: Layout
    first: Mapping[str, NDArray]
    """All arrays of the initial model, by name."""

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray]) -> NamedArrays:
        """Describe a model's arrays; raise an ``ArrayMismatchError`` if servers cannot average them."""
        learnt = {name: array for name, array in arrays.items() if is_learnt(array)}
        if not learnt:
            raise ArrayMismatchError(
                f"its model {not_averaged(arrays)}, so servers cannot average it",
                "Choose an app whose model is float arrays, or let Flower run this one (flwr run)",
            )
        for name, array in learnt.items():
            if not np.isfinite(array).all():
                raise ArrayMismatchError(
                    f"its first model has numbers in {name!r} that are not finite", "Fix the model"
                )
        names = sorted(learnt, key=is_buffer)  # buffers are last
        return cls(Layout(tuple(names), tuple(learnt[name].shape for name in names)), dict(arrays))

    @property
    def buffers(self) -> int:
        """Number of buffers; 0 if the arrays have no names."""
        shapes = zip(self.layout.names, self.layout.shapes, strict=True)
        return sum(math.prod(shape) for name, shape in shapes if is_buffer(name))

    def vector(self, arrays: Mapping[str, NDArray]) -> Vector:
        """Return arrays as a weight vector; they must have the names and shapes of the initial model."""
        for name, shape in zip(self.layout.names, self.layout.shapes, strict=True):
            if name not in arrays:
                raise ArrayMismatchError(f"no array {name!r}, only {', '.join(map(repr, arrays)) or 'nothing'}")
            if arrays[name].shape != shape:
                raise ArrayMismatchError(f"the array {name!r} in the shape {arrays[name].shape}, which was {shape}")
        unknown = next((name for name in arrays if name not in self.first), None)
        if unknown is not None:
            raise ArrayMismatchError(f"an array {unknown!r}, which the model does not have")
        return self.layout.vector({name: np.asarray(arrays[name], np.float32) for name in self.layout.names})

    def arrays(self, weights: Vector) -> dict[str, NDArray]:
        """Return a weight vector as arrays of the app."""
        parts = self.layout.parts(weights)
        return {
            name: parts[name].astype(array.dtype, copy=False) if name in parts else array
            for name, array in self.first.items()
        }


def not_averaged(arrays: Mapping[str, NDArray]) -> str:
    """Describe a model without floating-point arrays."""
    listed = ", ".join(f"{name!r} of {array.dtype}" for name, array in arrays.items())
    if len(arrays) == 1 and next(iter(arrays.values())).dtype == np.uint8:
        return f"is bytes (the array {listed}), as of XGBoost and other trees, and not arrays of floating-point numbers"
    return f"has no floating-point array, only {listed or 'an empty record'}"


def is_buffer(name: str) -> bool:
    """Return whether an array is a running mean or variance of a normalisation layer."""
    return name.endswith(("running_mean", "running_var"))


def is_learnt(array: NDArray) -> bool:
    """Return whether servers can mix an array."""
    return bool(np.issubdtype(array.dtype, np.floating))
