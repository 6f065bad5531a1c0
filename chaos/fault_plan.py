"""Fault plans: the faults that a simulated cluster suffers, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chaos.attackers import CLIENTS, Attackers, attackers
from chaos.mask_checks import ALGORITHMS, is_masked
from chaos.mask_checks import CLIENTS as MASKED_CLIENTS

LONG, SHORT = (30.0, 75.0), (12.0, 44.0)
"""Seconds after which no new fault occurs, and seconds after which the cluster must have recovered."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a time. Its numbers select servers or clients; see ``FaultyCluster.inject``."""

    t: float
    what: str
    a: int
    b: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        other = f", {self.b}" if self.what in PAIRS else ""
        return f"{self.t:6.2f} s  {self.what} {self.a}{other}{lasting}"


PAIRS = {"cut", "one-way", "reset", "late", "move", "leave", "add", "hostile"}
LASTING = {
    "crash",
    "cut",
    "one-way",
    "isolate",
    "region-cut",
    "stop",
    "full-disk",
    "slow-disk",
    "slow",
    "noise",
    "late",
    "leave",
    "hostile",
}
ATTACKS = {
    "ghost": 0.35,  # a server that was removed or replaced, or never was a member, sends messages and forged lists
    "liar": 0.35,  # a member forges lists and reports, and announces epochs and ballots far ahead
}
"""Probability of each in a plan. They use a random generator of their own, so that all other faults stay the same."""
WEIGHTS = {
    "crash": 5,  # the process is killed, or its machine loses power and unsynced writes; it is restarted later
    "destroy": 2,  # the server is killed and loses its disk; it is replaced
    "restore": 1,  # killed, and restarted from a backup
    "damage": 1,  # killed, and its checkpoints cannot be read
    "copy": 1,  # a second process starts from a copy of the state
    "remove": 1,  # the server is voted out
    "add": 1,  # one more server is added and started
    "cut": 4,  # the connection between two servers is cut
    "one-way": 3,  # messages from one server to another are held back
    "isolate": 3,  # a region is cut off from all others
    "region-cut": 1,  # a server is cut off from the clients of a region
    "reset": 3,  # a connection breaks; messages in flight are lost
    "noise": 3,  # control messages between servers are lost, duplicated and delayed
    "late": 2,  # all messages between two servers are delayed
    "stop": 4,  # the process is paused
    "slow": 2,  # the process computes slowly
    "full-disk": 2,
    "slow-disk": 2,
    "leave": 1,  # a client leaves and returns
    "move": 2,  # a client moves to another server
    "hostile": 1,  # a client sends NaN, forged tokens and duplicates
}


FULL_SECONDS, FULL_RECOVERY = 30.0, 10.0
"""In some plans a disk is full for this long at the end; the others must be active in the last of these seconds."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A cluster and its faults."""

    seed: int
    algorithm: str
    clients: tuple[int, ...]
    drift: tuple[float, ...]
    """Rate of each server's clock."""
    faults: tuple[Fault, ...]
    last: float = LONG[0]
    """No new fault occurs after this second."""
    end: float = LONG[1]
    """The cluster must have recovered by this second."""
    full: int | None = None
    """Selects a server with clients whose disk is full from ``end`` on; the others must continue."""
    attackers: Attackers | None = None
    """Clients that attack during the whole run."""
    masked: bool = False
    """Whether clients mask their updates."""

    @property
    def until(self) -> float:
        """Second at which the run ends."""
        return self.end if self.full is None else self.end + FULL_SECONDS

    @property
    def recovery_seconds(self) -> float:
        """Seconds before ``end`` in which every server must apply updates and exchange models."""
        return (self.end - self.last) * 4 / 9


def fault_plan(seed: int, *, short: bool = False) -> FaultPlan:
    """Return the plan of a seed; ``short``: with a shorter run."""
    last, end = SHORT if short else LONG
    random = np.random.default_rng((seed, 7))
    servers = int(random.choice([3, 3, 4, 5]))
    algorithm = str(random.choice(["spyker", "spyker", "stride", "stride", "sync-spyker", "hierfavg"]))
    clients = tuple(int(random.integers(1, 3)) for _ in range(servers))
    attack = attackers(seed, servers)
    if attack is not None:
        clients = (CLIENTS,) * servers
    masked = is_masked(seed)
    if masked:
        algorithm = algorithm if algorithm in ALGORITHMS else ALGORITHMS[0]
        clients = (MASKED_CLIENTS,) * servers
    drift = tuple(float(rate) for rate in random.uniform(0.96, 1.05, servers))
    kinds, weights = list(WEIGHTS), np.array(list(WEIGHTS.values()), float)
    faults: list[Fault] = []
    grave = 0  # servers that lose their state: at most a minority
    for t in sorted(random.uniform(2.0, last, int(random.integers(1, 13)))):
        what = str(random.choice(kinds, p=weights / weights.sum()))
        if what in ("destroy", "restore", "damage", "remove", "copy"):
            if grave + 1 > (servers - 1) // 2:
                continue
            grave += 1
        seconds = float(random.exponential(4.0)) + 0.1 if what in LASTING else 0.0
        a = int(random.integers(0, 1000))
        faults.append(Fault(round(float(t), 2) + 0.00123, what, a, int(random.integers(0, 1000)), round(seconds, 1)))
    attacks = np.random.default_rng((seed, 8))
    for what, share in ATTACKS.items():
        t, a, b, happens = attacks.uniform(2.0, last), *attacks.integers(0, 1000, 2), attacks.random() < share
        if happens:
            faults.append(Fault(round(float(t), 2) + 0.00123, what, int(a), int(b)))
    faults.sort(key=lambda fault: fault.t)
    full = int(np.random.default_rng((seed, 17)).integers(0, 4 * 1000))
    filling = full if full < 1000 else None
    return FaultPlan(seed, algorithm, clients, drift, tuple(faults), last, end, filling, attack, masked)
