"""A checker that knows all masks: no seed is opened twice, no set is too small, and no checkpoint shows an update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

import spyker.protocol.masked_client as masked_client
from spyker.privacy.fixed_point import Residues
from spyker.privacy.mask_helper import Asked, MaskHelper
from spyker.privacy.masking import LEVELS
from spyker.sim.sim_process import SimDisk


class SealChecker:
    """Watches all helpers, clients and disks of simulations."""

    def __init__(self, patch: Any, threshold: int = 3) -> None:
        self.sets: dict[bytes, frozenset[bytes]] = {}  # by seed: the seeds that it was opened with
        self.totals: dict[frozenset[bytes], bytes] = {}
        self.clear: set[bytes] = set()  # updates that are not masked
        self.openings: Counter[int] = Counter()  # by helper
        self.checkpoints = 0
        self.problems: list[str] = []
        masks, encoded, write = MaskHelper.masks, masked_client.encode_update, SimDisk.write

        def watched_masks(helper: MaskHelper, home: int, asked: Asked, count: int) -> Residues:
            total = masks(helper, home, asked, count)
            opened = [helper._opener.open(seal) for seal in asked.seals]
            seeds = frozenset(each.seed for each in opened)
            if len({each.statement.client for each in opened}) < threshold or home == helper._id:
                self.problems.append("the set is too small, or its home is its helper")
            if len(seeds) < len(opened):
                self.problems.append("a seed twice in a set")
            for seed in seeds:
                # A helper that crashed before its answer was saved, and so before it left, opens the same set again.
                if self.sets.setdefault(seed, seeds) != seeds:
                    self.problems.append("a seed was opened in two sets")
            if self.totals.setdefault(seeds, total.tobytes()) != total.tobytes():
                self.problems.append("a set was opened with two sums")
            self.openings[helper._id] += 1
            return total

        def watched_encoding(difference: Any, *rest: Any) -> tuple[Residues, Residues]:
            coded, extra = encoded(difference, *rest)
            if coded.any():
                alone = coded * np.uint32(LEVELS)  # in a sum
                self.clear |= {coded.tobytes(), alone.tobytes(), np.asarray(difference).tobytes()}
            return coded, extra

        def watched_write(disk: SimDisk, checkpoint: Any) -> None:
            self.look(checkpoint.vectors)
            write(disk, checkpoint)

        patch.setattr(MaskHelper, "masks", watched_masks)
        patch.setattr(masked_client, "encode_update", watched_encoding)
        patch.setattr(SimDisk, "write", watched_write)

    def look(self, vectors: Mapping[str, Any]) -> None:
        """Compare all arrays of a checkpoint with all updates."""
        self.checkpoints += 1
        for name, array in vectors.items():
            if array.tobytes() in self.clear:
                self.problems.append(f"{name} is an update in clear")
