"""The state folder of clients: what a client keeps from one process to the next.

Each client has one file, ``client-7.safetensors``, with its training count, its task's state and, if it has personal
parameters, its complete model. A save writes a temporary file, syncs it and renames it, so that a killed process leaves
the old or the new version. The file is read without executing code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from spyker.config.scenario import Scenario
from spyker.errors import ClientStateError, UsageError
from spyker.net.client_state_codec import pack, unpack
from spyker.protocol.codec import Array
from spyker.records.files import replacing, sync
from spyker.records.lock import lock
from spyker.records.model_files import ModelFile
from spyker.records.tensors import write_tensors
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import code_of
from spyker.tasks.served_model import metadata
from spyker.tasks.task import Task
from spyker.untrusted_files import parse_json, read_bytes

FORMAT = 1
KEY, CHECKSUM = "spyker-client", "checksum"  # of the metadata
LOCK, STATE_FOLDER = "clients.lock", "state"
PRIVATE, PRIVATE_FILE = 0o700, 0o600
OPTION, DISCARD = "--state", "--discard-state"
NAME = re.compile(r"client-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class SavedClient:
    """The content of a client's file."""

    client: int
    trainings: int
    """Number of trainings so far, which is the number of the next one."""
    state: Any
    """State for the client's next training."""
    layout: str
    code: str
    model: dict[str, Array]
    """The complete model by name: the last received shared parameters and the personal ones; empty without these."""


class ClientStates:
    """The state folder of the clients of this process. Only one process may use a folder."""

    def __init__(self, folder: Path, task: Task, scenario: Scenario) -> None:
        """Open the folder, and create it if necessary."""
        self.folder = folder
        self._layout, self._code = state_digest(task, scenario), code_of(scenario.task)
        try:
            folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            os.utime(folder)  # fails on a read-only file system, where an existing lock file can still be opened
            self._lock = lock(folder / LOCK)
            for leftover in folder.glob(".client-*"):  # of a killed process
                leftover.unlink()
        except BlockingIOError:
            raise UsageError(
                OPTION, f"{folder} is in use by another process", "Stop it, or give another folder"
            ) from None
        except OSError as error:
            problem = f"{folder} cannot be used ({error.strerror})"
            raise UsageError(OPTION, problem, "Give a folder that this user may write to") from None

    def close(self) -> None:
        """Release the lock on the folder."""
        self._lock.close()

    def path(self, client: int) -> Path:
        """Return the file of a client."""
        return self.folder / f"client-{client}.safetensors"

    def discard(self, client: int) -> None:
        """Rename the file of a client, if there is one, so that the client begins anew."""
        path = self.path(client)
        if path.exists():
            path.replace(path.with_suffix(".discarded"))

    def load(self, client: int) -> SavedClient | None:
        """Return what a client has saved; ``None`` if there is no file.

        Raises:
            UsageError: the file is damaged, or is of other code or another model.

        """
        path = self.path(client)
        if not path.exists():
            return None
        try:
            saved = read_client(path)
        except ClientStateError as error:
            raise UsageError(OPTION, str(error), f"Restore it from a backup, or add {DISCARD}") from None
        remedy = f"Use what it was saved with, or add {DISCARD} to begin without it"
        if saved.client != client:
            raise UsageError(OPTION, f"{path} is the state of client {saved.client}", "Give the client's own folder")
        if saved.layout != self._layout:
            raise UsageError(OPTION, f"{path} was saved with another model or optimiser", remedy)
        if saved.code != self._code:
            raise UsageError(OPTION, f"{path} was saved with other code of the task", remedy)
        return saved

    def save(self, client: int, trainings: int, state: object, model: Mapping[str, Array] | None = None) -> None:
        """Replace the file of a client. When this returns, the new version is synced to disk.

        Raises:
            UsageError: the state is of an unsupported type.
            ClientStateError: the file cannot be written.

        """
        path = self.path(client)
        packed, arrays = pack(state)
        tensors = {f"state.{name}": array for name, array in arrays.items()}
        tensors |= {f"model.{name}": array for name, array in (model or {}).items()}
        about = {
            "format": FORMAT,
            "client": client,
            "trainings": trainings,
            "layout": self._layout,
            "code": self._code,
            "state": packed,
            "model": list(model or ()),
            "checksums": {name: checksum(array) for name, array in tensors.items()},
        }
        text = json.dumps(about, allow_nan=False)
        try:
            with replacing(path) as temporary:
                temporary.touch(PRIVATE_FILE)
                write_tensors(temporary, tensors, {KEY: text, CHECKSUM: str(zlib.crc32(text.encode()))})
            sync(self.folder)
        except OSError as error:
            raise ClientStateError(
                f"its state cannot be written to {path} ({error.strerror}). Free space there, or give another folder"
            ) from error


def state_digest(task: Task, scenario: Scenario) -> str:
    """Return a digest of the parameters that a state belongs to and, if its state is kept, of the optimiser."""
    parts: dict[str, list[int]] = {}
    if task.personal:
        parts = {name: list(part.shape) for name, part in task.client_model(task.initial(), None).items()}
    training = scenario.training
    optimiser = [training.optimiser, dict(training.optimiser_options or {})] if training.keep_optimiser else []
    content = [layout_digest(task).hex(), parts, sorted(task.personal), optimiser]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checksum(array: Array) -> int:
    """Return the checksum of an array."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_client(path: Path) -> SavedClient:
    """Read and verify the file of a client. Its process may be running.

    Raises:
        ClientStateError: the file cannot be read, or is damaged.

    """
    try:
        content = read_bytes(path)
        header = metadata(content)
        if zlib.crc32(header[KEY].encode()) != int(header[CHECKSUM]):
            raise ValueError("its header is not as it was written")
        about = parse_json(header[KEY])
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}, and this version of Spyker reads {FORMAT}")
        tensors = load(content)
        for name, expected in about["checksums"].items():
            if checksum(tensors[name]) != expected:
                raise ValueError(f"{name} is not as it was written")
        arrays = {name.removeprefix("state."): t for name, t in tensors.items() if name.startswith("state.")}
        model = {name: tensors[f"model.{name}"] for name in about["model"]}
        state = unpack(about["state"], arrays)
        return SavedClient(about["client"], about["trainings"], state, about["layout"], about["code"], model)
    except OSError as error:
        raise ClientStateError(f"{path} cannot be read ({error.strerror})") from None
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClientStateError(f"{path} is damaged: {error}") from None


def client_files(place: Path) -> list[Path]:
    """Return the state files of clients in a client's folder, in its state folder, or at this path."""
    if NAME.fullmatch(place.name) and place.is_file():
        return [place]
    found = [path for folder in (place, place / STATE_FOLDER) if folder.is_dir() for path in folder.iterdir()]
    return sorted(path for path in found if NAME.fullmatch(path.name))


def client_model(path: Path) -> tuple[ModelFile, str]:
    """Return the complete model in a client's file, and a line that describes it.

    Raises:
        ClientStateError: the file is damaged, or holds no model.

    """
    saved = read_client(path)
    if not saved.model:
        raise ClientStateError(
            f"{path} holds no model: the client has no personal parameters. Export the model of a server instead"
        )
    line = f"client {saved.client}: {saved.trainings} trainings"
    return ModelFile(saved.model, {"spyker": f"client {saved.client} after {saved.trainings} trainings"}), line
