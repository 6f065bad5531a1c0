"""The cache: prepared arrays as ``.npy`` files, verified before they are stored, memory-mapped ever after.

All processes of this machine share one copy of them, in the page cache. A file appears under its name only when it is
complete, and its name contains its checksum, so neither a kill nor another version can leave something wrong there.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import platformdirs

from spyker.errors import DataError
from spyker.tasks.data.dataset import Array, Dataset, PreparedArray

VARIABLE = "SPYKER_CACHE"
PARTIAL = ".partial-"  # how the names of folders begin in which something is being fetched
STALE_SECONDS = 24 * 3600


def cache_folder() -> Path:
    """The folder of the cache: ``$SPYKER_CACHE``, or where the platform keeps such things."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("spyker", appauthor=False))


def path_of(dataset: Dataset, prepared: PreparedArray) -> Path:
    """Where an array is, or would be."""
    return cache_folder() / dataset.name / f"{prepared.name}-{prepared.sha256[:12]}.npy"


def open_arrays(dataset: Dataset) -> dict[str, Array] | None:
    """All arrays of a dataset, memory-mapped and read-only, or None unless all are there and whole."""
    arrays = {}
    for prepared in dataset.arrays:
        try:
            array = np.load(path_of(dataset, prepared), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if array.dtype.str != prepared.dtype or array.shape != prepared.shape:
            return None
        arrays[prepared.name] = array
    return arrays


def make_folder(dataset: Dataset) -> Path:
    """The dataset's folder in the cache, made if need be and swept."""
    folder = cache_folder() / dataset.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(None, "no permission to write")
        for left in folder.glob(f"{PARTIAL}*"):  # by somebody who was killed
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise unwritable(error) from None
    return folder


def store(dataset: Dataset, arrays: Mapping[str, Array]) -> None:
    """Keep verified arrays."""
    make_folder(dataset)
    for prepared in dataset.arrays:
        path = path_of(dataset, prepared)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                np.save(file, np.ascontiguousarray(arrays[prepared.name]), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise unwritable(error) from None


def unwritable(error: OSError) -> DataError:
    """The cache takes nothing."""
    return DataError(
        f"the cache {cache_folder()} cannot be written ({error.strerror}). "
        f"Set {VARIABLE} to a folder with some 250 MB to spare"
    )
