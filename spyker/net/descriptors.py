"""The budget of file descriptors: connections of strangers must not take those that a checkpoint needs."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from spyker.net.first_bytes import CLIENTS, PEERS, WEBSOCKET
from spyker.net.json_log import JsonLog
from spyker.net.server_config import ServerConfig

RESERVED = 16  # for a checkpoint, the record, operators' commands and the metrics port
LEAST = 4  # connections at a port
PER_SERVER = 4  # two connections to another server, and their successors


def raise_limit() -> int:
    """Raise the limit of open descriptors as far as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def open_descriptors() -> int:
    """Return the number of open descriptors, or an estimate where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 32


def connection_limits(config: ServerConfig, servers: int, log: JsonLog) -> dict[str, int]:
    """Return the maximum number of connections of each service, with a warning if descriptors limit it.

    The limits leave room for reconnections, while the old connection still closes, for status requests, and for
    strangers.
    """
    deploy, scenario = config.deploy, config.scenario
    from_clients = deploy.max_connections or 512 + 4 * scenario.client_count
    wanted = {CLIENTS: from_clients, PEERS: 256 + 8 * servers if servers else 0}  # each server has two connections
    if deploy.listen_websocket is not None:
        wanted[WEBSOCKET] = from_clients
    limit = raise_limit()
    most = affordable(wanted, servers, limit, open_descriptors())
    if most != wanted:
        log.warning("descriptor-limit", descriptors=limit, connections=most, wanted=wanted)
    return most


def affordable(wanted: Mapping[str, int], servers: int, limit: int, used: int) -> dict[str, int]:
    """Return how many connections each port may have, given the limit of descriptors and how many are in use.

    Args:
        wanted: how many connections each port would have without the limit.
        servers: number of other servers, to which this one connects.
        limit: limit of descriptors.
        used: number of descriptors that are in use.

    """
    free, total = limit - used - RESERVED - PER_SERVER * servers, sum(wanted.values())
    if total <= free:
        return dict(wanted)
    return {port: max(LEAST, free * count // total) for port, count in wanted.items()}
