"""The loader, which returns a dataset's arrays from the first source that has them.

The sources are, in this order: the cache, the user's data folder, the public address. Checksums ensure that all
sources give the same bytes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from spyker.config.sections import show
from spyker.config.suggest import suggest
from spyker.errors import DataError, UsageError
from spyker.tasks.data import cache, unpack
from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.data.dataset import Array, Dataset, Report, SourceError
from spyker.tasks.data.sources import from_folder, from_url

VARIABLE = "SPYKER_DATA"


def no_report(action: str, done: int, total: int) -> None:
    """Ignore progress."""


def find(name: str) -> Dataset:
    """Return the dataset with this name.

    Raises:
        UsageError: the name is unknown.

    """
    if name not in DATASETS:
        raise UsageError("dataset", f"{show(name)} is unknown", suggest(name, DATASETS))
    return DATASETS[name]


def load(name: str) -> dict[str, Array]:
    """Return the arrays of a dataset, memory-mapped, after fetching them if necessary.

    Raises:
        DataError: no source has the dataset, or the cache cannot be written.

    """
    dataset = find(name)
    fetch(dataset)
    arrays = cache.open_arrays(dataset)
    if arrays is None:
        raise DataError(f"{name} was removed from the cache {cache.cache_folder()} meanwhile. Try again")
    return arrays


def data_folder() -> Path | None:
    """Return the data folder that the user chose, if any."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        raise UsageError(f"--data-dir ({VARIABLE})", f"{show(chosen)} is not a folder", "Give an existing folder")
    return Path(chosen)


def fetch(dataset: Dataset, report: Report = no_report) -> str | None:
    """Store a dataset in the cache.

    Args:
        dataset: the dataset.
        report: progress callback.

    Returns:
        The source, or ``None`` if the cache already had the dataset.

    Raises:
        DataError: no source has the dataset, or the cache cannot be written.

    """
    folder = data_folder()
    if cache.open_arrays(dataset) is not None:
        return None
    tried = []
    with tempfile.TemporaryDirectory(prefix=cache.PARTIAL, dir=cache.make_folder(dataset)) as scratch:
        for source, get in sources(dataset, folder, Path(scratch)):
            try:
                arrays = get(report)
                for prepared in dataset.arrays:
                    if prepared.name not in arrays:
                        raise SourceError(f"the array {prepared.name} is missing")
                    prepared.check(arrays[prepared.name])
            except SourceError as error:
                tried.append(f"{source}: {error}")
                report(f"failed: {tried[-1]}", 0, 0)
                continue
            cache.store(dataset, arrays)
            return source
    if folder is None:
        tried.insert(0, f"data folder: none is set (--data-dir or {VARIABLE})")
    tried.insert(1, f"cache {cache.cache_folder()}: not found")
    names = ", ".join(file.name for file in dataset.files)
    raise DataError(
        f"{dataset.name}: download failed. Tried:\n"
        + "".join(f"  - {attempt}\n" for attempt in tried)
        + f"To provide it yourself, put {names} (plain, .gz or .xz) into DIR/{dataset.name}/ "
        f"and give --data-dir DIR, or set {VARIABLE}=DIR"
    )


def sources(
    dataset: Dataset, folder: Path | None, scratch: Path
) -> Iterator[tuple[str, Callable[[Report], dict[str, Array]]]]:
    """Yield the sources of a dataset other than the cache, with names, in order."""
    if folder is not None:
        yield f"folder {folder}", partial(from_folder, dataset, folder)
    yield dataset.url, partial(from_url, dataset, scratch)


def location(dataset: Dataset) -> tuple[bool, str]:
    """Return whether a dataset is available offline, and a description of where it is."""
    if cache.open_arrays(dataset) is not None:
        return True, f"in the cache, {cache.cache_folder() / dataset.name}"
    folder = data_folder()
    if folder is not None and all(unpack.find(folder / dataset.name, file) for file in dataset.files):
        return True, f"in {folder / dataset.name}, unpacked on first use"
    return False, f"not downloaded; run: spyker data fetch {dataset.name}"


def verify(dataset: Dataset, report: Report = no_report) -> list[tuple[str, str | None]]:
    """Verify the local files of a dataset against their checksums, and delete damaged arrays from the cache.

    Args:
        dataset: the dataset.
        report: progress callback.

    Returns:
        The path of each file that was checked, with the problem or ``None``.

    """
    results: list[tuple[str, str | None]] = []
    folder = data_folder()
    for file in dataset.files if folder is not None else ():
        assert folder is not None
        path = unpack.find(folder / dataset.name, file)
        if path is not None:
            report(f"verifying {path}", 0, 0)
            results.append((str(path), problem(partial(unpack.read, path, file))))
    arrays = cache.open_arrays(dataset)
    for prepared in dataset.arrays if arrays is not None else ():
        assert arrays is not None
        path = cache.path_of(dataset, prepared)
        report(f"verifying {path}", 0, 0)
        wrong = problem(partial(prepared.check, arrays[prepared.name]))
        if wrong is not None:
            try:
                path.unlink(missing_ok=True)
                wrong += "; deleted from the cache"
            except OSError as error:
                wrong += f"; cannot delete it ({error.strerror})"
        results.append((str(path), wrong))
    return results


def problem(check: Callable[[], object]) -> str | None:
    """Return the ``SourceError`` of a check, as text, or ``None``."""
    try:
        check()
    except SourceError as error:
        return str(error)
    return None
