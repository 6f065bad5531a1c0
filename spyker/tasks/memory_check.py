"""Check that an emulation fits into this machine's memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.errors import UsageError

CLIENT_BYTES = 800  # per emulated client without a model; measured with the task quadratic, 8 parameters
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def check_memory(at_once: Sequence[Scenario]) -> None:
    """Raise a ``UsageError`` if the clients of concurrent runs exceed the memory, without counting models."""
    clients = sum(scenario.client_count for scenario in at_once)
    needed, available = clients * CLIENT_BYTES, machine_bytes()
    if needed > available:
        runs = "" if len(at_once) == 1 else f" in {len(at_once)} concurrent runs"
        raise UsageError(
            "world.clients",
            f"{clients:,} in total{runs} is not allowed: they need at least {needed / 2**30:,.0f} GiB of memory, and "
            f"this machine has {available / 2**30:,.1f} GiB",
            f"Emulate at most {available // CLIENT_BYTES:,} clients at a time",
        )


def machine_bytes() -> int:
    """Return the memory limit of this process."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(int(Path(limit).read_text("ascii")))
    return min(sizes)
