"""Served models: the initial model of a federation with all that a server needs to know about it.

A served model is one safetensors file. Its metadata holds the order of the tensors, the number of buffers, the metrics
and the learning rate, so a server needs neither the task nor PyTorch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
from safetensors import SafetensorError, deserialize

from spyker.errors import UsageError
from spyker.records.model_files import ModelFile, write_model
from spyker.tasks.layout import Layout, layout_digest, layout_of
from spyker.tasks.task import Metric, Task
from spyker.untrusted_files import parse_json, read_bytes
from spyker.vectors import Vector

KEY, FORMAT = "spyker", 1
LARGEST_HEADER = 100_000_000  # bytes, the limit of safetensors itself
REMEDY = "Give the model.safetensors that spyker federation create wrote"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a server knows about a model, apart from its weights."""

    layout: Layout
    digest: bytes
    """Digest of the layout, which clients and servers compare."""
    buffers: int
    """Number of buffers at the end of the weights."""
    metric: Metric
    also: tuple[Metric, ...] = ()
    rate: float | None = None
    """Learning rate of the task, if it has its own."""
    code: str = ""
    """Digest of the task's code; clients compare it with their own."""

    @classmethod
    def of(cls, task: Task, code: str = "") -> ModelSpec:
        """Return the specification of a task's model."""
        return cls(layout_of(task), layout_digest(task), task.buffers, task.metric, tuple(task.also), task.rate, code)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An initial model and its specification."""

    spec: ModelSpec
    weights: Vector
    sha256: str = ""
    """Digest of the file; empty for a model that was not read from a file."""

    @classmethod
    def of(cls, task: Task) -> ServedModel:
        """Return the initial model of a task."""
        return cls(ModelSpec.of(task), task.initial())


class _Header(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """The metadata of the file."""

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
    names: list[str]
    digest: str
    buffers: int
    metrics: list[tuple[str, bool, list[float], tuple[float, float] | None]]
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    code: str = ""


def write_served_model(path: Path, model: ServedModel) -> None:
    """Write a served model atomically."""
    spec = model.spec
    header = _Header(
        FORMAT,
        list(spec.layout.names),
        spec.digest.hex(),
        spec.buffers,
        [(m.name, m.higher_is_better, list(m.targets), m.limits) for m in (spec.metric, *spec.also)],
        spec.rate,
        spec.code,
    )
    parts = spec.layout.parts(model.weights)
    write_model(path, ModelFile(parts, {KEY: msgspec.json.encode(header).decode()}))


def read_served_model(path: Path, where: str = "deploy.model") -> ServedModel:
    """Read and check a served model.

    Args:
        path: the file.
        where: the setting that names the file, for error messages.

    Raises:
        UsageError: the file cannot be read, or it is not a model file.

    """

    def refuse(problem: str) -> NoReturn:
        raise UsageError(where, f"{path} {problem}", REMEDY) from None

    try:
        content = read_bytes(path)
        tensors: dict[str, Any] = dict(deserialize(content))  # type: ignore[no-untyped-call]
        header = msgspec.json.decode(metadata(content)[KEY], type=_Header)
        metric, *also = [Metric(name, better, tuple(t), limits) for name, better, t, limits in header.metrics]
        layout = Layout(tuple(header.names), tuple(tuple(tensors[name]["shape"]) for name in header.names))
        digest = bytes.fromhex(header.digest)
        spec = ModelSpec(layout, digest, header.buffers, metric, tuple(also), header.rate, header.code)
    except OSError as error:
        refuse(f"cannot be read ({error.strerror})")
    except (SafetensorError, msgspec.MsgspecError, KeyError, ValueError, TypeError, RecursionError):
        refuse("is not a model file")
    wrong = next((name for name in header.names if tensors[name]["dtype"] != "F32"), None)
    if wrong is not None or len(tensors) != len(header.names):
        refuse("is not a model file: its tensors are not those of its header, in float32")
    parts = {n: np.frombuffer(tensors[n]["data"], np.float32).reshape(tensors[n]["shape"]) for n in header.names}
    weights = spec.layout.vector(parts)
    if not 0 <= spec.buffers <= weights.size or not np.isfinite(weights).all():
        refuse("is not a model file: it has numbers that are not finite, or a wrong number of buffers")
    return ServedModel(spec, weights, hashlib.sha256(content).hexdigest())


def metadata(content: bytes) -> Mapping[str, str]:
    """Return the metadata of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    if length > min(LARGEST_HEADER, len(content) - 8):
        raise ValueError("the header is longer than the file")
    found: Mapping[str, str] = parse_json(content[8 : 8 + length]).get("__metadata__", {})
    return found
