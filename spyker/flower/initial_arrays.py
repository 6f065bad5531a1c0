"""The initial model that a function of the user returns, in any of the supported forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from torch import Tensor, nn

from spyker.errors import UsageError
from spyker.flower.arrays import NDArray
from spyker.flower.client_calls import ClientAppCaller, seed_all
from spyker.flower.project import find_object

WHERE = "task.model"


def as_arrays(name: str, caller: ClientAppCaller) -> Mapping[str, NDArray]:
    """Call the function with the scenario's seed, and return its model as arrays."""
    function = find_object(name, WHERE, "function")
    if not callable(function):
        raise UsageError(WHERE, f"{name} is a {type(function).__name__}", "Name a function")
    seed_all(caller.seed)
    model: Any = function()
    if isinstance(model, nn.Module):
        model = model.state_dict()
    if isinstance(model, ArrayRecord):
        model = {key: array.numpy() for key, array in model.items()}
    elif isinstance(model, list | tuple):
        model = {str(i): array for i, array in enumerate(model)}
    if not isinstance(model, Mapping) or not model:
        raise UsageError(
            WHERE,
            f"{name} returned {type(model).__name__}",
            "Return an ArrayRecord, a list or a dict of arrays, or a PyTorch module",
        )
    return {str(key): number(value) for key, value in model.items()}


def number(array: Any) -> NDArray:
    """Convert a value to a NumPy array."""
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
