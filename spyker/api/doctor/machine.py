"""What this machine has to compute with, and where Spyker may write."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spyker.api.doctor.finding import Finding, fine, note, wrong
from spyker.api.doctor.installation import CPU_ONLY
from spyker.engines.start_engine import available_cores
from spyker.errors import UsageError
from spyker.tasks.data import cache
from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.data.load import VARIABLE, data_folder, whereabouts
from spyker.tasks.memory_check import CLIENT_BYTES, machine_bytes

ROOM = 1 << 30  # bytes that ought to be free where data go


def machine() -> Iterator[Finding]:
    """Processors, memory and PyTorch."""
    cores, all_cores = available_cores(), os.cpu_count() or 1
    yield fine("cores", f"{cores} of {all_cores}; as many training processes, unless --workers says otherwise")
    there = machine_bytes()
    yield fine("memory", f"{there / 2**30:.1f} GiB, enough for {there // CLIENT_BYTES:,} emulated clients at most")
    yield torch_build()


def torch_build() -> Finding:
    """Whether PyTorch computes, and for what it was built."""
    try:
        import torch

        right = bool((torch.ones(4, 4) @ torch.ones(4, 4) == 4).all())
    except (ImportError, OSError, RuntimeError) as error:
        return wrong("PyTorch", f"cannot be used ({error})", f"Install it again, {CPU_ONLY}")
    if not right:
        return wrong("PyTorch", f"{torch.__version__} multiplies wrongly", f"Install it again, {CPU_ONLY}")
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    found = f"{torch.__version__} for {built}, {torch.get_num_threads()} threads; a training process uses one"
    if torch.version.cuda and not torch.cuda.is_available():
        return note("PyTorch", f"{found}; there is no GPU that it can use", f"To save gigabytes, install it {CPU_ONLY}")
    return fine("PyTorch", found)


def folders() -> Iterator[Finding]:
    """Where records and data go, and which datasets are here."""
    yield writable("records", Path(), "Go to a folder of yours, or name one with --out")
    yield writable("cache", cache.cache_folder(), f"Set {cache.VARIABLE} to a folder of yours")
    try:
        named = data_folder()
    except UsageError as error:
        yield wrong("data folder", str(error), f"Mend or unset {VARIABLE}")
        return
    if named is not None:
        yield fine("data folder", str(named))
    for dataset in DATASETS.values():
        here, where = whereabouts(dataset)
        what = f"dataset {dataset.name}"
        yield fine(what, where) if here else note(what, "not here", f"If you need it: spyker data fetch {dataset.name}")


def writable(what: str, folder: Path, remedy: str) -> Finding:
    """Whether a folder, or the nearest one above it that exists, can be written to, and how much room is left."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return wrong(what, f"{folder.absolute()} cannot be written ({error.strerror})", remedy)
    free = shutil.disk_usage(there).free
    found = f"{folder.absolute()}, {free / 2**30:,.1f} GiB free"
    return fine(what, found) if free >= ROOM else note(what, found, "Make room, if you need datasets or large models")
