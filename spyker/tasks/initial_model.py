"""Initial models from a file, in place of the task's W⁰."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from safetensors import SafetensorError, deserialize

from spyker.errors import UsageError
from spyker.records import InitialModelLoaded
from spyker.records.model_files import MODEL
from spyker.tasks.layout import Layout
from spyker.untrusted_files import read_bytes
from spyker.vectors import Vector

OPTION = "--initial-model"
REMEDY = "Give a model of this task, or one with the same names and shapes"


class InitialModel(NamedTuple):
    """The initial weights of a run and the fact that records them."""

    weights: Vector
    fact: InitialModelLoaded


class InitialModelFile:
    """A safetensors file, read once, because the run may overwrite it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise UsageError(OPTION, f"{path} is a folder", f"Give a file, such as {path / MODEL}")
        try:
            content = read_bytes(path)
            self.tensors = dict(deserialize(content))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise UsageError(OPTION, f"{path} cannot be read ({error.strerror})", "Give a readable file") from None
        except SafetensorError as error:
            remedy = "Give the model.safetensors of a run, or save yours with safetensors.torch.save_file"
            raise UsageError(OPTION, f"{path} is not a safetensors file ({error})", remedy) from None
        self.sha256 = hashlib.sha256(content).hexdigest()

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None) -> InitialModelFile | None:
        """Read a file, if one is given."""
        return None if path is None else cls(Path(path))

    def fit(self, layout: Layout) -> InitialModel:
        """Return the model as a weight vector.

        Tensors that are not floating-point, such as BatchNorm's count of batches, are ignored.

        Raises:
            UsageError: the tensors do not match the task's layout.

        """
        wanted = dict(zip(layout.names, layout.shapes, strict=True))
        for name, tensor in self.tensors.items():
            if name not in wanted and "F" in tensor["dtype"]:
                self._refuse(f"has a tensor {name}, which the task does not know")
        return InitialModel(
            layout.vector({name: self._part(name, shape) for name, shape in wanted.items()}),
            InitialModelLoaded(str(self.path), self.sha256),
        )

    def _part(self, name: str, shape: tuple[int, ...]) -> Vector:
        tensor = self.tensors.get(name)
        if tensor is None:
            self._refuse(f"has no tensor {name}; its tensors: {', '.join(sorted(self.tensors)) or 'none':.200}")
        if tuple(tensor["shape"]) != shape:
            self._refuse(f"has {name} in the shape {list(tensor['shape'])}; the task has it in {list(shape)}")
        if tensor["dtype"] != "F32":
            self._refuse(f"has {name} as {tensor['dtype']}", "Save it as float32")
        part: Vector = np.frombuffer(tensor["data"], np.float32).reshape(shape)
        if not np.isfinite(part).all():
            self._refuse(f"has numbers in {name} that are not finite", "Give a model whose training did not diverge")
        return part

    def _refuse(self, problem: str, remedy: str = REMEDY) -> NoReturn:
        raise UsageError(OPTION, f"{self.path} {problem}", remedy)
