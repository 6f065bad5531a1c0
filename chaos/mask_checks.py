"""What must hold with secure aggregation, checked by somebody who knows all masks and plays a home server that cheats.

One seed in ten has clients that mask their updates. They are drawn apart from all other faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

import spyker.protocol.masked_client as masked_client
from spyker.privacy.fixed_point import Residues
from spyker.privacy.mask_helper import Asked, HelpError, MaskHelper
from spyker.privacy.masking import LEVELS, MaskedSum, MaskedSums, MaskingSetup
from spyker.privacy.seals import STATEMENT_BYTES, Opener, Sealed, SealError, Statement
from spyker.sim.sim_process import SimDisk
from spyker.sim.sim_seals import SimOpener, SimSealer

SEEDS, CHOSEN = 20, (11, 18)  # of twenty seeds, those that end like this
CLIENTS, THRESHOLD = 5, 3  # clients of each server
ALGORITHMS = ("stride", "hierfavg")
OPEN = SimOpener.open


def is_masked(seed: int) -> bool:
    """Return whether the clients of a seed mask their updates."""
    return seed % SEEDS in CHOSEN


def masking(servers: int) -> MaskingSetup:
    """Return the settings of servers that help each other."""
    helpers = {i: tuple((i + j) % servers for j in range(1, servers)) for i in range(servers)}
    return MaskingSetup(THRESHOLD, helpers, frozenset(), SimOpener)


class MaskChecks:
    """Watches the helpers, clients, sums and disks of one world."""

    def __init__(self, fail: Callable[[str], None], finished: Callable[[MaskedSums, bytes], None]) -> None:
        """Begin to watch.

        Args:
            fail: is told what is wrong.
            finished: is told of each sum that a home server uses, by its masks.

        """
        self.fail, self.finished = fail, finished
        self.sets: dict[bytes, frozenset[bytes]] = {}  # by seed: those that it was opened with
        self.drawn: set[bytes] = set()  # seeds of updates
        self.clear: set[bytes] = set()  # updates that are not masked
        self.openings = 0

    def watching(self) -> ExitStack:
        """Return a context in which all is watched."""
        opened, encoded, write = MaskHelper.masks, masked_client.encode_update, SimDisk.write
        seal, subtract, finish = SimSealer.seal, MaskedSums.subtract, MaskedSums.finish

        def masks(helper: MaskHelper, home: int, asked: Asked, count: int) -> Residues:
            self._cheat(helper, home, asked)
            total = opened(helper, home, asked, count)
            self._opened(helper, home, asked)
            return total

        def encode(difference: Any, *rest: Any) -> tuple[Residues, Residues]:
            coded, extra = encoded(difference, *rest)
            if coded.any():
                alone = coded * np.uint32(LEVELS)  # in a sum
                self.clear |= {coded.tobytes(), alone.tobytes(), np.asarray(difference).tobytes()}
            return coded, extra

        def sealed(sealer: SimSealer, statement: Statement, count: int) -> Sealed:
            made = seal(sealer, statement, count)
            seed = made.seal.tobytes()[STATEMENT_BYTES : STATEMENT_BYTES + 32]
            if seed in self.drawn:
                self.fail(f"client {statement.client} uses the seed of a mask twice")
            self.drawn.add(seed)
            return made

        def written(disk: SimDisk, checkpoint: Any) -> None:
            self.look("a checkpoint", checkpoint.vectors)
            write(disk, checkpoint)

        def subtracts(sums: MaskedSums, number: int, masks: Residues, extra: Residues) -> bool:
            self.finished(sums, masks.tobytes() + extra.tobytes())
            return subtract(sums, number, masks, extra)

        def finishes(sums: MaskedSums) -> MaskedSum:
            total = finish(sums)
            if sums.opened:
                self.fail("a home server uses a sum for two rounds")
            return total

        context = ExitStack()
        for owner, name, watched in (
            (MaskHelper, "masks", masks),
            (masked_client, "encode_update", encode),
            (SimSealer, "seal", sealed),
            (SimDisk, "write", written),
            (MaskedSums, "subtract", subtracts),
            (MaskedSums, "finish", finishes),
        ):
            context.enter_context(patch.object(owner, name, watched))
        return context

    def look(self, where: str, vectors: Mapping[str, Any]) -> None:
        """Compare arrays with all updates."""
        for name, array in vectors.items():
            if array.tobytes() in self.clear:
                self.fail(f"{where} shows an update in clear, as {name}")

    def _opened(self, helper: MaskHelper, home: int, asked: Asked) -> None:
        self.openings += 1
        own: Opener = SimOpener(helper._id)
        try:
            found = [OPEN(own, seal) for seal in asked.seals]  # type: ignore[arg-type]
        except SealError as error:
            self.fail(f"helper {helper._id} opens a seal that is not in order: {error}")
            return
        seeds = frozenset(each.seed for each in found)
        clients = {each.statement.client for each in found}
        if len(clients) < THRESHOLD or len(seeds) < len(found):
            self.fail(f"helper {helper._id} opens a sum of {len(clients)} clients and {len(seeds)} seeds")
        if home == helper._id or any(each.statement.home != home for each in found):
            self.fail(f"helper {helper._id} opens a sum that is not for home {home}")
        for seed in seeds:
            if self.sets.setdefault(seed, seeds) != seeds:
                self.fail(f"helper {helper._id} opens a seed in a second set")
        self._must_refuse(helper, home, asked, "the same set again")
        if len(clients) > THRESHOLD:
            self._must_refuse(helper, home, part(asked, slice(1, None)), "the set without one client")

    def _cheat(self, helper: MaskHelper, home: int, asked: Asked) -> None:
        """Ask for what must be refused, as a home server could that does not keep to the protocol."""
        forged = bytearray(asked.seals[0])
        forged[STATEMENT_BYTES] ^= 1
        halves = [asked.bounds[0] / 2, *asked.bounds[1:]]
        for what, cheating in (
            ("fewer clients than the threshold", part(asked, slice(0, THRESHOLD - 1))),
            ("a seal with a changed seed", asked._replace(seals=[bytes(forged), *asked.seals[1:]])),
            ("another bound than a client states", asked._replace(bounds=halves)),
            ("another scale than clients state", asked._replace(scale=asked.scale - 1)),
            ("the same update twice", part(asked, slice(0, None), twice=True)),
        ):
            self._must_refuse(helper, home, cheating, what)
        self._must_refuse(helper, home + 1, asked, "seals for another home")

    def _must_refuse(self, helper: MaskHelper, home: int, asked: Asked, what: str) -> None:
        try:
            helper._check(home, asked)
        except HelpError:
            return
        self.fail(f"helper {helper._id} would open {what}")


def part(asked: Asked, chosen: slice, *, twice: bool = False) -> Asked:
    """Return a request for some of the updates, the first of them perhaps twice."""
    extra = 1 if twice else 0

    def some(each: Sequence[Any]) -> list[Any]:
        return [*list(each)[chosen], *list(each)[:extra]]

    return asked._replace(
        times=some(asked.times), weights=some(asked.weights), bounds=some(asked.bounds), seals=some(asked.seals)
    )
