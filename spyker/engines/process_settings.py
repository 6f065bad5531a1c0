"""Settings of a process that trains, or holds models: memory, threads, child processes."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import sys
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # as in <malloc.h>
M_MMAP_MAX, DEFAULT_MAPS = -4, 65536
M_ARENA_MAX, ARENAS = -8, 1
KEPT_BYTES = 32 << 20  # the maximum of M_MMAP_THRESHOLD


def keep_memory() -> None:
    """Make the C library keep memory that training frees, instead of returning it to the kernel after every batch.

    Otherwise page faults take up to a sixth of the time of a small model's training.
    """
    set_malloc(dict.fromkeys((M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD), KEPT_BYTES))


def reuse_memory(*, reuse: bool = True) -> None:
    """Make the C library also reuse large blocks, such as vectors of large models.

    Without ``reuse``, it returns the memory that it has kept.
    """
    trim_memory()
    set_malloc({M_MMAP_MAX: 0 if reuse else DEFAULT_MAPS, M_TRIM_THRESHOLD: -1 if reuse else KEPT_BYTES})


def share_memory() -> None:
    """Make all threads of this process share one memory arena, so that freed memory is reused across threads."""
    set_malloc({M_ARENA_MAX: ARENAS})


def set_malloc(settings: Mapping[int, int]) -> None:
    """Change settings of the C library's memory allocator."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has these settings, and needs them
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for setting, value in settings.items():
            mallopt(setting, value)


def trim_memory() -> None:
    """Return free memory to the system. What is kept is divided by small blocks and fits no large one."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def single_threaded() -> None:
    """Limit torch to one thread, which is faster than oversubscription and keeps the order of sums."""
    if "torch" in sys.modules:  # do not import it for a task without torch
        sys.modules["torch"].set_num_threads(1)


def allow_processes() -> None:
    """Allow a task to start processes in a worker, as DataLoaders do; daemonic processes may not."""
    multiprocessing.current_process().daemon = False
    multiprocessing.set_start_method(None, force=True)  # back to the platform's default
