"""Which client spoils sums: smaller groups after a spoilt sum, and a suspicion of each client that follows from them.

A server that adds masked updates up does not see which of them was garbage. It sees that a sum is *spoilt*: larger than
its clients can cause together. From then on it assigns its clients to disjoint groups of at least ``threshold`` before
their updates arrive, and each group has a sum of its own. Sums that are sound count. The groups change after each
round, in a way that no client can predict, so that an offender is in spoilt sums with ever different clients.

The suspicion of a client is the probability that it is an offender, by Bayes' rule, as if clients were independent. A
client in a spoilt sum with others that are under suspicion already is hardly suspected for it. So several offenders are
found, one after the other, and so is one that spoils only some of its sums.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

LEAST = 0.01  # suspicion of a client that nothing is known about, and of one whose sums are sound
FORGIVING = 0.5  # an offender's sum is sound with this probability
BEYOND_DOUBT = 0.9  # suspicion from which on a client is excluded,
AHEAD = 4.0  # if its odds are this multiple of those of the others in its spoilt sum
ON_PROBATION = 0.5  # suspicion of a client that was excluded before
QUIET = 12  # openings without a spoilt sum after which there is one group again
MOST_GROUPS = 32  # each has a sum as large as the model
SPARE = -1  # the group of clients that are left out, if there are too few for two groups


class OffenderSearch:
    """The suspicions of a server, and the groups of its clients."""

    def __init__(self) -> None:
        self.suspicion: dict[int, float] = {}  # of clients that are suspected more than others
        self.groups: dict[int, int] = {}  # by client; empty: all clients are in one
        self.count = 1  # number of groups
        self.quiet = 0  # openings since the last spoilt sum
        self.outcomes: list[tuple[tuple[int, ...], bool]] = []  # sums of this opening: their clients; whether spoilt
        self.key = ""  # that groups are drawn with: follows from masks, which clients do not know

    @property
    def searching(self) -> bool:
        """Whether clients are in groups."""
        return bool(self.groups)

    def group(self, client: int) -> int:
        """Return the group of a client. One that has just come is in any."""
        if not self.searching:
            return 0
        known = self.groups.get(client)
        return self._draw(client) % self.count if known is None else known

    def note(self, clients: Iterable[int], masks: bytes, *, spoilt: bool) -> None:
        """Note a sum that was opened, and masks of it."""
        self.outcomes.append((tuple(sorted(set(clients))), spoilt))
        self.key = hashlib.blake2b(masks, key=bytes.fromhex(self.key), digest_size=16).hexdigest()

    def judge(self, clients: Collection[int], threshold: int) -> list[int]:
        """Change the suspicions after the sums of an opening; return the clients that are offenders beyond doubt.

        Args:
            clients: those that take part; as many as a sum needs are left.
            threshold: fewest clients whose sum is opened.

        """
        outcomes, self.outcomes = self.outcomes, []
        if not outcomes:
            return []
        for members, spoilt in sorted(outcomes, key=lambda outcome: outcome[1]):  # sound ones first
            self._learn(members, spoilt=spoilt)
        spoilt_sums = [members for members, spoilt in outcomes if spoilt]
        self.quiet = 0 if spoilt_sums else self.quiet + 1
        found: set[int] = set()
        for members in spoilt_sums:
            *_, second, first = sorted(map(self._suspicion, members))
            if first >= BEYOND_DOUBT and odds(first) >= AHEAD * odds(second):
                found |= {k for k in members if self._suspicion(k) == first}
        found = set(sorted(found.intersection(clients))[: max(0, len(clients) - threshold)])
        self.suspicion |= dict.fromkeys(found, ON_PROBATION)
        return sorted(found)

    def regroup(self, clients: Collection[int], threshold: int) -> None:
        """Assign clients to groups for the next round, if there was a spoilt sum lately and there are enough of them.

        With fewer than two groups' clients, some are left out in turn.
        """
        self.groups, self.count = {}, 1
        if self.quiet >= QUIET or not self.suspicion or len(clients) <= threshold:
            return
        drawn = sorted(clients, key=lambda k: (self._draw(k), k))
        self.count = max(1, min(MOST_GROUPS, len(drawn) // threshold))
        if self.count == 1:
            self.groups = {k: 0 if place < threshold else SPARE for place, k in enumerate(drawn)}
        else:
            self.groups = {k: place % self.count for place, k in enumerate(drawn)}

    def _suspicion(self, client: int) -> float:
        return self.suspicion.get(client, LEAST)

    def _learn(self, clients: Sequence[int], *, spoilt: bool) -> None:
        before = [self._suspicion(k) for k in clients]
        if not spoilt and max(before) <= LEAST:
            return  # nobody is suspected, as nearly always
        innocent = [math.log1p(-p) for p in before]
        for k, p, own in zip(clients, before, innocent, strict=True):
            if spoilt:
                others = math.exp(math.fsum(innocent) - own)  # probability that no other one is an offender
                after = p / (1.0 - (1.0 - p) * others)
            else:
                after = p * FORGIVING / (1.0 - p * (1.0 - FORGIVING))
            if after > LEAST:
                self.suspicion[k] = min(after, 1.0 - 1e-9)
            else:
                self.suspicion.pop(k, None)

    def _draw(self, client: int) -> int:
        digest = hashlib.blake2b(f"{client}".encode(), key=bytes.fromhex(self.key), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return [self.suspicion, self.groups, self.count, self.quiet, self.outcomes, self.key]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        self.suspicion, self.groups, self.count, self.quiet, self.outcomes, self.key = state


def odds(probability: float) -> float:
    """Return the odds of a probability."""
    return probability / (1.0 - probability)
