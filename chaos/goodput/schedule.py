"""Which server is destroyed and which clients are killed, and when: drawn from a seed."""

from __future__ import annotations

import random
from typing import NamedTuple

MINUTE = 60.0
SERVER, CLIENT = "server", "client"
EARLIEST, LATEST = 5.0, 15.0
"""Seconds of a minute between which its server is destroyed, so that its replacement is back within the minute."""


class Fault(NamedTuple):
    """A process that is killed, ``at`` seconds after the measurement began."""

    at: float
    what: str
    number: int


def schedule(seed: int, minutes: int, servers: int, clients: int, share: float = 0.1) -> list[Fault]:
    """Return the faults of a run in their order.

    Args:
        seed: determines everything.
        minutes: length of the run. In each, one server is destroyed.
        servers: number of servers; with 0 none is destroyed.
        clients: number of clients.
        share: share of the clients that are killed in each minute. Fractions of a client are carried over.

    """
    chance = random.Random(seed)
    faults, due = [], 0.0
    for minute in range(minutes):
        began = minute * MINUTE
        if servers:
            faults.append(Fault(began + chance.uniform(EARLIEST, LATEST), SERVER, chance.randrange(servers)))
        due += share * clients
        killed = int(due + 1e-9)
        due -= killed
        chosen = chance.sample(range(clients), killed)
        faults += [Fault(began + chance.uniform(0.0, MINUTE), CLIENT, client) for client in chosen]
    return sorted(faults)
