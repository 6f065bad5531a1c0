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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spyker.privacy.fixed_point import LARGEST_SUM, Residues, accumulate, decode, scale_for
from spyker.privacy.seals import Opened, Opener, SealError
from spyker.vectors import Vector, length

LEVELS = 16  # a server can weight updates by multiples of 1/LEVELS
NORM, BELOW = 0, 1  # further masked numbers: the weighted norm; 1 if the norm is not above the median
EXTRAS = 2
BELOW_SCALE = 8  # of the second one; LEVELS · 2^8 · 65,536 updates are within the range
HEADROOM = 2  # bits of the scale that are left for bounds that grow
SLACK = 2  # bits by which a scale may be lower than necessary before it is raised
TOLERANCE = 1.001  # of bounds, for rounding
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


@dataclass(slots=True)
class Batch:
    """The masked updates that have the same helper, the same scale and the same weights."""

    helper: int
    scale: int
    largest: float
    total: Residues
    extra: Residues
    clients: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """Multiples of ``1/LEVELS`` with which the updates count."""
    weights: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    """Norms that the updates were clipped to."""
    used: float = 0.0
    """How much of the range the sum can take up at most."""
    lengths: list[int] = field(default_factory=list)
    seals: bytearray = field(default_factory=bytearray)

    @property
    def dominated(self) -> bool:
        """Whether one client outweighs all others together."""
        return outweighs_rest(self.clients, self.reaches)

    @property
    def reaches(self) -> list[float]:
        """The norms that the updates can have in the sum, at most."""
        return [product * bound for product, bound in zip(self.products, self.bounds, strict=True)]

    @property
    def most(self) -> float:
        """Σ a·w·bound: the norm that the sum can have at most."""
        return math.fsum(self.reaches)

    @property
    def products(self) -> list[float]:
        """The weights with which the updates count."""
        return [times * weight for times, weight in zip(self.times, self.weights, strict=True)]

    def state(self) -> list[Any]:
        """Return the state for a checkpoint."""
        about = [self.helper, self.scale, self.largest, self.used]
        numbers = [self.clients, self.times, self.weights, self.bounds, self.lengths]
        return [about, numbers, [self.total, self.extra, np.frombuffer(bytes(self.seals), np.uint8)]]


def restored_batch(state: Any) -> Batch:
    """Return the batch that a checkpoint holds."""
    (helper, scale, largest, used), (clients, times, weights, bounds, lengths), (total, extra, seals) = state
    sums = np.array(total, np.uint32), np.array(extra, np.uint32)
    batch = Batch(helper, scale, largest, *sums, clients, times, weights, bounds, used, lengths)
    batch.seals += np.asarray(seals, np.uint8).tobytes()
    return batch


def outweighs_rest(clients: Sequence[int], reaches: Sequence[float]) -> bool:
    """Return whether the updates of one client may have a larger norm than those of all others together.

    Args:
        clients: the sender of each update.
        reaches: the norm that each update can have in the sum, at most.

    """
    sums: dict[int, float] = {}
    for client, reach in zip(clients, reaches, strict=True):
        sums[client] = sums.get(client, 0.0) + reach
    return 2 * max(sums.values()) > TOLERANCE * sum(sums.values())


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

    def __init__(self, size: int, buffers: int, norm: float) -> None:
        """``size`` and ``buffers`` are those of the model; ``norm`` is a first guess of the norm of updates."""
        self.batches: dict[tuple[int, int, float], Batch] = {}  # by helper, scale and largest size
        self.requested: dict[int, Batch] = {}  # by number of the request
        self.next = 1
        self.median = norm or 1.0  # of the updates' norms, estimated
        self.first_median = 0.0  # after the first round; bounds do not fall with estimates below it
        self.scale: int | None = None
        self.issued: dict[tuple[int, int, float], float] = {}  # highest bound that clients were told, by kind of batch
        self.failed: set[int] = set()  # helpers that have not answered in time
        self.opened: list[MaskedSum] = []  # answers of the present opening
        self.opening = False
        self._size, self._buffers, self._first_guess = size, buffers, self.median

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
    ) -> bool:
        """Add a masked update to its batch; return False if there is no room for it, or nobody was told such terms."""
        key = terms.helper, terms.scale, terms.largest
        if terms.bound > self.issued.get(key, 0.0) or (masked.size, extra.size) != (self._size, EXTRAS):
            return False
        batch = self.batches.get(key)
        room = math.ldexp(terms.bound * weight * times, terms.scale) + times
        if times <= 0 or (batch.used if batch else 0.0) + room > LARGEST_SUM:
            return False
        if batch is None:
            empty = np.zeros(self._size, np.uint32), np.zeros(EXTRAS, np.uint32)
            batch = self.batches[key] = Batch(*key, *empty)
        accumulate(batch.total, masked, times)
        accumulate(batch.extra, extra, times)
        batch.clients.append(client)
        batch.times.append(times)
        batch.weights.append(weight)
        batch.bounds.append(terms.bound)
        batch.used += room
        batch.lengths.append(seal.size)
        batch.seals += seal.tobytes()
        return True

    def close(self, threshold: int) -> Iterator[tuple[int | None, Batch]]:
        """Begin to open what has arrived: yield the batches with the numbers of requests for them.

        A batch that cannot be opened has no number: it has too few clients, or one outweighs the others. It is dropped.
        Sealed for an earlier helper or in an earlier scale, it would wait for others like it, which will not come.
        """
        self.opening, self.opened = True, []
        # In the order in which clients were told: the helper opens a client's updates in order only.
        places = {key: place for place, key in enumerate(self.issued)}
        batches, self.batches = sorted(self.batches.items(), key=lambda item: places.get(item[0], -1)), {}
        for _, batch in batches:
            if len(set(batch.clients)) >= threshold and not batch.dominated:
                number, self.next = self.next, self.next + 1
                self.requested[number] = batch
                yield number, batch
            else:
                yield None, batch

    def subtract(self, number: int, masks: Residues, extra: Residues) -> bool:
        """Subtract the masks of a request; return False if its sum is larger than honest clients can cause."""
        batch = self.requested.pop(number)
        np.subtract(batch.total, masks, out=batch.total)
        np.subtract(batch.extra, extra, out=batch.extra)
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
        )

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        batches = [batch.state() for batch in self.batches.values()]
        requested = [[number, batch.state()] for number, batch in self.requested.items()]
        norms = [self.median, self.first_median, self.scale]
        opened = [list(part) for part in self.opened]
        issued = [[*key, bound] for key, bound in self.issued.items()]
        return [batches, requested, self.next, norms, self.failed, opened, self.opening, issued]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        batches, requested, self.next, norms, self.failed, opened, self.opening, issued = state
        self.issued = {(helper, scale, largest): bound for helper, scale, largest, bound in issued}
        self.batches = {(b.helper, b.scale, b.largest): b for b in map(restored_batch, batches)}
        self.requested = {number: restored_batch(batch) for number, batch in requested}
        self.median, self.first_median, self.scale = norms
        self.opened = [MaskedSum(*part) for part in opened]


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


class MaskHelper:
    """The helper's side: what was opened, and the sums of masks."""

    def __init__(self, id: int, threshold: int, opener: Opener) -> None:
        self.marks: dict[int, dict[int, tuple[int, int]]] = {}  # highest serial that was opened, by home and client
        self._id, self._threshold, self._opener = id, threshold, opener

    def masks(self, home: int, asked: Asked, count: int) -> Residues:
        """Open seals, and return the sum of their masks, ``count`` numbers.

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
        return total

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
