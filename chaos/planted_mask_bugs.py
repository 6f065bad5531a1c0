"""Deliberately broken secure aggregation, for seeds whose clients mask their updates; see :mod:`chaos.planted_bugs`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chaos.planted_bugs import Bug
from spyker.privacy.fixed_point import Residues
from spyker.privacy.mask_helper import Asked, MaskHelper
from spyker.privacy.masking import MaskedSum, MaskedSums
from spyker.privacy.seals import STATEMENT_BYTES, Opened, Sealed, Statement, unpack
from spyker.protocol.masked_server import MaskedServer
from spyker.sim.sim_seals import SimOpener, SimSealer, mask_of


def seeds_are_reused(patch: pytest.MonkeyPatch) -> None:
    """A client draws a seed once, and masks all updates with it."""
    seal = SimSealer.seal

    def lazy(self: SimSealer, statement: Statement, count: int) -> Sealed:
        first = seal(self, replace(statement, training=0), count).seal.tobytes()
        seed = first[STATEMENT_BYTES : STATEMENT_BYTES + 32]
        made = seal(self, statement, count).seal.copy()
        made[STATEMENT_BYTES : STATEMENT_BYTES + 32] = np.frombuffer(seed, np.uint8)
        return Sealed(made, mask_of(seed, count))

    patch.setattr(SimSealer, "seal", lazy)


def updates_are_not_masked(patch: pytest.MonkeyPatch) -> None:
    """A client sends its update in clear, with a seal."""
    seal = SimSealer.seal

    def bare(self: SimSealer, statement: Statement, count: int) -> Sealed:
        return Sealed(seal(self, statement, count).seal, np.zeros(count, np.uint32))

    patch.setattr(SimSealer, "seal", bare)


def one_client_fewer_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A helper opens a set that is one client smaller than the threshold."""
    check = MaskHelper._check

    def generous(self: MaskHelper, home: int, asked: Asked) -> list[Opened]:
        threshold, self._threshold = self._threshold, self._threshold - 1
        try:
            return check(self, home, asked)
        finally:
            self._threshold = threshold

    patch.setattr(MaskHelper, "_check", generous)


def what_was_opened_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A helper opens an update again, in any set."""
    masks = MaskHelper.masks

    def forgetful(self: MaskHelper, home: int, asked: Asked, count: int) -> Residues:
        total = masks(self, home, asked, count)
        self.marks.clear()
        return total

    patch.setattr(MaskHelper, "masks", forgetful)


def an_update_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """A helper compares an update with earlier sets only, and opens a set that has it twice."""
    check = MaskHelper._check

    def trusting(self: MaskHelper, home: int, asked: Asked) -> list[Opened]:
        new = [place for place, seal in enumerate(asked.seals) if seal not in asked.seals[:place]]
        times, seals = [asked.times[p] for p in new], [asked.seals[p] for p in new]
        weights, bounds = [asked.weights[p] for p in new], [asked.bounds[p] for p in new]
        return check(self, home, asked._replace(times=times, weights=weights, bounds=bounds, seals=seals))

    patch.setattr(MaskHelper, "_check", trusting)


def unsigned_seals_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """A helper does not verify signatures."""

    def trusting(self: SimOpener, seal: bytes) -> Opened:
        return Opened(unpack(seal[:STATEMENT_BYTES]), seal[STATEMENT_BYTES : STATEMENT_BYTES + 32])

    patch.setattr(SimOpener, "open", trusting)


def stating(self: MaskHelper, asked: Asked) -> list[Statement]:
    """Return what the clients of a request have stated."""
    return [self._opener.open(seal).statement for seal in asked.seals]


def any_bound_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """A helper does not compare bounds: a home server could have all but one update clipped to nothing."""
    check = MaskHelper._check

    def careless(self: MaskHelper, home: int, asked: Asked) -> list[Opened]:
        if not _changed(self, asked):
            asked = asked._replace(bounds=[said.bound for said in stating(self, asked)])
        return check(self, home, asked)

    patch.setattr(MaskHelper, "_check", careless)


def any_scale_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """A helper does not compare scales."""
    check = MaskHelper._check

    def careless(self: MaskHelper, home: int, asked: Asked) -> list[Opened]:
        if not _changed(self, asked):
            asked = asked._replace(scale=stating(self, asked)[0].scale)
        return check(self, home, asked)

    patch.setattr(MaskHelper, "_check", careless)


def _changed(helper: MaskHelper, asked: Asked) -> bool:
    """Return whether a seal is not in order."""
    try:
        stating(helper, asked)
    except ValueError:
        return True
    return False


def other_homes_are_helped(patch: pytest.MonkeyPatch) -> None:
    """A helper opens updates for whoever asks."""
    check = MaskHelper._check

    def helpful(self: MaskHelper, home: int, asked: Asked) -> list[Opened]:
        return check(self, home if _changed(self, asked) else stating(self, asked)[0].home, asked)

    patch.setattr(MaskHelper, "_check", helpful)


def a_server_helps_itself(patch: pytest.MonkeyPatch) -> None:
    """A home server names itself as the helper, and could read all updates."""
    patch.setattr(MaskedServer, "helper", lambda self: self.id)


def sums_are_used_again(patch: pytest.MonkeyPatch) -> None:
    """A home server keeps the sums of a round for the next one."""
    finish = MaskedSums.finish

    def hoarding(self: MaskedSums) -> MaskedSum:
        before = list(self.opened)
        total = finish(self)
        self.opened = before
        return total

    patch.setattr(MaskedSums, "finish", hoarding)


BUGS = [
    Bug(seeds_are_reused, 11, "uses the seed of a mask twice"),
    Bug(updates_are_not_masked, 11, "shows an update in clear"),
    Bug(one_client_fewer_is_enough, 11, "would open fewer clients than the threshold"),
    Bug(what_was_opened_is_forgotten, 11, "would open the same set again"),
    Bug(an_update_counts_twice, 11, "would open the same update twice"),
    Bug(unsigned_seals_are_accepted, 11, "would open a seal with a changed seed"),
    Bug(any_bound_is_accepted, 11, "would open another bound than a client states"),
    Bug(any_scale_is_accepted, 11, "would open another scale than clients state"),
    Bug(other_homes_are_helped, 11, "would open seals for another home"),
    Bug(a_server_helps_itself, 11, "names itself as its helper"),
    Bug(sums_are_used_again, 11, "uses a sum for two rounds"),
]
