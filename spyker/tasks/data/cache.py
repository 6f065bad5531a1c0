"""The cache of prepared arrays: verified ``.npy`` files, which processes memory-map.

All processes of a machine share one copy in the page cache. Files are renamed into place when they are complete, and
their names contain their checksums, so neither a killed process nor another version leaves a wrong array.
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
from spyker.records.files import replacing
from spyker.tasks.data.dataset import Array, Dataset, PreparedArray

VARIABLE = "SPYKER_CACHE"
PARTIAL = ".partial-"  # prefix of temporary download folders
STALE_SECONDS = 24 * 3600


def cache_folder() -> Path:
    """Return the cache folder: ``$SPYKER_CACHE``, or the platform's default."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("spyker", appauthor=False))


def path_of(dataset: Dataset, prepared: PreparedArray) -> Path:
    """Return the path of an array in the cache, whether it exists or not."""
    return cache_folder() / dataset.name / f"{prepared.name}-{prepared.sha256[:12]}.npy"


def open_arrays(dataset: Dataset) -> dict[str, Array] | None:
    """Return all arrays of a dataset, memory-mapped and read-only, or ``None`` if one is missing or damaged."""
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
    """Create the dataset's folder in the cache, and delete stale downloads."""
    folder = cache_folder() / dataset.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(None, "permission denied")
        for partial in folder.glob(f"{PARTIAL}*"):  # of killed processes
            if time.time() - partial.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise unwritable(error) from None
    return folder


def store(dataset: Dataset, arrays: Mapping[str, Array]) -> None:
    """Write verified arrays to the cache."""
    make_folder(dataset)
    for prepared in dataset.arrays:
        try:
            with replacing(path_of(dataset, prepared)) as temporary, temporary.open("wb") as file:
                np.save(file, np.ascontiguousarray(arrays[prepared.name]), allow_pickle=False)
        except OSError as error:
            raise unwritable(error) from None


def unwritable(error: OSError) -> DataError:
    """Return the error of a failed write to the cache."""
    return DataError(
        f"cannot write the cache {cache_folder()} ({error.strerror}). "
        f"Set {VARIABLE} to a writable folder with 250 MB of free space"
    )
