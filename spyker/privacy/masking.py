"""Secure aggregation with one message: what the home server adds up, and what the helper opens.

Theory of operation
-------------------
A client adds a mask to its update, in fixed point modulo 2³². The mask follows from a random seed. The client sends the
masked update to its *home* server, together with the seed, sealed for a *helper*: another server. The home server adds
up the masked updates of a round and passes their seals on. The helper opens them and answers with the sum of the
masks, which the home server subtracts. So the home server learns the sum of the updates and the helper learns seeds.

The helper opens a set of seals only if

- every seal is signed by a client of the federation, for this home server and this helper;
- the set comes from at least ``threshold`` clients;
- all updates have the scale, weights and bounds that the home server names: otherwise it could have all but one of them
  encoded or clipped to nothing;
- no client's update can be longer than those of all others together: otherwise the sum would tell much of it;
- none was opened before. For each home server and client the helper remembers the highest serial number that it has
  opened, and opens higher ones only.

So no two sums differ by the update of a single client. The marks are part of the helper's checkpoint, which is on disk
before its answer leaves; the home server's sums and seals are part of its own. After a crash of either, the messages
between them arrive once, as all messages between servers do.

Everything here is pure: :mod:`spyker.protocol.masked_server` sends the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spyker.privacy.batches import TOLERANCE, Batch, merged, restored_batch
from spyker.privacy.fixed_point import LARGEST_SUM, Residues, accumulate, decode, scale_for
from spyker.privacy.masked_scores import FRACTION, MOST_ADDED, WORDS, decode_scores
from spyker.privacy.offenders import SPARE, OffenderSearch
from spyker.privacy.seals import Opener
from spyker.vectors import Vector, length

LEVELS = 16  # a server can weight updates by multiples of 1/LEVELS
NORM, BELOW = 0, 1  # further masked numbers: the weighted norm; 1 if the norm is not above the median
EXTRAS = 2
BELOW_SCALE = 8  # of the second one; LEVELS · 2^8 · 65,536 updates are within the range
HEADROOM = 2  # bits of the scale that are left for bounds that grow
SLACK = 2  # bits by which a scale may be lower than necessary before it is raised
MOST_KEYS = 8  # kinds of batches for which updates are accepted


@dataclass(frozen=True, slots=True)
class MaskingSetup:
    """The settings of secure aggregation, identical for all servers."""

    threshold: int
    """Fewest clients whose sum is opened."""
    helpers: Mapping[int, Sequence[int]]
    """Per home server, the servers that may help it, the nearest first."""
    dedicated: frozenset[int]
    """Servers that do nothing but help."""
    opener: Callable[[int], Opener]
    """Returns what a server opens seals with."""
    scores: bool = False
    """Whether the clients' scores ride along with their updates."""


class Terms(NamedTuple):
    """What a server tells a client about the masking of its next update."""

    helper: int
    scale: int
    """Of the fixed point."""
    bound: float
    """The client clips the norm of its update to this."""
    median: float
    """The estimated median norm."""
    largest: float
    """The number of examples whose weight is 1."""
    scores: int = 0
    """The number of scores that ride along."""


class MaskedSum(NamedTuple):
    """The opened sum of a round's updates Δ, each with its examples d and the multiple a that it counts by."""

    vector: Vector | None
    """Σ a·d·Δ; ``None``: nothing could be opened."""
    weight: float = 0.0
    """Σ a·d."""
    norms: float = 0.0
    """Σ a·d·‖Δ‖."""
    below: float = 0.0
    """The share of updates whose norm was not above the estimated median."""
    clients: tuple[int, ...] = ()
    """The clients whose updates are in it."""
    most: float = 0.0
    """Σ a·d·bound: what ``norms`` is if all updates were clipped."""
    evaluators: int = 0
    """Number of clients whose scores are in it."""
    evaluated: float = 0.0
    """Σ a·t, for scores that are weighted by examples t."""
    scores: Mapping[int, float] = MappingProxyType({})
    """Σ a·t·score, by place of the metric."""


def combined_scores(parts: Sequence[MaskedSum]) -> tuple[int, float, dict[int, float]]:
    """Return number of clients, examples and sums of the scores of several sums, for metrics that all of them have."""
    there = [part for part in parts if part.evaluators]
    places = sorted(set.intersection(*(set(part.scores) for part in there))) if there else []
    sums = {place: math.fsum(part.scores[place] for part in there) for place in places}
    return sum(part.evaluators for part in there), math.fsum(part.evaluated for part in there), sums


def reference_size(sizes: Sequence[int]) -> float:
    """Return the number of examples whose weight is 1: a power of two, so that it seldom changes.

    It is the largest client's size or, if that exceeds the sum of all others, this sum.
    """
    largest = max(sizes, default=1)
    rest = sum(sizes) - largest
    if largest <= rest or not rest:
        return 2.0 ** math.ceil(math.log2(max(1, largest)))
    return 2.0 ** math.floor(math.log2(rest))


class MaskedSums:
    """The home server's side: updates that were received and not opened yet."""

    def __init__(self, size: int, buffers: int, norm: float, limits: Sequence[tuple[float, float]] = ()) -> None:
        """Create empty sums.

        Args:
            size: length of the model.
            buffers: number of buffers at its end.
            norm: a first guess of the norm of updates.
            limits: smallest and largest value of each score that rides along.

        """
        self.batches: dict[tuple[int, int, float, int], Batch] = {}  # by helper, scale, largest size and group
        self.requested: dict[int, Batch] = {}  # by number of the request
        self.next = 1
        self.median = norm or 1.0  # of the updates' norms, estimated
        self.first_median = 0.0  # after the first round; bounds do not fall with estimates below it
        self.scale: int | None = None
        self.issued: dict[tuple[int, int, float], float] = {}  # highest bound that clients were told, by kind of batch
        self.failed: set[int] = set()  # helpers that have not answered in time
        self.opened: list[MaskedSum] = []  # answers of the present opening
        self.opening = False
        self.search = OffenderSearch()
        self._size, self._buffers, self._first_guess, self._limits = size, buffers, self.median, limits

    # --- Terms -------------------------------------------------------------------------------------------------------

    def scale_of(self, bound: float, clients: int) -> int:
        """Return the scale for updates of this bound. It changes seldom: a batch has one scale."""
        most = scale_for(bound, 2 ** math.ceil(math.log2(max(4, clients + 1))) * LEVELS)
        if self.scale is None or not most - HEADROOM - SLACK <= self.scale <= most:
            self.scale = most - HEADROOM
        return self.scale

    def issue(self, terms: Terms) -> None:
        """Remember the terms that a client is told; updates with others are not accepted."""
        key = terms.helper, terms.scale, terms.largest
        before = self.issued.get(key)
        if before is None:
            while len(self.issued) >= MOST_KEYS:
                del self.issued[next(iter(self.issued))]
        self.issued[key] = max(before or 0.0, terms.bound)

    def observe(self, opened: MaskedSum) -> None:
        """Follow the median norm of updates, by the share that is below the estimate (Andrew et al. 2021)."""
        if not opened.weight:
            return
        if not self.first_median:
            self.median = self.first_median = opened.norms / opened.weight or self.median
        else:
            self.median *= math.exp(0.5 * (0.5 - opened.below))

    @property
    def clip_median(self) -> float:
        """The median norm that bounds follow. If they fell with it, they would clip the updates of slow clients."""
        return max(self.first_median, self.median)

    def forget_norms(self) -> None:
        """Estimate the median norm anew, because trainings will be different ones."""
        self.median, self.first_median = self._first_guess, 0.0

    @property
    def extras(self) -> int:
        """How many further numbers an update has."""
        return EXTRAS + len(self._limits) * WORDS

    # --- Updates -----------------------------------------------------------------------------------------------------

    def add(
        self,
        client: int,
        masked: Residues,
        extra: Residues,
        seal: npt.NDArray[np.uint8],
        terms: Terms,
        weight: float,
        times: int,
        evaluated: float = 0.0,
        scores: int = 0,
    ) -> bool:
        """Add a masked update to its batch; return False if there is no room for it, or nobody was told such terms."""
        key = terms.helper, terms.scale, terms.largest
        if terms.bound > self.issued.get(key, 0.0) or (masked.size, extra.size) != (self._size, self.extras):
            return False
        place = *key, self._group(key, client)
        batch = self.batches.get(place)
        room = math.ldexp(terms.bound * weight * times, terms.scale) + times
        if times <= 0 or (batch.used if batch else 0.0) + room > LARGEST_SUM:
            return False
        if batch is None:
            empty = np.zeros(self._size, np.uint32), np.zeros(self.extras, np.uint32)
            batch = self.batches[place] = Batch(*place, *empty)
        accumulate(batch.total, masked, times)
        accumulate(batch.extra, extra, times)
        batch.clients.append(client)
        batch.times.append(times)
        batch.weights.append(weight)
        batch.bounds.append(terms.bound)
        batch.evaluated.append(evaluated)
        batch.scores.append(scores)
        batch.used += room
        batch.lengths.append(seal.size)
        batch.seals += seal.tobytes()
        return True

    def _group(self, key: tuple[int, int, float], client: int) -> int:
        """Return the group for an update. A client's updates are in one: the helper opens them in order only."""
        pending = (group for *of, group in self.batches if tuple(of) == key and self.search.searching)
        return next(
            (group for group in pending if client in self.batches[*key, group].clients), self.search.group(client)
        )

    def close(self, threshold: int) -> Iterator[tuple[int | None, Batch]]:
        """Begin to open what has arrived: yield the batches with the numbers of requests for them.

        A batch that cannot be opened has no number: it has too few clients, or one outweighs the others, also with
        those of all groups. It is dropped. Sealed for an earlier helper or in an earlier scale, it would wait for
        others like it, which will not come.
        """
        self.opening, self.opened = True, []
        # In the order in which clients were told: the helper opens a client's updates in order only.
        places = {key: place for place, key in enumerate(self.issued)}
        batches, self.batches = sorted(self.batches.values(), key=lambda each: (places.get(each.key, -1), each.key)), {}
        for _, groups in groupby(batches, key=lambda each: each.key):
            for batch in merged(list(groups), threshold, SPARE):
                if batch.can_be_opened(threshold):
                    number, self.next = self.next, self.next + 1
                    self.requested[number] = batch
                    yield number, batch
                else:
                    yield None, batch

    def subtract(self, number: int, masks: Residues, extra: Residues) -> bool:
        """Subtract the masks of a request; return False if its sum is larger than honest clients can cause."""
        batch = self.requested.pop(number)
        sound = self._subtract(batch, masks, extra)
        credible = sound and self._add_scores(batch, opened=extra.size > EXTRAS)
        self.search.note(batch.clients, masks[:16].tobytes() + extra.tobytes(), spoilt=not credible)
        return sound

    def _subtract(self, batch: Batch, masks: Residues, extra: Residues) -> bool:
        np.subtract(batch.total, masks, out=batch.total)
        batch.extra[: extra.size] -= extra
        unit = batch.largest / LEVELS
        vector = decode(batch.total, unit, batch.scale)
        norms = float(decode(batch.extra[NORM : NORM + 1], unit, batch.scale)[0])
        count = float(decode(batch.extra[BELOW : BELOW + 1], 1.0, BELOW_SCALE)[0])
        most, rounding = unit * batch.most, unit * math.ldexp(sum(batch.times), -batch.scale)
        limit = TOLERANCE * most + rounding * math.sqrt(self._size)
        parameters = vector[: self._size - self._buffers]
        buffers = vector[self._size - self._buffers :]
        if (
            max(length(parameters), length(buffers)) > limit
            or not -rounding <= norms <= TOLERANCE * most + rounding
            or not -0.5 <= count <= sum(batch.times) + 0.5
        ):
            return False
        below = count / sum(batch.times)
        weight = unit * math.fsum(batch.products)
        self.opened.append(MaskedSum(vector, weight, max(0.0, norms), below, tuple(batch.clients), most))
        return True

    def _add_scores(self, batch: Batch, *, opened: bool) -> bool:
        """Note the scores of the sum that was opened last; return False if they are not possible."""
        there = [bits for bits, weight in zip(batch.scores, batch.evaluated, strict=True) if weight]
        counts = [times * weight for times, weight in zip(batch.times, batch.evaluated, strict=True)]
        if not opened or not there or sum(batch.times) > MOST_ADDED:
            return True
        total, found = math.fsum(counts), dict[int, float]()
        slack = sum(batch.times) / (total * (1 << FRACTION))  # for rounding
        for place, value in enumerate(decode_scores(batch.extra[EXTRAS:])):
            low, high = self._limits[place]
            if not all(bits >> place & 1 for bits in there):
                continue  # somebody has not measured it
            if not low - slack <= value / total <= high + slack:
                return False
            found[place] = value * batch.largest / LEVELS
        clients = len({client for client, weight in zip(batch.clients, batch.evaluated, strict=True) if weight})
        examples = total * batch.largest / LEVELS
        self.opened[-1] = self.opened[-1]._replace(evaluators=clients, evaluated=examples, scores=found)
        return True

    def give_up(self, helper: int | None = None) -> list[Batch]:
        """Drop the requests to a helper, or all; return their batches."""
        numbers = [n for n, batch in self.requested.items() if helper in (None, batch.helper)]
        return [self.requested.pop(n) for n in numbers]

    def finish(self) -> MaskedSum:
        """End the opening, and return the sum of all that was opened."""
        self.opening = False
        parts, self.opened = self.opened, []
        if not parts:
            return MaskedSum(None)
        vector = parts[0].vector
        for part in parts[1:]:
            assert vector is not None
            assert part.vector is not None
            vector = vector + part.vector
        count = sum(len(part.clients) for part in parts)
        return MaskedSum(
            vector,
            math.fsum(part.weight for part in parts),
            math.fsum(part.norms for part in parts),
            math.fsum(part.below * len(part.clients) for part in parts) / count,
            tuple(k for part in parts for k in part.clients),
            math.fsum(part.most for part in parts),
            *combined_scores(parts),
        )

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        batches = [batch.state() for batch in self.batches.values()]
        requested = [[number, batch.state()] for number, batch in self.requested.items()]
        norms = [self.median, self.first_median, self.scale]
        opened = [list(part) for part in self.opened]
        issued = [[*key, bound] for key, bound in self.issued.items()]
        return [batches, requested, self.next, norms, self.failed, opened, self.opening, issued, self.search.state()]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        batches, requested, self.next, norms, self.failed, opened, self.opening, issued, search = state
        self.search.restore(search)
        self.issued = {(helper, scale, largest): bound for helper, scale, largest, bound in issued}
        self.batches = {(*b.key, b.group): b for b in map(restored_batch, batches)}
        self.requested = {number: restored_batch(batch) for number, batch in requested}
        self.median, self.first_median, self.scale = norms
        self.opened = [MaskedSum(*part) for part in opened]
