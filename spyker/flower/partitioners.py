"""Partitioners of Flower Datasets for Spyker's data."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np
import numpy.typing as npt

from spyker.config.sections import show
from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.extras import require

Indices = npt.NDArray[np.int64]
WHERE = "task.partitioner"
LABEL, ROW = "label", "row"


def parts(partitioner: Any, labels: npt.ArrayLike, clients: int) -> list[Indices]:
    """Return the indices of each client's data points: client k has partition k of the partitioner.

    The partitioner is an object of ``flwr_datasets.partitioner`` without a dataset. It sees the ``labels`` in a column
    named ``label``.
    """
    from datasets import Dataset

    labels = np.asarray(labels)
    partitioner.dataset = Dataset.from_dict({LABEL: labels, ROW: np.arange(labels.size)})
    name = type(partitioner).__name__
    try:
        dealt = [np.sort(np.asarray(partitioner.load_partition(k)[ROW], np.int64)) for k in range(clients)]
        count = partitioner.num_partitions
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise UsageError(
            WHERE, f"{name} cannot partition this data among {clients} clients ({error})", REMEDY
        ) from None
    if count != clients:
        raise UsageError(WHERE, f"{name} makes {count} partitions for {clients} clients", REMEDY)
    for k, part in enumerate(dealt):
        if part.size == 0:
            raise UsageError(WHERE, f"{name} leaves client {k} without data", REMEDY)
    return dealt


REMEDY = "Change its arguments, or the number of clients (--clients)"


def named(text: str, clients: int, seed: int) -> Any:
    """Return the partitioner of a string such as ``DirichletPartitioner(alpha=0.3)``.

    The number of partitions, the column of the labels and the seed are filled in.
    """
    require(WHERE, "flwr_datasets")
    from flwr_datasets import partitioner as offered

    name, given = read(text)
    kinds = [each for each in offered.__all__ if each != "Partitioner"]
    if name not in kinds:
        raise UsageError(WHERE, f"{show(text)} is not allowed", suggest(name, kinds, "There are"))
    kind = getattr(offered, name)
    known = inspect.signature(kind).parameters
    filled = {"num_partitions": clients, "partition_by": LABEL, "seed": seed} | given
    try:
        return kind(**{key: value for key, value in filled.items() if key in known or key in given})
    except (TypeError, ValueError) as error:
        raise UsageError(WHERE, f"{show(text)} is not allowed: {error}", "Fix its arguments") from None


def read(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a name and its keyword arguments."""
    try:
        call = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        return call.func.id, {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError):
        raise UsageError(WHERE, f"{show(text)} is not allowed", "Write it as DirichletPartitioner(alpha=0.3)") from None
