"""The loader: a dataset's arrays from the first source that has them.

The order: the cache, a folder that the user names, the public address. Whatever the source, the same bytes arrive,
which checksums make sure of; so what the cache holds need not be unpacked again.
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


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""


def find(name: str) -> Dataset:
    """A dataset by its name."""
    if name not in DATASETS:
        raise UsageError("dataset", f"{show(name)} is unknown", suggest(name, DATASETS))
    return DATASETS[name]


def load(name: str) -> dict[str, Array]:
    """The arrays of a dataset, memory-mapped; fetched first if they are not in the cache."""
    dataset = find(name)
    fetch(dataset)
    arrays = cache.open_arrays(dataset)
    if arrays is None:
        raise DataError(f"{name} vanished from the cache {cache.cache_folder()}. Try again")
    return arrays


def data_folder() -> Path | None:
    """The folder that the user named, if any."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        raise UsageError(f"--data-dir ({VARIABLE})", f"{show(chosen)} is no folder", "Name an existing one")
    return Path(chosen)


def fetch(dataset: Dataset, report: Report = silent) -> str | None:
    """See to it that the cache holds a dataset. Returns the source it came from, or None if it was there."""
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
                        raise SourceError(f"has no {prepared.name}")
                    prepared.check(arrays[prepared.name])
            except SourceError as error:
                tried.append(f"{source}: {error}")
                report(f"not from {tried[-1]}", 0, 0)
                continue
            cache.store(dataset, arrays)
            return source
    if folder is None:
        tried.insert(0, f"a folder of yours: none was named (--data-dir or {VARIABLE})")
    tried.insert(1, f"cache {cache.cache_folder()}: not there yet")
    names = ", ".join(file.name for file in dataset.files)
    raise DataError(
        f"{dataset.name} cannot be had. Tried:\n"
        + "".join(f"  - {attempt}\n" for attempt in tried)
        + f"To supply it by hand, put {names} (as they are, or packed as .gz or .xz) into DIR/{dataset.name}/ "
        f"and give --data-dir DIR, or set {VARIABLE}=DIR"
    )


def sources(
    dataset: Dataset, folder: Path | None, scratch: Path
) -> Iterator[tuple[str, Callable[[Report], dict[str, Array]]]]:
    """Who may have a dataset, in the order in which they are asked, the cache excepted."""
    if folder is not None:
        yield f"folder {folder}", partial(from_folder, dataset, folder)
    yield dataset.url, partial(from_url, dataset, scratch)


def whereabouts(dataset: Dataset) -> tuple[bool, str]:
    """Whether a dataset can be used without any network, and where it is."""
    if cache.open_arrays(dataset) is not None:
        return True, f"in the cache, {cache.cache_folder() / dataset.name}"
    folder = data_folder()
    if folder is not None and all(unpack.find(folder / dataset.name, file) for file in dataset.files):
        return True, f"in {folder / dataset.name}, to be unpacked at first use"
    return False, f"not here; to get it: spyker data fetch {dataset.name}"


def verify(dataset: Dataset, report: Report = silent) -> list[tuple[str, str | None]]:
    """Compare everything that is here of a dataset with its checksums: what was looked at, and what is wrong with it.

    An array that fails is removed from the cache, for it can be made again.
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
                wrong += "; removed, it will be made again"
            except OSError as error:
                wrong += f"; remove it ({error.strerror})"
        results.append((str(path), wrong))
    return results


def problem(check: Callable[[], object]) -> str | None:
    """What a check complains about."""
    try:
        check()
    except SourceError as error:
        return str(error)
    return None
