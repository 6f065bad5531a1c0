"""Check that an emulation fits into this machine's memory."""

from __future__ import annotations

from collections.abc import Sequence

from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.untrusted_files import machine_bytes

CLIENT_BYTES = 800  # per emulated client without a model; measured with the task quadratic, 8 parameters


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
