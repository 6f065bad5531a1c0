"""Between the named arrays of a Flower app and the one vector of a Spyker model."""

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
    """Arrays that are not those of the model."""


@dataclass(frozen=True, slots=True)
class NamedArrays:
    """What a model consists of, in its order.

    Floating-point arrays are learnt: they travel as float32 and have their own type again in the app. Others, such as
    the count of batches that a normalisation has seen, stay in every training what they were in the first model.
    """

    layout: Layout
    first: Mapping[str, NDArray]
    """All arrays of the first model, by name."""

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray]) -> NamedArrays:
        """What these arrays are; an error has the reason and the remedy."""
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
        names = sorted(learnt, key=is_statistic)  # which stand last
        return cls(Layout(tuple(names), tuple(learnt[name].shape for name in names)), dict(arrays))

    @property
    def buffers(self) -> int:
        """How many numbers are statistics of the data; where arrays have no names, nobody knows."""
        shapes = zip(self.layout.names, self.layout.shapes, strict=True)
        return sum(math.prod(shape) for name, shape in shapes if is_statistic(name))

    def vector(self, arrays: Mapping[str, NDArray]) -> Vector:
        """The model of some arrays, which must have the names and shapes of the first."""
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
        """The arrays of a model, as the app knows them."""
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


def is_statistic(name: str) -> bool:
    """Whether an array of a PyTorch model is a normalisation's record of the data that it has seen."""
    return name.endswith(("running_mean", "running_var"))


def is_learnt(array: NDArray) -> bool:
    """Whether servers can mix such arrays."""
    return bool(np.issubdtype(array.dtype, np.floating))
