"""A server's model in two parts: what all servers have in common, and the server's own progress since.

Theory of operation
-------------------
Between two exchanges a server moves alone. How much of that the other servers would confirm is measured in every
exchange: the *agreement* is the mean cosine between the progress of this server and that of the others, by data. Where
it is near 1 (similar data in every region, a clear direction), own progress is as good as everybody's. Where it is
near 0 (a region knows few labels, or updates are mostly noise), own progress leads away from what the servers have in
common, and the average of all is better than any of them. Progress along the common model itself is left out of all
comparisons: it changes the scale of the model, in which servers agree whatever they learn.

Own progress is harmful where a region fits its own data within a round or two. That takes few clients: a mean of many
different updates is much shorter than each of them. And servers do not agree at once. They exchange momenta, and the
common momentum makes them agree, if a low agreement at the beginning does not turn it off. Above ``FEW_CLIENTS``
clients per round, the first agreement therefore counts in proportion to their number, and later ones ever less so: by
then servers agree, or do not.

So there are three models:

- the *full* one, ``common + progress``: what other servers are told and average;
- the *working* one, ``common + w·progress``, which clients train. With the server's share p of all data,
  ``w = p + (1 − p)·agreement`` is the least-squares prediction of the average progress from the server's own;
- the *published* one, ``common + agreement²·progress``, which is evaluated and exported. Where own progress counts
  little, it is averaged with the common model of the exchange before, as far as the steps between them are noise.

Progress that was sent in an exchange is *pending*; it becomes part of the common model as the other servers' models
arrive. With a single server, and with ``agreement = 1``, all three models are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spyker.protocol.buffers import parameters_only
from spyker.protocol.state import Stateful
from spyker.protocol.weights import Weights
from spyker.vectors import LazyVector, Vector, accumulate, difference, dot, length

REMEMBERED = 4  # exchanges whose models may still arrive
SMOOTHING = 0.5  # how much of the agreement is that of earlier exchanges
AVERAGED = 0.5  # how much of the published model is the common one of the exchange before, at most
STEADIEST = 0.9  # steps of the common model are never taken to be steadier than this
FEW_CLIENTS = 5  # with more of them in a round, a lower agreement is enough at first
FADING = 0.9  # how much of that is left after each exchange
FULL_TRUST = 0.5  # an agreement of this or more is no reason for caution


def agreement_of_regions(agreement: float, clients: int) -> float:
    """Estimate how well regions agree from how well the updates of one region's clients agree.

    From the agreement of N updates follows their mean pairwise cosine, and from that the cosine between means of N (the
    Spearman-Brown formula). The fewer clients there are, the less they tell: one tells nothing.
    """
    n = clients
    cosine = max(0.0, (n * agreement**2 - 1) / (n - 1)) if n > 1 else 0.0
    return min(1.0, 2 * (n - 1) * cosine / (1 + (n - 1) * cosine))


def of_many(agreement: float, clients: int, exchanges: int) -> float:
    """Return how much an agreement between means of this many updates counts, after this many exchanges."""
    return min(1.0, max(1.0, clients / FEW_CLIENTS * FADING**exchanges) * agreement)


class Consensus(Stateful):
    """The parts of one server's model."""

    def __init__(self, initial: Vector, buffers: int) -> None:
        """The last ``buffers`` numbers are buffers: they are averaged, and have no progress."""
        self.common = Weights(initial)
        self.pending = Weights.zeros(initial)  # sent in an exchange that is not complete
        self.fresh = Weights.zeros(initial)  # since the last exchange began
        self.sent: dict[int, Vector] = {}  # what was pending when an exchange began, by its number
        self.shifts: dict[int, float] = {}  # Σ p_j·⟨S_j − S_i, progress⟩ of those heard in it
        self.agreement = 1.0
        self.measured = 0  # number of exchanges in which it was measured
        self.estimates = 0  # number of estimates before that
        self.share = 1.0  # of all data
        self.base = initial  # the common model after the last exchange
        self._base_square: float | None = None  # of its norm
        self.former: Vector | None = None  # the common model after the exchange before; their difference is a *step*
        self.steady = 0.0  # how much of one such step is in the next
        self.compared = False  # two such steps
        self._buffers = buffers

    @property
    def trust(self) -> float:
        """From 0, where own progress is worth nothing before it is averaged, to 1, where it counts in full."""
        return min(1.0, self.agreement / FULL_TRUST)

    def working(self) -> Vector:
        """The model that clients train."""
        return self._with(self.share + (1 - self.share) * self.agreement)

    def published(self, out: Vector | None = None) -> Vector:
        """The model that is evaluated, in ``out`` if it is given."""
        weight = self.agreement**2
        model = self._with(weight, out)
        averaged = AVERAGED * (1 - self.trust) * (1 - max(0.0, self.steady))
        if self.former is not None and self.compared and self.share < 1 and averaged > 0:
            parameters = parameters_only(model, self._buffers)
            accumulate(parameters, difference(self.base, self.former), -averaged)
        if self._buffers and self.share < 1:
            buffers = slice(-self._buffers, None)
            model[buffers] = self.base[buffers] + np.float32(weight) * (model[buffers] - self.base[buffers])
        return model

    @property
    def progress(self) -> Vector:
        """What this server has added to the common model."""
        return self.pending.current + self.fresh.current

    def _with(self, weight: float, out: Vector | None = None) -> Vector:
        """The common model with a part of this server's progress."""
        model = np.add(self.pending.current, self.fresh.current, out)
        model *= np.float32(weight)
        model += self.common.current
        return model

    @property
    def extension(self) -> float:
        """How many times as far to go where own progress counts little: above 1 if the common model moves steadily,
        below 1 if it oscillates.
        """
        steady = 1 / (1 - min(STEADIEST, self.steady))
        return float(steady ** (1 - self.trust))

    @property
    def spread(self) -> float:
        """How many times as long the servers' own progress is as their average."""
        return float((self.share + (1 - self.share) * self.agreement) ** -0.5)

    def advance(self, move: LazyVector, factor: float, buffers: Vector) -> None:
        """Make progress by ``factor · move``; the buffers at the end of ``buffers`` are added to the common model.

        The buffers at the end of ``move`` are zero.
        """
        self.fresh.add(move, factor)
        if self._buffers:
            self.common.add_tail(buffers[-self._buffers :], 1.0)

    def limit(self, norm: float) -> float:
        """Shorten the progress since the last exchange began to a norm. Returns by what factor."""
        now = length(self.fresh.current)
        if now <= norm or now == 0:
            return 1.0
        self.fresh.scale(norm / now)
        return norm / now

    def expect(self, agreement: float, share: float, clients: int = 1) -> None:
        """Assume the mean of estimated agreements until one is measured."""
        if not self.measured:
            self.estimates += 1
            self.agreement += (of_many(agreement, clients, 0) - self.agreement) / self.estimates
            self.share = share

    # --- Exchanges ---------------------------------------------------------------------------------------------------

    def begin_exchange(self, bid: int) -> Vector:
        """Begin exchange number ``bid``: the full model, whose progress is pending from now on."""
        if self.pending.zero:
            self.pending = self.fresh
        else:
            self.pending.add(self.fresh.current, 1.0)
        sent = self.pending.snapshot()
        self.fresh = Weights.zeros(sent)
        self.sent = {b: v for b, v in self.sent.items() if b > bid - REMEMBERED} | {bid: sent}
        self.shifts = {b: s for b, s in self.shifts.items() if b in self.sent} | {bid: 0.0}
        return self.common.current + sent

    def merge(self, bid: int, theirs: Vector, mine: Vector, share: float, own: float) -> None:
        """Add what another server with this ``share`` of all data has; ``own`` is this server's share.

        ``theirs`` and ``mine`` are the two servers' full models as they were when the exchange began.
        """
        sent = self.sent[bid]
        way = difference(*(parameters_only(v, self._buffers) for v in (theirs, mine)))
        self.shifts[bid] += share * dot(way, self._across(sent))
        averaged = min(1.0, share / (1 - own)) if own < 1 else 1.0  # of what is pending
        before = self.common.current[self.common.current.size - self._buffers :].copy()
        self.common.add(difference(theirs, mine), share)
        if self._buffers:  # buffers are averaged, wherever they are by now
            accumulate(before, theirs[-self._buffers :] - before, share)
            self.common.current[-self._buffers :] = before
        self.common.add(sent, averaged)
        if averaged == 1 and self.pending.current is sent:
            self.pending = Weights.zeros(sent)
        else:
            self.pending.add(sent, -averaged)

    def measure(self, bid: int, own: float, clients: int = 1) -> None:
        """All servers of an exchange were heard: how well do they agree, and how steadily does their average move?"""
        square = length(self._across(self.sent[bid])) ** 2
        if square > 0 and own < 1:
            predicted = 1 + self.shifts[bid] / square  # the average progress, along this server's own
            agreement = of_many(max(0.0, (predicted - own) / (1 - own)), clients, self.measured)
            kept = SMOOTHING if self.measured else 0.0
            self.agreement = kept * self.agreement + (1 - kept) * agreement
            self.share = own
            self.measured += 1
        self._follow()

    def _across(self, progress: Vector | LazyVector) -> LazyVector:
        """The part of progress that is orthogonal to the common model."""
        model = parameters_only(self.base, self._buffers)
        progress = LazyVector(model.size, progress.__getitem__)
        if self._base_square is None:
            self._base_square = length(model) ** 2
        if not self._base_square > 0:  # also if it is NaN
            return progress
        factor = np.float32(dot(progress, model) / self._base_square)

        def compute(part: slice) -> Vector:
            along = model[part] * factor
            np.subtract(progress[part], along, along)
            return along

        return LazyVector(model.size, compute)

    def settle(self) -> None:
        """A single server has nobody to wait for: its progress is the common model's."""
        self.common.add(self.progress, 1.0)
        self.pending, self.fresh = Weights.zeros(self.base), Weights.zeros(self.base)
        self._follow()

    def _follow(self) -> None:
        """Compare the last step of the common model with the one before."""
        across = self._across(difference(self.common.current, self.base))
        if self.former is not None:
            last = self._across(difference(self.base, self.former))
            if (before := length(last)) > 0:
                steady = dot(across, last) / before / max(before, length(across))
                self.steady = SMOOTHING * self.steady + (1 - SMOOTHING) * steady
                self.compared = True
        self.former = self.base
        self._set_base(self.common.snapshot())

    def _set_base(self, model: Vector) -> None:
        """Set the common model after the last exchange; its norm is computed when it is needed."""
        self.base, self._base_square = model, None

    def forget(self, bid: int) -> None:
        """All servers of an exchange were heard, and nothing of it is still to come."""
        self.sent.pop(bid, None)
        self.shifts.pop(bid, None)
        if not self.pending.current.any():  # as always with two servers
            self.pending = Weights.zeros(self.base)

    def replace(self, model: Vector) -> None:
        """Go on from another model, with no progress of one's own."""
        self.common.replace(model)
        self.pending, self.fresh = Weights.zeros(model), Weights.zeros(model)
        self.sent, self.shifts = {}, {}
        self._set_base(model)
        self.former, self.steady, self.compared = None, 0.0, False

    # --- A restart ---------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """For a checkpoint."""
        vectors = [self.common, self.pending, self.fresh]
        measured = [self.agreement, self.measured, self.estimates, self.share]
        steps = [self.base, self.former, self.steady, self.compared]
        return [vectors, self.sent, self.shifts, measured, steps]

    def restore(self, kept: Any) -> None:
        """Go on from there."""
        (common, pending, fresh), self.sent, self.shifts, measured, steps = kept
        self.agreement, self.measured, self.estimates, self.share = measured
        base, self.former, self.steady, self.compared = steps
        self._set_base(base)
        self.common.replace(common)
        self.pending.replace(pending)
        self.fresh.replace(fresh)
