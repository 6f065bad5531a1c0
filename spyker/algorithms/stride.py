"""Stride: our own algorithm. Rounds with momentum in every region, and servers that average without waiting.

Theory of operation
-------------------
Clients send the difference Δ_k between the model that they trained and the one that they were given. A server works in
rounds with the clients of its region. A round ends when all clients have answered, or when it has lasted ``patience``
times as long as the faster half took. A late update counts in the round in which it arrives.

At the end of a round the server takes a step along the mean of the updates, with Nesterov momentum:

    d = Σ d_k·Δ_k / Σ d_k,    m ← μ·m + d,    step = c·(d + μ·m)

The second sum is over all clients, also missing ones: with fewer updates the step is shorter. The server clips the norm
of each update to ``clip`` times the median norm of the last rounds, or of the first round if that is more. (If the
limit decreased with the updates of clients that have nothing left to learn, it would exclude slow clients.) The less
servers agree, the looser the limit: among few clients with different data, clipping distorts the average.

Momentum and gain extend a steady direction c/(1 − μ) times. Two rules bound that:

- A step goes no farther than the updates describe; see :mod:`~spyker.algorithms.reach`.
- A server's own progress counts by how well it agrees with that of the other servers; see
  :mod:`~spyker.algorithms.consensus`. Where it does not agree at all, momentum is off, updates of models from before
  the last exchange are dropped, and every exchange averages one round of each region: FedAvg, without a central server.

As a last resort the server compares the norms of updates with those of the last good model, and restores that model if
training has diverged, without momentum and with half the gain; see :mod:`~spyker.algorithms.stride_divergence`.

A learning rate can be so large that the very first trainings diverge. If the median norm of the first updates is more
than ``divergence_threshold`` times that of the model, the server repeats the first round with half the rate.

Servers exchange models and momenta; see :mod:`~spyker.algorithms.stride_exchange`, and for many servers
:mod:`~spyker.algorithms.stride_tree`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from spyker.algorithms.consensus import agreement_of_regions
from spyker.algorithms.stride_divergence import DivergenceDetector
from spyker.algorithms.stride_exchange import (
    EXCHANGE,
    FIRST_TIMEOUT,
    FULL_ROUND,
    NO_CLIENTS,
    TIMEOUT_FACTOR,
    ExchangingServer,
)
from spyker.algorithms.stride_messages import ExchangeModel, ExchangeRequest, ExchangeResult, StrideBootstrap, Token
from spyker.algorithms.stride_parameters import StrideParameters
from spyker.algorithms.stride_rate import StartingRate
from spyker.placement import Topology
from spyker.privacy.masking import MaskedSum, reference_size
from spyker.protocol.buffers import parameters_only, without_buffers
from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import ModelRestored, RateHalved, RateRestored, RoundEnded, UpdateApplied
from spyker.protocol.masked_server import MASKING_MESSAGES
from spyker.protocol.messages import Action, ClientMessage, Join, Leave, MaskedUpdate, Model, PeerMessage, Update
from spyker.protocol.server import Server, Setup, Work, epoch_of
from spyker.protocol.state import ServerState
from spyker.protocol.weights import Weights
from spyker.vectors import Vector, is_finite, length, scaled_sum

MEDIAN_ROUNDS, MEDIAN_UPDATES = 8, 1024  # the running median is over this many rounds and updates, at most
ROUND, CLIENTS_WAIT = "round", "idle"  # timers
NO_UPDATE_PERIOD = 0.1  # seconds between two checks while no client answers, at least
MOST_RESTORED = 4  # times that a model is restored, at most
LOOSEST = 5.0  # multiple of ``clip`` where servers do not agree
MOSTLY_CLIPPED = 0.9  # mean norm of masked updates, as a share of the bound, from which on most were clipped
UNCLIPPED = 8.0  # multiple of the median norm that masked updates are clipped to if they are not to be clipped


class Stride(ExchangingServer):
    """A server that has clients."""

    topology = Topology.FLAT
    Parameters: ClassVar[type[Any]] = StrideParameters
    parameters: StrideParameters
    client = DeltaClient
    receives: ClassVar[tuple[type[PeerMessage], ...]] = (ExchangeModel, Token, ExchangeRequest, ExchangeResult)
    bootstrap = StrideBootstrap

    @classmethod
    def build(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """Create a server that exchanges all to all, or through a tree if there are many servers."""
        from spyker.algorithms.stride_tree import StrideTree  # which imports this module

        return (StrideTree if setup.servers > setup.parameters.tree_threshold else Stride)(id, setup, roster)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        if setup.parameters.safe and len(roster) < 2:
            self.consensus.expect(0.0, 1 / setup.servers)
        self.sizes = dict(roster)  # d_k
        # The round.
        self.sum = Weights.zeros(setup.weights)  # Σ d_k·Δ_k
        self.weight = 0.0  # Σ d_k
        self.weighted_norms = 0.0  # Σ d_k·‖Δ_k‖, clipped and weighted by trust
        self.fresh = 0.0  # Σ d_k, weighted by trust
        self.norms: list[float] = []  # ‖Δ_k‖
        self.answered: dict[int, tuple[int, float]] = {}  # staleness and trust of the update, by client
        self.in_sum: dict[int, tuple[int, float]] = {}  # the same, of masked updates whose sum is being opened
        self.weight_of_sum = 0.0  # Σ d_k of these
        self.half_answered = False  # the timer for the other half runs
        self.idle: set[int] = set()  # clients without a task
        self.waiting = False  # idle clients wait for the end of an exchange
        self.round = 0  # number of rounds that have ended
        self.pace = 0.0  # seconds that the faster half took in the last round
        # Norms of updates.
        self.recent_norms: list[float] = []  # of the last rounds
        self.median_norm = self.first_median_norm = 0.0  # at the end of the last round, and of the first
        initial_norm = length(parameters_only(setup.weights, setup.buffers))  # ‖W⁰‖
        by_norms = setup.client_privacy is None  # with noise, norms of single updates decide nothing
        self.starting_rate = StartingRate(by_norms * setup.parameters.divergence_threshold * initial_norm)
        self.divergence = DivergenceDetector(setup.weights)
        self.restored = 0  # number of times a model was restored
        self._buffers = setup.buffers
        self._round_began = setup.now()

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Process a message."""
        match message:
            case Update() | MaskedUpdate() if sender in self.sizes and self.sums_updates:
                self.add_summed_update(sender, message)
            case Update() if sender in self.sizes:
                self.add_update(sender, message)
            case Join():
                self.sizes[sender] = message.size
                if sender not in self.answered | self.in_sum | dict.fromkeys(
                    self.idle
                ):  # otherwise the end of the round does
                    self.send_client(sender, self.model(self.rate))
            case Leave():
                self.sizes.pop(sender, None)  # its update, if there is one, still counts
                self.idle.discard(sender)
                self.check_round()
                if not self.learns:
                    self.merge_deferred()
                self.check_exchange()
            case PeerMessage() if sender not in self.ring:
                pass  # from a server that is no longer a member
            case ExchangeModel():
                self.merge(sender, message)
            case Token() if epoch_of(message.bid) == self.epoch:  # otherwise it has been replaced
                self.receive_token(message)

    def resize(self, k: int, size: int) -> None:
        """Set a client's number of data points."""
        if k in self.sizes:
            self.sizes[k] = size

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Return the cost class: an average for the last update of a round, a mix for another server's model."""
        if isinstance(message, MASKING_MESSAGES):
            return super().work(sender, message)
        match message:
            case Update() if self.sizes.keys() <= self.answered.keys() | {sender}:
                return Work.AVERAGE
            case ExchangeModel():
                return Work.MIX
        return Work.NOTHING

    def work_of(self, timer: str) -> Work:
        """Return the cost class: an average for the end of a round."""
        return Work.AVERAGE if timer == ROUND and self.answered and not self.masks else Work.NOTHING

    def expired(self, timer: str) -> None:
        """Continue without the clients or servers that are missing."""
        if timer == EXCHANGE:
            self.exchange_overdue()
        elif timer == CLIENTS_WAIT:
            self.overdue = self.latest
            self.check_idle()
        elif timer == NO_CLIENTS:
            self.rounds = self.rounds if self.learns else self.parameters.exchange_rounds
            self.check_exchange()
        elif len(self.answered) >= self.fewest_clients:
            self.complete_round()
        else:
            self.merge_deferred()
            self.start_round_timer(NO_UPDATE_PERIOD)

    # --- Rounds ------------------------------------------------------------------------------------------------------

    def start(self) -> Iterator[Action]:
        """Return the first actions: send W⁰ to every client; without clients, start the timer of the token."""
        self._round_began = self._now()
        if not self.learns:
            self.check_exchange()  # if it holds the token, the others wait for it
        return itertools.chain(super().start(), self._taken())

    def add_update(self, k: int, update: Update) -> None:
        """Clip Δ_k and add it to the sum, weighted by the trust in updates of such a model."""
        self.sizes[k] = update.examples or self.sizes[k]
        norm = length(parameters_only(update.weights, self._buffers))
        norm = math.inf if math.isnan(norm) else norm
        self.recent_norms.append(norm)
        self.norms.append(norm)
        limit = self.parameters.clip * (self.median_norm or statistics.median(self.recent_norms))
        limit /= max(1 / LOOSEST, self.consensus.trust)
        clipped = limit / norm if 0 < limit < norm else 1.0
        trusted = self.consensus.trust if update.version <= self.old_version else 1.0
        if math.isfinite(norm) or is_finite(update.weights):  # otherwise it counts for the median alone
            self.sum.add(update.weights, self.sizes[k] * clipped * trusted)
            self.weighted_norms += self.sizes[k] * clipped * trusted * norm if math.isfinite(norm) else 0.0
        self.weight += self.sizes[k]
        self.fresh += self.sizes[k] * trusted
        self.answered[k] = max(0, self.version - update.version), trusted
        self.check_round()

    def add_summed_update(self, k: int, update: Update | MaskedUpdate) -> None:
        """Add an update to a sum that is opened or gets noise, weighted by the trust in updates of such a model.

        One that arrives while a sum is being opened counts in the next round.
        """
        trusted = self.consensus.trust if update.version <= self.old_version else 1.0
        trusted = self.add_to_sum(k, update, trusted)
        self.weight += min(self.sizes[k], update.weight * update.largest) if isinstance(update, MaskedUpdate) else 1.0
        self.answered[k] = max(0, self.version - update.version), trusted
        self.check_round()

    def check_round(self) -> None:
        """End the round if all clients have answered. If half of them have, start the timer for the others."""
        if self.opening:
            return
        answered = len(self.answered.keys() & self.sizes.keys())
        if answered == len(self.sizes) >= self.fewest_clients:
            self.complete_round()
        elif 2 * answered >= len(self.sizes) and answered >= self.fewest_clients and not self.half_answered:
            self.half_answered, self.pace = True, self._now() - self._round_began
            self.start_timer(ROUND, (self.parameters.patience - 1) * self.pace)

    def start_round_timer(self, least: float = 0.0) -> None:
        """Limit the time of a round in which not even half of the clients answer, by the pace of the last round."""
        if self.pace > 0:
            self.start_timer(ROUND, max(least, 2 * self.parameters.patience * self.pace))

    def complete_round(self) -> None:
        """End the round. If updates are masked or get noise, their sum comes first."""
        if self.sums_updates:
            if not self.opening:
                self.stop_timer(ROUND)
                self.in_sum, self.answered, self.half_answered = self.answered, {}, False
                self.weight_of_sum, self.weight = self.weight, 0.0
                self.sum_updates()
        else:
            self.end_round()

    def summed(self, total: MaskedSum) -> None:
        """Go on with the sum of the round's updates, or without a step if it could not be opened."""
        later, weight_later = self.answered, self.weight
        counted = set(total.clients)
        self.answered = {k: (old, trust if k in counted else 0.0) for k, (old, trust) in self.in_sum.items()}
        self.in_sum = {}
        self.weight, self.weight_of_sum = self.weight_of_sum, 0.0
        if total.vector is None:
            self.reset_sum(self.sum.snapshot())
            self.begin_round()
        else:
            self.sum, self.fresh, self.weighted_norms = Weights(total.vector), total.weight, total.norms
            self.norms = [self.typical_norm(total)]
            self.recent_norms += self.norms * len(total.clients)
            self.end_round()
        self.answered |= later
        self.weight += weight_later
        self.check_round()

    def typical_norm(self, total: MaskedSum) -> float:
        """Return the norm of a typical update of a sum: the mean, or the estimated median if most were clipped.

        The mean of clipped norms is lower than the median; the estimate follows norms that fall fast too slowly.
        """
        mean = total.norms / total.weight
        if self.masked_sums is None or self.noisy_sums is not None:
            return mean
        return max(mean, self.masked_sums.median) if total.norms > MOSTLY_CLIPPED * total.most else mean

    def update_bound(self, median: float) -> float:
        """Return the norm that clients clip masked updates to."""
        assert self.masked_sums is not None
        clip = self.parameters.clip if self.masked_sums.first_median else 0.0
        return float(median * (clip / max(1 / LOOSEST, self.consensus.trust) or UNCLIPPED))

    def reference_size(self) -> float:
        """Return the number of examples whose weight is 1."""
        return reference_size(list(self.sizes.values()))

    def end_round(self) -> None:
        """Take the round's step, and start the next round."""
        if self.first_round_diverged():
            self.repeat_first_round()
            return
        if not self.first_median_norm and self.starting_rate.was_futile(len(self.answered)):
            self.starting_rate.halved = 0
            self.record(RateRestored(self.id, self.current_rate))
        missing = sum(size for k, size in self.sizes.items() if k not in self.answered)
        whole = self.whole_weight(self.weight + missing)
        self.sum.scale(1 / whole)  # missing clients count as zero
        step = self.sum.snapshot()  # d
        norm = statistics.median(self.norms)
        if self.diverged(norm):
            self.restore_good_model(norm)
        else:
            self.move(step, whole, norm)
        self.reset_sum(step)
        del self.recent_norms[: -min(MEDIAN_ROUNDS * max(1, len(self.sizes)), MEDIAN_UPDATES)]
        self.median_norm = max(self.first_median_norm, statistics.median(self.recent_norms))
        self.first_median_norm = self.first_median_norm or self.median_norm
        self.record_updates(1.0)
        self.round += 1
        self.rounds += self.fresh / whole
        self.fresh = 0.0
        self.record(RoundEnded(self.id, self.round))
        if self.trusted:  # clients need not wait for an exchange that begins now
            self.begin_round()
        if self.rounds >= FULL_ROUND:
            self.merge_deferred()
        self.check_exchange()
        if self.answered:
            self.begin_round()

    def move(self, step: Vector, whole: float, norm: float) -> None:
        """M ← μ·m + d,  step = c·(d + μ·m), bounded; ``norm`` is the median norm of the round's updates."""
        c, mu = self.gain, self.parameters.momentum
        self.keep_published()
        self.averaged = len(self.answered)
        mean = without_buffers(step, self._buffers)
        safe, shortened = self.parameters.safe, 1.0
        if safe:
            if self.weighted_norms > 0:
                agreement = min(1.0, self.signal(mean) * whole / self.weighted_norms)
                self.step_reach.observe(mean, agreement, min(norm, self.median_norm or norm), self.working)
                estimate = agreement_of_regions(agreement, self.averaged)
                self.consensus.expect(estimate, 1 / self.n, self.averaged)
            mu *= self.consensus.trust
        self.momentum.scale(mu)
        self.momentum.add(mean, 1.0)
        move = scaled_sum(mean, c, self.momentum.current, c * mu)
        if safe:
            reach = self.step_reach
            extended = reach.extended(self.consensus.extension, self.consensus.spread)
            distance, bound = extended * length(move), max(reach.bound, extended * reach.plain)
            shortened = bound / distance if distance > bound else 1.0
            self.consensus.advance(move, extended * shortened, step)
            if self.consensus.agreement < 1:
                limit = reach.between_exchanges(self.consensus.agreement, extended)
                shortened *= self.consensus.limit(limit)
            if self.n == 1:
                self.consensus.settle()
                reach.exchanged()
        else:
            self.consensus.advance(move, 1.0, step)
        if shortened < 1:
            self.momentum.scale(math.sqrt(shortened))
        self.publish()

    @property
    def gain(self) -> float:
        """c, halved for each time that a model was restored."""
        return float(self.parameters.gain / 2**self.restored)

    def reset_sum(self, like: Vector) -> None:
        """Begin the sum of the next round's updates."""
        self.sum, self.weight, self.weighted_norms = Weights.zeros(like), 0.0, 0.0
        self.norms.clear()

    def record_updates(self, weight: float) -> None:
        """Record the updates of the round as applied."""
        for k, (staleness, trusted) in self.answered.items():
            self.age += 1
            self.version += 1
            fact = UpdateApplied(self.id, k, staleness, weight * trusted, self.age, self.version, self.current_rate)
            self.record(fact)

    def begin_round(self) -> None:
        """Give the new model to clients that have answered, now or when the exchange under way ends."""
        self.stop_timer(ROUND)
        self.idle |= self.answered.keys()
        self.answered, self.half_answered = {}, False
        if self.waits:
            self.waiting = True
            took = max(self.lasted, self._now() - self._round_began)
            self.start_timer(CLIENTS_WAIT, min(TIMEOUT_FACTOR * took, FIRST_TIMEOUT) or FIRST_TIMEOUT)
        else:
            self.old_version = min(self.old_version, self.version - 1)  # an exchange may have ended just now
            self.send_models()

    def send_models(self) -> None:
        """Give the new model to idle clients."""
        if not self.idle:
            return
        if self.waiting:
            self.waiting = False
            self.stop_timer(CLIENTS_WAIT)
        model = self.model(self.rate)
        for k in sorted(self.idle & self.sizes.keys()):
            self.send_client(k, model)
        self.idle = set()
        self._round_began = self._now()
        self.start_round_timer()

    def check_idle(self) -> None:
        """Give idle clients the new model if they need not wait for an exchange."""
        if self.idle and not self.waits:
            self.old_version = self.version - 1  # their updates will be of the new common model
            self.send_models()

    def model(self, rate: float) -> Model:
        """Return the model that clients train, with the current rate."""
        return Model(self.working, self.age, self.version, self.current_rate)

    # --- Divergence --------------------------------------------------------------------------------------------------

    def diverged(self, norm: float) -> bool:
        """Return whether training has diverged and a model is to be restored."""
        if not self.parameters.safe or self.restored == MOST_RESTORED:
            return False
        return self.divergence.observe(norm, self.median_norm, self.weights)

    def restore_good_model(self, norm: float) -> None:
        """Restore the last good model, reset the momentum and halve the gain."""
        self.restored += 1
        self.record(ModelRestored(self.id, norm, self.divergence.good_norm, self.gain))
        good = self.divergence.restored()
        self.consensus.replace(good)
        self.momentum = Weights.zeros(good)
        self.exchange_models, self.deferred, self.merged = {}, [], set()  # these are of the model that diverged
        self.old_version = self.version
        self.publish()
        if self.exchanging:
            self.pass_token()
        self.check_idle()

    def first_round_diverged(self) -> bool:
        """Return whether the median norm of the first updates is above its limit."""
        return self.handles_nonfinite and self.starting_rate.diverged(self.recent_norms)

    @property
    def handles_nonfinite(self) -> bool:
        """True until the first round has ended: it may be repeated with half the rate."""
        return not self.first_median_norm and self.starting_rate.may_halve

    def repeat_first_round(self) -> None:
        """Halve the rate and repeat the first round."""
        self.starting_rate.halve(self.recent_norms)
        self.record(RateHalved(self.id, statistics.median(self.recent_norms), self.current_rate))
        self.reset_sum(self.sum.current)
        self.fresh = 0.0
        self.recent_norms.clear()
        if self.masked_sums is not None:
            self.masked_sums.forget_norms()
        self.record_updates(0.0)
        self.begin_round()

    @property
    def current_rate(self) -> float:
        """The clients' learning rate, halved for each time that the first round was repeated."""
        return self.starting_rate.of(self.rate)

    # --- Checkpoints and new servers ---------------------------------------------------------------------------------

    def restore(self, state: ServerState) -> None:
        """Restore a saved state."""
        super().restore(state)
        self._working = None

    def bootstrap_state(self) -> StrideBootstrap:
        """Return the state for a new server: the model, its momentum, and what is known about norms and agreement."""
        agreement = self.consensus.agreement
        return StrideBootstrap(
            self.weights.snapshot(),
            self.momentum.snapshot(),
            self.age,
            self.median_norm,
            self.starting_rate.halved,
            agreement,
        )

    def bootstrap_from(self, bootstrap: StrideBootstrap) -> None:
        """Start from another server's state."""
        super().bootstrap_from(bootstrap)
        self.consensus.replace(bootstrap.weights)
        self.consensus.expect(bootstrap.agreement, 1 / self.n)
        self._working = None
        self.momentum.replace(bootstrap.momentum)
        self.median_norm = self.first_median_norm = bootstrap.median_norm
        self.starting_rate.halved = bootstrap.halved
