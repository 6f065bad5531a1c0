"""The world of a scenario: regions, clients, links, and what goes wrong in them."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.parameters import parameter

# One-way latencies in milliseconds between four regions of a cloud provider, rows = from (the paper's Tab. 4).
PAPER_LATENCY: dict[str, dict[str, float]] = {
    "Hongkong": {"Hongkong": 1.41, "Paris": 194.9, "Sydney": 132.28, "California": 155.13},
    "Paris": {"Hongkong": 197.91, "Paris": 0.9, "Sydney": 278.83, "California": 142.25},
    "Sydney": {"Hongkong": 132.06, "Paris": 280.11, "Sydney": 2.56, "California": 138.47},
    "California": {"Hongkong": 154.96, "Paris": 142.79, "Sydney": 138.57, "California": 2.14},
}
CLIENTS_PER_REGION = 25


@dataclass(frozen=True, slots=True)
class Outage:
    """A network partition that isolates a region."""

    region: int = parameter(0, "number of the region, from 0", at_least=0)
    start: float = parameter(0.0, "start in virtual seconds", at_least=0)
    seconds: float = parameter(5.0, "duration in virtual seconds", above=0)


@dataclass(frozen=True, slots=True)
class AdversaryOptions:
    """Clients that send falsified updates."""

    share: float = parameter(0.1, "fraction of all clients; the seed selects them", at_least=0, at_most=1)
    kind: str = parameter(
        "sign-flip",
        "what adversaries send: huge, 1e30 in every element; sign-flip, the negated update; noise, a random direction; "
        "boost, the update as trained; pull, a step towards a fixed wrong model; size, the same step, claimed to be of "
        "2**31 examples; rate, the same step, without training and so at once",
        choices=("huge", "sign-flip", "noise", "boost", "pull", "size", "rate"),
    )
    strength: float = parameter(1.0, "all kinds but huge: the norm as a multiple of the honest update's norm", above=0)
    clients: tuple[int, ...] | None = parameter(None, "numbers of the adversaries, in place of a share", at_least=0)


@dataclass(frozen=True, slots=True)
class Geography:
    """Regions, clients and links: the keys of ``[world]``."""

    regions: tuple[str, ...] = parameter(tuple(PAPER_LATENCY), "names of the regions")
    clients: tuple[int, ...] | None = parameter(None, "number of clients in each region", at_least=1)
    client_names: tuple[str, ...] | None = parameter(
        None, "names of the clients, in the order of their numbers; unset: client-0, client-1, …"
    )
    latency_ms: tuple[tuple[float, ...], ...] | None = parameter(
        None, "matrix of one-way latencies between regions in ms, rows = from; diagonal: within a region", at_least=0
    )
    uniform_latency: bool = parameter(False, "true: replace all latencies, including the diagonal, by their mean")
    bandwidth_mbit: float = parameter(100.0, "bandwidth of each link in Mbit/s", above=0)
    server_region: int = parameter(0, "region of a single server or the cloud", at_least=0)
    mix_ms: float = parameter(
        2.0, "time in ms that a server needs to mix in an update or another server's model", at_least=0
    )
    average_ms: float = parameter(15.0, "time in ms of the aggregation at the end of a round", at_least=0)
    outage: Outage | None = parameter(
        None,
        "{ region, start, seconds }: network partition between a region and all others; connections are restored one "
        "second after its end; emulation only",
    )
    adversaries: AdversaryOptions | None = parameter(
        None,
        "{ share, kind, strength, clients }: clients that send falsified updates; kinds: huge, sign-flip, noise, "
        "boost, pull, size, rate; emulation only",
    )


def fill_world(world: Geography) -> Geography:
    """Check that regions, clients and latencies are consistent; fill in the paper's values."""
    count = len(world.regions)
    if count == 0:
        raise UsageError("world.regions", "must not be empty", 'Name at least one region, such as ["Paris"]')
    if len(set(world.regions)) < count:
        raise UsageError(
            "world.regions", f"{show(world.regions)} is not allowed: a region occurs twice", "Use distinct names"
        )
    clients = (CLIENTS_PER_REGION,) * count if world.clients is None else world.clients
    if len(clients) != count:
        raise UsageError(
            "world.clients", f"has {len(clients)} entries for {count} regions", "Give one number per region"
        )
    latency = world.latency_ms
    if latency is None:
        unknown = [name for name in world.regions if name not in PAPER_LATENCY]
        if unknown:
            raise UsageError(
                "world.latency-ms",
                f"is missing, and there is no default for region {unknown[0]!r}",
                f"Give a {count} × {count} matrix of one-way latencies",
            )
        latency = tuple(tuple(PAPER_LATENCY[a][b] for b in world.regions) for a in world.regions)
    if len(latency) != count:
        raise UsageError("world.latency-ms", f"has {len(latency)} rows for {count} regions", "Give one row per region")
    for i, row in enumerate(latency):
        if len(row) != count:
            raise UsageError(
                f"world.latency-ms[{i}]", f"has {len(row)} entries for {count} regions", "Give one per region"
            )
    outage_region = 0 if world.outage is None else world.outage.region
    for key, region in (("world.server-region", world.server_region), ("world.outage.region", outage_region)):
        if region >= count:
            raise UsageError(key, f"{region} is not allowed", f"Regions are numbered from 0 to {count - 1}")
    return replace(world, clients=clients, latency_ms=latency)


def place_clients(world: dict[str, Any], total: int) -> tuple[str, ...]:
    """Set the clients of each region, and return the regions that are left out.

    If no regions are set, there are at most as many regions as clients.
    """
    if isinstance(total, bool) or not isinstance(total, int):
        raise UsageError(
            "clients", f"{show(total)} is not allowed: it must be an integer", "Give the total number of clients"
        )
    if total < 1:
        raise UsageError("--clients", f"{total} is not allowed: a run needs a client", "Give at least 1")
    left_out: tuple[str, ...] = ()
    if total < len(PAPER_LATENCY) and not {"regions", "latency-ms"} & world.keys():
        world["regions"] = list(PAPER_LATENCY)[:total]
        left_out = tuple(PAPER_LATENCY)[total:]
    regions = world.get("regions", PAPER_LATENCY)
    world["clients"] = split_clients(total, len(regions) if isinstance(regions, Sized) else 0)
    return left_out


def split_clients(total: int, regions: int) -> list[int]:
    """Spread clients over regions as evenly as possible; the first regions get the remainder."""
    if total < max(1, regions):
        raise UsageError(
            "--clients",
            f"{total} is not allowed: each of the {max(1, regions)} regions needs a client",
            f"Give at least {max(1, regions)}, or name fewer regions (world.regions)",
        )
    return [total // regions + (i < total % regions) for i in range(regions)]


def latency_seconds(world: Geography) -> Sequence[Sequence[float]]:
    """Return the effective latency matrix in seconds."""
    assert world.latency_ms is not None
    matrix = [[ms / 1000 for ms in row] for row in world.latency_ms]
    if not world.uniform_latency:
        return matrix
    mean = math.fsum(map(math.fsum, matrix)) / len(matrix) ** 2
    return [[mean] * len(matrix) for _ in matrix]
