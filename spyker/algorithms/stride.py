"""Stride: our own algorithm. Rounds with momentum in every region, and servers that average without waiting.

Theory of operation
-------------------
Clients send the difference Δ_k between the model they trained and the one they were given. A server works in rounds
with its own clients, who are near. A round ends when all have answered, or when it has lasted ``patience`` times as
long as the faster half took. A late update counts in the round in which it arrives.

At the end of a round the server takes a step along the mean of the updates, with Nesterov momentum:

    d = Σ d_k·Δ_k / Σ d_k,    m ← μ·m + d,    step = c·(d + μ·m)

The second sum is over all clients, also those that are missing: with fewer updates the step is shorter. The norm of
each update is clipped to ``clip`` times the median norm of the last rounds, or of the first round if that is more. (If
the limit shrank with the updates of clients that have nothing left to learn, it would shut out slow clients.) The less
servers agree, the looser the limit: among few clients with different data, clipping distorts the average.

Momentum and gain extend a steady direction c/(1 − μ) times. Two rules keep that within what the server has seen:

- A step goes no farther than the updates describe; see :mod:`~spyker.algorithms.reach`.
- A server's own progress counts by how well it agrees with that of the other servers; see
  :mod:`~spyker.algorithms.consensus`. Where it does not agree at all, momentum is off, updates of models from before
  the last exchange are dropped, and every exchange averages one round of each region: FedAvg, without a central server.

As a last resort the server compares the norms of updates with those of the last model that was good. If they are many
times as large for several rounds, it restores that model, without momentum and with half the gain.

A learning rate can be so large that the very first trainings diverge. Where the median norm of the first updates is
more than ``too_far`` times that of the model, the first round is repeated with half the rate.

Servers exchange models and momenta as in Spyker. One *token* circulates; its holder starts exchange number ``bid`` once
it has had ``every`` rounds since the last one. A server that first hears of a ``bid`` remembers its state, S, and sends
it to all. What arrives is merged as a difference to S:

    W ← W + p_j·(W_j − S.W),    m ← m + p_j·(m_j − S.m)

with p_j, server j's share of all data. So a merge takes back nothing of what a server learnt while the models were
under way, and Σ p_i·W_i is the same before and after.

Where servers do not agree, averaging is what makes progress, and nobody waits for the token: every server starts the
next exchange as soon as it has heard all others and finished a round since, and a server that hears of an exchange
takes part when it has finished a round of its own. Meanwhile its clients wait: what they would train is not the model
that the exchange yields.

For many servers, n·(n − 1) models are too many: see :mod:`~spyker.algorithms.stride_tree`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from spyker.algorithms.consensus import REMEMBERED, Consensus
from spyker.algorithms.reach import Reach
from spyker.algorithms.stride_messages import (
    ExchangeModel,
    ExchangeRequest,
    ExchangeResult,
    StrideBootstrap,
    Token,
)
from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.buffers import parameters_only, without_buffers
from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import (
    EarlySyncStarted,
    Merged,
    ModelRestored,
    RateHalved,
    RoundEnded,
    SyncStarted,
    TokenArrived,
    UpdateApplied,
)
from spyker.protocol.messages import (
    Action,
    ClientMessage,
    Join,
    Leave,
    Model,
    PeerMessage,
    Update,
)
from spyker.protocol.server import Server, Setup, Work, epoch_of, first_bid
from spyker.protocol.state import ServerState
from spyker.protocol.weights import Weights
from spyker.vectors import Vector, is_finite, length

USUAL_ROUNDS, USUAL_ANSWERS = 8, 1024  # how far back the usual length of an answer looks, at most
PATIENT = 3.0  # an exchange that takes so many times as long as the longest before has lost somebody
FIRST = 30.0  # seconds that the first one may take
ROUND, EXCHANGE, ALONE, HELD = "round", "exchange", "alone", "held"  # timers
SILENT = 0.1  # seconds from one look to the next, at least, while no client answers
MOST_HALVED = 3  # times that the rate is halved, at most: there may be clients that do not go by it
PAUSE = 1.0  # seconds for which a server without clients keeps the token, at least
DIVERGED = 20.0  # times the norm of updates of a good model: more than this is a sign of divergence
ROUNDS_DIVERGED = 3  # in so many rounds in a row it is divergence
MOST_RESTORED = 4  # times that a model is restored, at most
LOOSEST = 5.0  # times ``clip``: what updates are clipped to where servers do not agree
ENOUGH = 1 - 1e-6  # rounds that make one, of sums of shares


@dataclass(frozen=True, slots=True)
class StrideParameters:
    """The parameters of Stride."""

    momentum: float = parameter(0.9, "μ: how much of its momentum is left after a round", at_least=0, at_most=0.999)
    gain: float = parameter(2.0, "c: how far the model moves along a round's step and its momentum", above=0)
    clip: float = parameter(
        0.6, "no answer counts with more than so many times the usual length of an answer; 0: as it comes", at_least=0
    )
    patience: float = parameter(
        1.25,
        "a round ends after so many times what the faster half of the clients took, whoever is missing",
        at_least=1,
    )
    too_far: float = parameter(
        1.0,
        "if the first trainings move the model by more than so many times its own length, they have run away: they are "
        "repeated with half the rate; 0: never",
        at_least=0,
    )
    safe: bool = parameter(
        True,
        "limit steps by the norms and the agreement of updates; false: never, for comparison. It is faster in few "
        "worlds, and diverges in many",
    )
    every: int = parameter(2, "how many rounds the holder of the token has between two exchanges", at_least=1)
    crowd: int = parameter(8, "with more servers than this, exchanges go through a tree", at_least=1)


class Stride(Server):
    """A server that has clients."""

    topology = Topology.FLAT
    Parameters: ClassVar[type[Any]] = StrideParameters
    parameters: StrideParameters
    client = DeltaClient
    averages_early: ClassVar[bool] = True
    """Exchanges start without the token where servers do not agree."""
    receives: ClassVar[tuple[type[PeerMessage], ...]] = (ExchangeModel, Token, ExchangeRequest, ExchangeResult)

    @classmethod
    def build(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """One of few servers, or of many."""
        from spyker.algorithms.stride_tree import StrideTree  # which builds on this file

        return (StrideTree if setup.servers > setup.parameters.crowd else Stride)(id, setup, roster)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.consensus = Consensus(setup.weights, setup.buffers)
        if setup.parameters.safe and len(roster) < 2:
            self.consensus.expect(0.0, 1 / setup.servers)
        self.momentum = Weights.zeros(setup.weights)  # m
        self.step_reach = Reach()
        self.sizes = dict(roster)  # d_k
        self.sum = Weights.zeros(setup.weights)  # Σ d_k·Δ_k of this round
        self.weight = 0.0  # Σ d_k of this round
        self.answered: dict[int, tuple[int, float]] = {}  # in this round: staleness and weight of a client's update
        self.idle: set[int] = set()  # clients without a task
        self.waiting = False  # they wait for the end of an exchange
        self.norms: list[float] = []  # of this round's updates
        self.taken = 0.0  # Σ d_k·‖Δ_k‖ of this round, as clipped and weighted
        self.fresh = 0.0  # Σ d_k of this round, as weighted
        self.old_version = -1  # models up to this version were given out before the last exchange
        self.round = 0  # rounds that have ended
        self.hurried = False  # half of the clients have answered, and the others have not for ever
        self.lengths: list[float] = []  # ‖Δ_k‖ of the last answers
        self.usual = self.first = 0.0  # their median, at the end of the last round and of the first
        self._buffers = setup.buffers
        first = length(parameters_only(setup.weights, setup.buffers))  # of W⁰
        self.reach: float = setup.parameters.too_far * first  # first answers may be so long
        self.halved = 0  # how often the rate was, because first trainings ran away
        self.pace = 0.0  # seconds that the faster half took in the last round
        # The exchange.
        self.holds = id == self.ring[0]
        self.bid = 1 if self.holds else 0  # of the token, where it is
        self.exchanging = False
        self.rounds = 0.0  # since the last exchange began here; one of old updates alone counts by how far we trust it
        self.merged: set[int] = set()  # who was heard in the last exchange
        self.held: list[tuple[int, ExchangeModel]] = []  # of an exchange that waits for this region's round
        self.heard: set[int] = set()
        self.absent: set[int] = set()  # who missed the last exchange
        self.latest = 0  # the bid of the last exchange that this server took part in
        self.stances: dict[int, ExchangeModel] = {}  # S, by bid
        self.data: dict[int, int] = {}  # of the other servers, as far as they have told
        self.longest = 0.0  # seconds that an exchange took
        self.lasted = 0.0  # seconds from this server's part in the last one to its end
        self.overdue = -1  # clients wait no longer for this exchange
        self._now = setup.now
        # Divergence.
        self.good, self.good_norm = setup.weights, 0.0  # the last good model, and the median norm of its updates
        self.bad_rounds = 0  # in a row
        self.restored = 0  # how often
        self._began = self._called = self._stood = setup.now()
        self._working: Vector | None = None  # what clients are given, until something changes

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """ExchangeRequest the procedure for this kind of message."""
        match message:
            case Update() if sender in self.sizes:
                self.answer(sender, message)
            case Join():
                self.sizes[sender] = message.size
                if sender not in self.answered and sender not in self.idle:  # otherwise the round's end answers it
                    self.send_client(sender, self.model(self.rate))
            case Leave():
                self.sizes.pop(sender, None)  # what it has answered counts
                self.idle.discard(sender)
                self.check_round()
                if not self.sizes:
                    self.take_part()
                self.check_exchange()
            case PeerMessage() if sender not in self.ring:
                pass  # from a server that is one of us no more
            case ExchangeModel():
                self.merge(sender, message)
            case Token() if epoch_of(message.bid) == self.epoch:  # otherwise it was given up for lost
                self.take(message)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """The last answer of a round costs the aggregation, and another server's stance a mix."""
        match message:
            case Update() if self.sizes.keys() <= self.answered.keys() | {sender}:
                return Work.AVERAGE
            case ExchangeModel():
                return Work.MIX
        return Work.NOTHING

    def work_of(self, timer: str) -> Work:
        """A round that ends without some costs the aggregation as well."""
        return Work.AVERAGE if timer == ROUND and self.answered else Work.NOTHING

    def expired(self, timer: str) -> None:
        """Go on without those who are missing."""
        if timer == EXCHANGE:
            self.finish()
        elif timer == HELD:
            self.overdue = self.latest
            self.check_idle()
        elif timer == ALONE:
            self.rounds = self.rounds if self.sizes else self.parameters.every
            self.check_exchange()
        elif self.answered:
            self.end_round()
        else:
            self.take_part()
            self.wait(SILENT)

    # --- Rounds with the clients ---------------------------------------------------------------------------------

    def start(self) -> Iterator[Action]:
        """W⁰ goes to every client."""
        self._began = self._now()
        return super().start()

    def answer(self, k: int, update: Update) -> None:
        """Clip Δ_k, and count it by how far updates of such a model are trusted."""
        self.sizes[k] = update.examples or self.sizes[k]
        far = length(parameters_only(update.weights, self._buffers))
        far = math.inf if math.isnan(far) else far
        self.lengths.append(far)
        self.norms.append(far)
        limit = self.parameters.clip * (self.usual or statistics.median(self.lengths))
        limit /= max(1 / LOOSEST, self.consensus.trust)
        clipped = limit / far if 0 < limit < far else 1.0
        trusted = self.consensus.trust if update.version <= self.old_version else 1.0
        if math.isfinite(far) or is_finite(update.weights):  # otherwise it counts for the median alone
            self.sum.add(update.weights, self.sizes[k] * clipped * trusted)
            self.taken += self.sizes[k] * clipped * trusted * far if math.isfinite(far) else 0.0
        self.weight += self.sizes[k]
        self.fresh += self.sizes[k] * trusted
        self.answered[k] = max(0, self.version - update.version), trusted
        self.check_round()

    def check_round(self) -> None:
        """End the round if all have answered. When half of them have, the others have not for ever."""
        answered = len(self.answered.keys() & self.sizes.keys())
        if answered and answered == len(self.sizes):
            self.end_round()
        elif answered and 2 * answered >= len(self.sizes) and not self.hurried:
            self.hurried, self.pace = True, self._now() - self._began
            self.start_timer(ROUND, (self.parameters.patience - 1) * self.pace)

    def wait(self, least: float = 0.0) -> None:
        """If not even half of the clients answer, the round ends as well. How long to wait, the last one tells."""
        if self.pace > 0:
            self.start_timer(ROUND, max(least, 2 * self.parameters.patience * self.pace))

    def end_round(self) -> None:
        """M ← μ·m + d,  step = c·(d + μ·m), no farther than is safe."""
        if self.ran_away():
            self.start_over()
            return
        missing = sum(size for k, size in self.sizes.items() if k not in self.answered)
        whole = self.weight + missing
        step = self.sum.snapshot() * np.float32(1 / whole)  # d; who is missing moves nothing
        norm = statistics.median(self.norms)
        if self.diverged(norm):
            self.restore_good(norm)
        else:
            self.move(step, whole, norm)
        self.begin_sum(step)
        del self.lengths[: -min(USUAL_ROUNDS * max(1, len(self.sizes)), USUAL_ANSWERS)]
        self.usual = max(self.first, statistics.median(self.lengths))
        self.first = self.first or self.usual
        self.state_answers(1.0)
        self.round += 1
        self.rounds += self.fresh / whole
        self.fresh = 0.0
        self.record(RoundEnded(self.id, self.round))
        if self.trusted:  # clients need not wait for an exchange that begins now
            self.begin_round()
        if self.rounds >= ENOUGH:
            self.take_part()
        self.check_exchange()
        if self.answered:
            self.begin_round()

    def move(self, step: Vector, whole: float, norm: float) -> None:
        """Take a step along the mean of a round's updates, which have this median norm."""
        c, mu = self.gain, self.parameters.momentum
        mean = without_buffers(step, self._buffers)
        safe, shortened = self.parameters.safe, 1.0
        if safe:
            if self.taken > 0:
                agreement = min(1.0, length(mean) * whole / self.taken)
                self.step_reach.observe(mean, agreement, min(norm, self.usual or norm), self.working)
                self.expect_agreement(agreement)
            mu *= self.consensus.trust
        self.momentum.scale(mu)
        self.momentum.add(mean, 1.0)
        move = mean * np.float32(c)
        move += self.momentum.snapshot() * np.float32(c * mu)
        if safe:
            reach = self.step_reach
            extended = reach.extended(self.consensus.extension, self.consensus.spread)
            far, bound = extended * length(move), max(reach.bound, extended * reach.plain)
            shortened = bound / far if far > bound else 1.0
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
        """c, as often halved as the model had to be restored."""
        return float(self.parameters.gain / 2**self.restored)

    def expect_agreement(self, agreement: float) -> None:
        """Where no exchange has told: how well would regions of as many clients agree as this one's clients do?

        From the agreement of N updates follows their mean pairwise cosine, and from that the cosine between means of N
        (the Spearman-Brown formula). The fewer clients there are, the less they tell: one tells nothing.
        """
        n = len(self.answered)
        cosine = max(0.0, (n * agreement**2 - 1) / (n - 1)) if n > 1 else 0.0
        self.consensus.expect(min(1.0, 2 * (n - 1) * cosine / (1 + (n - 1) * cosine)), 1 / self.n)

    @property
    def working(self) -> Vector:
        """The model that clients train."""
        if self._working is None:
            same = self.consensus.agreement == 1
            self._working = self.weights.snapshot() if same else self.consensus.working()
        return self._working

    def publish(self) -> None:
        """The parts of the model have changed.

        Where servers do not agree, a model that some of them have been merged into, and others not, is worse than the
        one before: it is not published.
        """
        self._working = None
        partly = self.merged and not self.complete(self.merged | {self.id})
        if not partly or self.consensus.trust == 1:
            self.weights.replace(self.consensus.published())

    def begin_sum(self, like: Vector) -> None:
        """Nobody has answered in this round."""
        self.sum, self.weight, self.taken = Weights.zeros(like), 0.0, 0.0
        self.norms.clear()

    # --- Divergence --------------------------------------------------------------------------------------------------

    def diverged(self, norm: float) -> bool:
        """Whether updates have been many times as long as those of a good model, for several rounds."""
        if not self.parameters.safe or self.restored == MOST_RESTORED:
            return False
        if not self.good_norm or norm <= DIVERGED * self.good_norm:
            if not self.good_norm or norm <= self.usual:
                self.good, self.good_norm = self.weights.snapshot(), max(norm, self.usual)
            self.bad_rounds = 0
            return False
        self.bad_rounds += 1
        return self.bad_rounds >= ROUNDS_DIVERGED

    def restore_good(self, norm: float) -> None:
        """Go back to the last good model, without momentum and with half the gain."""
        self.restored += 1
        self.bad_rounds = 0
        self.record(ModelRestored(self.id, norm, self.good_norm, self.gain))
        self.consensus.replace(self.good)
        self.momentum = Weights.zeros(self.good)
        self.stances, self.held, self.merged = {}, [], set()  # these are of the model that diverged
        self.old_version = self.version
        self.publish()
        if self.exchanging:
            self.finish()
        self.check_idle()

    def ran_away(self) -> bool:
        """Whether the first trainings went so far that nothing good can come of them."""
        return self.handles_nonfinite and self.reach < statistics.median(self.lengths)

    @property
    def handles_nonfinite(self) -> bool:
        """While no round has ended: its trainings may be repeated with half the rate."""
        return not self.first and self.halved < MOST_HALVED and self.reach > 0

    def start_over(self) -> None:
        """The first round again, with half the rate."""
        self.halved += 1
        self.record(RateHalved(self.id, statistics.median(self.lengths), self.now_rate))
        self.begin_sum(self.sum.snapshot())
        self.fresh = 0.0
        self.lengths.clear()
        self.state_answers(0.0)
        self.begin_round()

    @property
    def now_rate(self) -> float:
        """The learning rate, as often halved as had to be."""
        return float(self.rate / 2**self.halved)

    def model(self, rate: float) -> Model:
        """The model to train, with that rate."""
        return Model(self.working, self.age, self.version, self.now_rate)

    def state_answers(self, weight: float) -> None:
        """State what has become of the round's answers."""
        for k, (staleness, trusted) in self.answered.items():
            self.age += 1
            self.version += 1
            fact = UpdateApplied(self.id, k, staleness, weight * trusted, self.age, self.version, self.now_rate)
            self.record(fact)

    def begin_round(self) -> None:
        """Clients that have answered train the new model, now or when the exchange under way ends."""
        self.stop_timer(ROUND)
        self.idle |= self.answered.keys()
        self.answered, self.hurried = {}, False
        if self.waits():
            self.waiting = True
            took = max(self.lasted, self._now() - self._began)
            self.start_timer(HELD, min(PATIENT * took, FIRST) or FIRST)
        else:
            self.release()

    @property
    def trusted(self) -> bool:
        """Whether what this server learns alone is good enough, and clients need not wait for exchanges."""
        return not self.averages_early or self.n == 1 or self.consensus.trust == 1

    def waits(self) -> bool:
        """Whether clients wait for the end of an exchange."""
        if self.trusted or self.latest not in self.stances or self.latest == self.overdue:
            return False
        return not self.complete(self.merged | {self.id})

    def release(self) -> None:
        """Give the new model to clients that wait for it."""
        if not self.idle:
            return
        if self.waiting:
            self.waiting = False
            self.stop_timer(HELD)
        model = self.model(self.rate)
        for k in sorted(self.idle & self.sizes.keys()):
            self.send_client(k, model)
        self.idle = set()
        self._began = self._now()
        self.wait()

    def check_idle(self) -> None:
        """Clients wait no longer than necessary. What they train from now on is of the new common model."""
        if self.idle and not self.waits():
            self.old_version = self.version - 1
            self.release()

    # --- The exchange with the other servers ---------------------------------------------------------------------

    def take(self, token: Token) -> None:
        """The token is here."""
        self.bid, self.holds = max(token.bid, self.latest) + 1, True
        self.absent = {j for j in token.absent if j != self.id}
        self.record(TokenArrived(self.id, self.bid))
        self.check_exchange()

    def check_exchange(self) -> None:
        """The holder of the token starts an exchange when it has something to tell."""
        if self.holds and not self.sizes and self.n > 1:
            self.start_timer(ALONE, max(PAUSE, self.pace))  # there will be no round to wait for
        if self.suspected.issuperset(j for j in self.ring if j != self.id):
            return  # with nobody
        early = self.needs_averaging()
        if not (early or (self.rounds >= self.parameters.every - 1 + ENOUGH and self.holds)) or not self._may_lead():
            return
        if not self.holds or self.exchanging:
            if early:
                self.record(EarlySyncStarted(self.id, self.latest + 1))
                self.call(self.latest + 1)
        else:
            self.bid = max(self.bid, self.latest + 1)
            self.exchanging, self.heard, self._called = True, {self.id}, self._now()
            self.record(SyncStarted(self.id, self.bid))
            self.start_timer(EXCHANGE, PATIENT * self.longest or FIRST)
            self.call(self.bid)

    def call(self, bid: int) -> None:
        """Send (W, m, A) to all, once for each bid, and remember it."""
        self.send_all_servers(self.stand(bid))

    def stand(self, bid: int) -> ExchangeModel:
        """Remember where this server stands."""
        self.merged = set()
        self.publish()
        data = max(1, sum(self.sizes.values()))  # a server that all clients have left still has a model
        stance = ExchangeModel(self.consensus.stand(bid), self.momentum.snapshot(), self.age, data, bid)
        self.stances = {b: s for b, s in self.stances.items() if b > bid - REMEMBERED} | {bid: stance}
        self.latest, self.rounds, self.old_version = bid, 0.0, self.version
        self._stood = self._now()
        self.step_reach.exchanged()
        return stance

    def needs_averaging(self) -> bool:
        """Whether the next exchange is due without the token: servers do not agree, and a round has ended since all
        were heard.
        """
        if self.trusted or self.rounds < ENOUGH:
            return False
        over = self.latest not in self.stances or self.latest == self.overdue
        return over or self.complete(self.merged | {self.id})

    def merge(self, j: int, theirs: ExchangeModel, *, wait: bool = True) -> None:
        """W ← W + p_j·(W_j − S.W), and likewise m and A."""
        if theirs.bid > self.latest:
            if wait and self.consensus.trust < 1 and self.rounds < ENOUGH and self.sizes:
                self.held.append((j, theirs))  # until there is something new to tell
                return
            self.call(theirs.bid)
        mine = self.stances.get(theirs.bid)
        if mine is None:
            return  # of an exchange that is long over
        self.data[j] = theirs.data
        others = sum(self.data.get(i, mine.data) for i in self.ring if i != self.id)  # who has not told is like us
        if theirs.bid == self.latest:
            self.merged.add(j)
        self.shift(theirs, mine, theirs.data / (mine.data + others), mine.data / (mine.data + others))
        self.record(Merged(self.id, j, theirs.bid, theirs.data / (mine.data + others), self.age))
        self.absent.discard(j)
        if self.exchanging and theirs.bid == self.bid:
            self.heard.add(j)
            self.check_heard()

    def check_heard(self) -> None:
        """The exchange ends when all have been heard, or are known to be away."""
        if self.exchanging and self.complete(self.heard | self.absent):
            if not self.suspected:
                self.longest = max(self.longest, self._now() - self._called)
            self.finish()

    def take_part(self) -> None:
        """Take part in exchanges that waited for a round of this region."""
        held, self.held = self.held, []
        for j, theirs in held:
            if j in self.ring:
                self.merge(j, theirs, wait=False)

    def shift(self, towards: ExchangeModel | ExchangeResult, of: ExchangeModel, share: float, own: float) -> None:
        """Move by a share of the way that one stance is from another; ``own`` is this server's share of all data."""
        self.consensus.merge(of.bid, towards.weights, of.weights, share, own)
        if isinstance(towards, ExchangeResult) or (of.bid == self.latest and self.complete(self.merged | {self.id})):
            if self.parameters.safe:
                self.consensus.measure(of.bid, own)
            self.consensus.forget(of.bid)
            self.lasted = self._now() - self._stood
            self.stances.pop(of.bid, None)
        self.momentum.add(towards.momentum - of.momentum, share)
        self.age = max(0.0, self.age + share * (towards.age - of.age))
        self.old_version = self.version
        self.publish()
        self.check_idle()

    def finish(self) -> None:
        """Pass the token on, to the next server that was heard of. Without any, try again after some rounds."""
        self.exchanging = False
        self.stop_timer(EXCHANGE)
        self.absent = self.missing()
        here = self.ring.index(self.id)
        behind = (*self.ring[here + 1 :], *self.ring[: here + 1])
        following = next(j for j in behind if j == self.id or (j in self.heard and j not in self.suspected))
        if following == self.id:
            self.bid += 1
            return
        self.holds = False
        self.send_server(following, Token(self.bid, tuple(sorted(self.absent))))

    def missing(self) -> set[int]:
        """Who was not heard of in the exchange that ends."""
        return set(self.ring) - self.heard

    # --- Servers that come and go ------------------------------------------------------------------------------------

    uses_token = True
    bootstrap = StrideBootstrap

    @property
    def has_token(self) -> bool:
        """Whether it is here."""
        return self.holds

    def sighted(self) -> None:
        """Nobody waits for who is out of reach."""
        self.check_heard()
        self.check_idle()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Go on with other servers, and another token."""
        self.data = {j: data for j, data in self.data.items() if j in self.ring}
        self.holds, self.exchanging, self.heard, self.absent = leads, False, set(), set()
        self.stop_timer(EXCHANGE)
        self.overdue = self.latest
        self.check_idle()
        if leads:
            self.bid = first_bid(self.epoch)
            self.record(TokenArrived(self.id, self.bid))
            self.check_exchange()

    def bootstrap_state(self) -> StrideBootstrap:
        """The model goes with its momentum, and with what is known about lengths."""
        agreement = self.consensus.agreement
        return StrideBootstrap(
            self.weights.snapshot(), self.momentum.snapshot(), self.age, self.usual, self.halved, agreement
        )

    def restore(self, state: ServerState) -> None:
        """Go on from a saved state."""
        super().restore(state)
        self._working = None

    def bootstrap_from(self, bootstrap: StrideBootstrap) -> None:
        """Begin with what another server gave."""
        super().bootstrap_from(bootstrap)
        self.consensus.replace(bootstrap.weights)
        self.consensus.expect(bootstrap.agreement, 1 / self.n)
        self._working = None
        self.momentum.replace(bootstrap.momentum)
        self.usual = self.first = bootstrap.usual
        self.halved = bootstrap.halved
