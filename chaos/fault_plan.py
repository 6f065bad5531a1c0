"""What happens to a world: a list of blows that follows from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chaos.attackers import CLIENTS, Attackers, attackers
from chaos.mask_checks import ALGORITHMS, is_masked
from chaos.mask_checks import CLIENTS as MASKED_CLIENTS

LONG, SHORT = (30.0, 75.0), (12.0, 44.0)
"""After so many seconds nothing goes wrong any more; and by then everything must be well again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happens at a time, to somebody, for so long."""

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
    "ghost": 0.35,  # a server that was removed or replaced, or never was a member, keeps talking and forges lists
    "liar": 0.35,  # a member forges lists and reports, and announces epochs and ballots far ahead
}
"""How often a plan has each of them. They follow from random numbers of their own, so that plans stay as they were."""
WEIGHTS = {
    "crash": 5,  # the process is killed, or its machine loses power and unsynced writes; it is restarted after a while
    "destroy": 2,  # with its disk, and replaced
    "restore": 1,  # killed, and restarted from a backup
    "damage": 1,  # killed, and its newest checkpoint is damaged
    "copy": 1,  # a second process begins with a copy of the state
    "remove": 1,  # the server is voted out
    "add": 1,  # one more is announced, and comes
    "cut": 4,  # nothing passes between two servers
    "one-way": 3,  # in one direction
    "isolate": 3,  # of a region
    "region-cut": 1,  # between a server and the clients of a region
    "reset": 3,  # a connection breaks, with everything on its way
    "noise": 3,  # words between servers are lost, doubled and late
    "late": 2,  # everything between two servers takes long
    "stop": 4,  # the process does nothing for a while
    "slow": 2,  # or everything takes it long
    "full-disk": 2,
    "slow-disk": 2,
    "leave": 1,  # a client goes
    "move": 2,  # or turns to another server
    "hostile": 1,  # or sends what is no number, what nobody asked for, and everything twice
}


FULL_SECONDS, FULL_LATELY = 30.0, 10.0
"""In some plans a disk is full in the end, for so long; in the last seconds of it the others must exchange models."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A world, and what happens to it."""

    seed: int
    algorithm: str
    clients: tuple[int, ...]
    drift: tuple[float, ...]
    """How fast each server's clock runs."""
    faults: tuple[Fault, ...]
    last: float = LONG[0]
    """After this second nothing goes wrong any more."""
    end: float = LONG[1]
    """By then everything must be well again."""
    full: int | None = None
    """The disk of this server, one of those with clients, is full from then on, and the others must continue."""
    attackers: Attackers | None = None
    """Clients that attack all the time."""
    masked: bool = False
    """Whether clients mask their updates."""

    @property
    def until(self) -> float:
        """When it is over."""
        return self.end if self.full is None else self.end + FULL_SECONDS

    @property
    def lately(self) -> float:
        """So many seconds before the end everybody must be taking part again."""
        return (self.end - self.last) * 4 / 9


def fault_plan(seed: int, *, short: bool = False) -> FaultPlan:
    """What follows from a seed; ``short``: in little time."""
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
    grave = 0  # servers whose state is lost, one way or another: never more than a minority
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
