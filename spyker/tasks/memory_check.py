"""Whether a world fits into this machine's memory: a question to ask before it is made."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.errors import UsageError

CLIENT_BYTES = 800  # of an emulated client, whatever it learns: measured with the task quadratic, 8 parameters
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def check_memory(at_once: Sequence[Scenario]) -> None:
    """Refuse worlds that cannot exist here at the same time, however little their task needs."""
    clients = sum(scenario.client_count for scenario in at_once)
    needed, there = clients * CLIENT_BYTES, machine_bytes()
    if needed > there:
        runs = "" if len(at_once) == 1 else f" in {len(at_once)} runs at once"
        raise UsageError(
            "world.clients",
            f"adds up to {clients:,}{runs}, which take at least {needed / 2**30:,.0f} GiB of memory, and this machine "
            f"has {there / 2**30:,.1f} GiB",
            f"Emulate at most {there // CLIENT_BYTES:,} clients at a time",
        )


def machine_bytes() -> int:
    """The memory that this process may have at most."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such limit here, or "max"
            sizes.append(int(Path(limit).read_text("ascii")))
    return min(sizes)
