"""The helper of secure aggregation: it opens seals, under conditions, and returns sums of masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spyker.privacy.batches import outweighs_rest
from spyker.privacy.fixed_point import Residues, accumulate
from spyker.privacy.masking import LEVELS
from spyker.privacy.seals import Opened, Opener, SealError


class HelpError(ValueError):
    """A request that the helper refuses."""

    def __init__(self, reason: str, places: Sequence[int] = ()) -> None:
        """``places`` are the indices of the seals that are the reason."""
        super().__init__(reason)
        self.places = tuple(places)


class Asked(NamedTuple):
    """What a home server asks a helper to open. All sequences have an entry per update."""

    scale: int
    largest: float
    times: Sequence[int]
    """Multiples with which the updates count."""
    weights: Sequence[float]
    bounds: Sequence[float]
    seals: Sequence[bytes]
    words: int = 0
    """How many of the numbers, the last ones, belong to scores."""


class MaskHelper:
    """The helper's side: what was opened, and the sums of masks."""

    def __init__(self, id: int, threshold: int, opener: Opener) -> None:
        self.marks: dict[int, dict[int, tuple[int, int]]] = {}  # highest serial that was opened, by home and client
        self._id, self._threshold, self._opener = id, threshold, opener

    def masks(self, home: int, asked: Asked, count: int) -> Residues:
        """Open seals, and return the sum of their masks, ``count`` numbers.

        Those of scores are missing unless as many clients as a sum needs have sent some, and no client's weigh more
        than those of all others together.

        Args:
            home: the server that asks.
            asked: the seals, and what the home server takes their clients to have stated.
            count: length of the masks.

        Raises:
            HelpError: nothing was opened.

        """
        opened = self._check(home, asked)
        marks = self.marks.setdefault(home, {})
        for each in opened:
            marks[each.statement.client] = each.statement.serial
        total = np.zeros(count, np.uint32)
        for each, factor in zip(opened, asked.times, strict=True):
            accumulate(total, self._opener.mask(each.seed, count), factor)
        return total if self._scores_can_be_opened(opened, asked.times) else total[: count - asked.words]

    def _scores_can_be_opened(self, opened: Sequence[Opened], times: Sequence[int]) -> bool:
        parts = [(each.statement.client, each.statement.evaluated * n) for each, n in zip(opened, times, strict=True)]
        clients = [client for client, weight in parts if weight]
        return len(set(clients)) >= self._threshold and not outweighs_rest(clients, [w for _, w in parts if w])

    def _check(self, home: int, asked: Asked) -> list[Opened]:
        count = len(asked.seals)
        if {len(asked.times), len(asked.weights), len(asked.bounds)} != {count}:
            raise HelpError("the request is incomplete")
        if any(not 1 <= factor <= LEVELS for factor in asked.times):
            raise HelpError(f"a multiple that is not allowed; they are 1 to {LEVELS}")
        if home == self._id:
            raise HelpError("a server cannot help itself")
        opened: list[Opened] = []
        wrong: dict[int, str] = {}  # all of them, so that their clients spoil one sum and not several
        latest = dict(self.marks.get(home, {}))
        for place, seal in enumerate(asked.seals):
            try:
                each = self._opener.open(seal)
            except SealError as error:
                wrong[place] = str(error)
                continue
            said = each.statement
            stated = said.weight, said.bound, said.scale, said.largest
            if (said.home, said.helper) != (home, self._id):
                wrong[place] = f"it is for home {said.home} and helper {said.helper}"
            elif stated != (asked.weights[place], asked.bounds[place], asked.scale, asked.largest):
                wrong[place] = f"client {said.client} has stated another weight, bound or scale"
            elif said.serial <= latest.get(said.client, (-1, -1)):
                wrong[place] = f"this update of client {said.client}, or a later one, was opened before"
            else:
                latest[said.client] = said.serial
                opened.append(each)
        if wrong:
            place, reason = next(iter(wrong.items()))
            raise HelpError(f"seal {place}: {reason}", list(wrong))
        clients = [each.statement.client for each in opened]
        if len(set(clients)) < self._threshold:
            raise HelpError(f"{len(set(clients))} clients; at least {self._threshold} are needed")
        products = zip(asked.times, asked.weights, asked.bounds, strict=True)
        if outweighs_rest(clients, [factor * weight * bound for factor, weight, bound in products]):
            raise HelpError("one client outweighs all others together")
        return opened

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return [[home, [[k, *serial] for k, serial in sorted(marks.items())]] for home, marks in self.marks.items()]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        self.marks = {home: {k: (life, training) for k, life, training in marks} for home, marks in state}
