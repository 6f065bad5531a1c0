"""Stride: our own algorithm. Long steps in every region, and servers that fall into step without waiting.

Theory of operation
-------------------
A mix of a client's model into the server's pulls the server back to where the client began. So here clients answer with
*how far* their training went, Δ_k, and a server adds that up. It works in rounds with its own clients, who are near: a
round ends when all have answered, or when it has lasted ``patience`` times as long as the faster half took. Who is late
counts in a later round and holds nobody up.

At the end of a round the server takes a step along the mean of the answers, with Nesterov momentum:

    d = Σ d_k·Δ_k / Σ d_k,    m ← μ·m + d,    W ← W + c·(d + μ·m)

where the second sum is over all clients, also those who are missing: with fewer answers the step is shorter, because
what is late has yet to come.

What breaks momentum is a single round in which trainings run away: a model that is new to a region meets data that it
has unlearnt, the gradients are large, and so is everything that follows from them. So no answer counts with more than
``clip`` times the usual length of an answer: the median over the last rounds, or over the first round if that is more.
(If the limit shrank with the answers of those who have nothing left to learn, it would shut out what only slow clients
know.) With it, a learning rate that is twice too large or too small costs time and hardly ever more.

A rate can also be so large that the very first trainings run away, and then there is nothing to measure later ones by
but the model: where the usual first answer is longer than ``too_far`` times that, none of them counts, and the round is
repeated with half the rate.

Servers exchange models and momenta as in Spyker. One *token* circulates; its holder starts exchange number ``bid`` once
it has had ``every`` rounds since the last one. Everyone who first hears of a ``bid`` remembers its own state of that
moment, S, and sends it to all. Whatever arrives is merged when it arrives, as a difference to S:

    W ← W + p_j·(W_j − S.W),    m ← m + p_j·(m_j − S.m)

with p_j, server j's share of all data. So what a server learnt while the models were under way is not pulled back, and
the mean of all servers' models, Σ p_i·W_i, is the same before and after.

For many servers, n·(n − 1) models are too many: see :mod:`~spyker.protocol.stride_tree`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.client import Difference
from spyker.protocol.facts import Merged, RateHalved, RoundEnded, SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.messages import (
    Action,
    AgeOf,
    ClientMessage,
    Count,
    Gift,
    Join,
    Leave,
    Model,
    PeerMessage,
    Update,
    Whole,
)
from spyker.protocol.server import Server, Setup, Work, epoch_of, first_bid
from spyker.protocol.statistics import statistics_once, weights_alone, without_statistics
from spyker.protocol.weights import Weights
from spyker.vectors import Vector, is_finite, length

USUAL_ROUNDS, USUAL_ANSWERS = 8, 1024  # how far back the usual length of an answer looks, at most
KEPT = 4  # exchanges whose models may still arrive
PATIENT = 3.0  # an exchange that takes so many times as long as the longest before has lost somebody
FIRST = 30.0  # seconds that the first one may take
ROUND, EXCHANGE, ALONE = "round", "exchange", "alone"  # timers
SILENT = 0.1  # seconds from one look to the next, at least, while no client answers
MOST_HALVED = 3  # times that the rate is halved, at most: there may be clients that do not go by it
PAUSE = 1.0  # seconds for which a server without clients keeps the token, at least


@dataclass(frozen=True, slots=True, eq=False)
class Stance(PeerMessage):
    """Where a server stands in exchange number ``bid``: an immutable snapshot, with the data points behind it."""

    only_the_latest_counts = True
    weights: Vector
    momentum: Vector
    age: AgeOf
    data: Count
    bid: Count


@dataclass(frozen=True, slots=True)
class Baton(PeerMessage):
    """The right to start the exchange after number ``bid``. There is one. Nobody need wait for who is ``absent``."""

    only_the_latest_counts = True
    bid: Count
    absent: tuple[Whole, ...] = ()


@dataclass(frozen=True, slots=True)
class Call(PeerMessage):
    """In a tree: exchange number ``bid`` begins, and this server is at its ``root``."""

    only_the_latest_counts = True
    bid: Count
    root: Whole


@dataclass(frozen=True, slots=True, eq=False)
class Common(PeerMessage):
    """In a tree: where all who took part in exchange number ``bid`` stand on average."""

    only_the_latest_counts = True
    weights: Vector
    momentum: Vector
    age: AgeOf
    bid: Count


@dataclass(frozen=True, slots=True, eq=False)
class Footing(Gift):
    """What a server that begins among others begins with; ``usual`` is how long answers are.

    There the rate was ``halved`` so often.
    """

    weights: Vector
    momentum: Vector
    age: AgeOf
    usual: Annotated[float, Meta(ge=0)]
    halved: Whole


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
        0.75,
        "if the first trainings move the model by more than so many times its own length, they have run away: they are "
        "repeated with half the rate; 0: never",
        at_least=0,
    )
    every: int = parameter(2, "how many rounds the holder of the token has between two exchanges", at_least=1)
    crowd: int = parameter(8, "with more servers than this, exchanges go through a tree", at_least=1)


class Stride(Server):
    """A server that has clients."""

    topology = Topology.FLAT
    Parameters: ClassVar[type[Any]] = StrideParameters
    parameters: StrideParameters
    client = Difference
    hears: ClassVar[tuple[type[PeerMessage], ...]] = (Stance, Baton, Call, Common)

    @classmethod
    def build(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """One of few servers, or of many."""
        from spyker.protocol.stride_tree import StrideTree  # which builds on this file

        return (StrideTree if setup.servers > setup.parameters.crowd else Stride)(id, setup, roster)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.momentum = Weights.zeros(setup.weights)  # m
        self.sizes = dict(roster)  # d_k
        self.sum = Weights.zeros(setup.weights)  # Σ d_k·Δ_k of this round
        self.weight = 0.0  # Σ d_k of this round
        self.answered: dict[int, int] = {}  # who has answered in this round, and how many answers counted meanwhile
        self.round = 0  # rounds that have ended
        self.hurried = False  # half of the clients have answered, and the others have not for ever
        self.lengths: list[float] = []  # ‖Δ_k‖ of the last answers
        self.usual = self.first = 0.0  # their median, at the end of the last round and of the first
        self._statistics = setup.statistics
        first = length(weights_alone(setup.weights, setup.statistics))  # of W⁰
        self.reach: float = setup.parameters.too_far * first  # first answers may be so long
        self.halved = 0  # how often the rate was, because first trainings ran away
        self.pace = 0.0  # seconds that the faster half took in the last round
        # The exchange.
        self.holds = id == self.ring[0]
        self.bid = 1 if self.holds else 0  # of the token, where it is
        self.exchanging = False
        self.rounds = 0  # since the last exchange began here
        self.heard: set[int] = set()
        self.absent: set[int] = set()  # who missed the last exchange
        self.latest = 0  # the bid of the last exchange that this server took part in
        self.stances: dict[int, Stance] = {}  # S, by bid
        self.data: dict[int, int] = {}  # of the other servers, as far as they have told
        self.longest = 0.0  # seconds that an exchange took
        self._now = setup.now
        self._began = self._called = setup.now()

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Call the procedure for this kind of message."""
        match message:
            case Update() if sender in self.sizes:
                self.answer(sender, message)
            case Join():
                self.sizes[sender] = message.size
                if sender not in self.answered:  # otherwise the end of the round answers it
                    self.send_client(sender, self.model(self.rate))
            case Leave():
                self.sizes.pop(sender, None)  # what it has answered counts
                self.check_round()
                self.check_exchange()
            case PeerMessage() if sender not in self.ring:
                pass  # from a server that is one of us no more
            case Stance():
                self.merge(sender, message)
            case Baton() if epoch_of(message.bid) == self.epoch:  # otherwise it was given up for lost
                self.take(message)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """The last answer of a round costs the aggregation, and another server's stance a mix."""
        match message:
            case Update() if self.sizes.keys() <= self.answered.keys() | {sender}:
                return Work.AVERAGE
            case Stance():
                return Work.MIX
        return Work.NOTHING

    def work_of(self, timer: str) -> Work:
        """A round that ends without some costs the aggregation as well."""
        return Work.AVERAGE if timer == ROUND and self.answered else Work.NOTHING

    def expired(self, timer: str) -> None:
        """Go on without those who are missing."""
        if timer == EXCHANGE:
            self.finish()
        elif timer == ALONE:
            self.rounds = self.rounds if self.sizes else self.parameters.every
            self.check_exchange()
        elif self.answered:
            self.end_round()
        else:
            self.wait(SILENT)

    # --- Rounds with the clients ---------------------------------------------------------------------------------

    def start(self) -> Iterator[Action]:
        """W⁰ goes to every client."""
        self._began = self._now()
        return super().start()

    def answer(self, k: int, update: Update) -> None:
        """Δ_k counts, but not with more than the usual length."""
        self.sizes[k] = update.examples or self.sizes[k]
        far = length(weights_alone(update.weights, self._statistics))
        self.lengths.append(math.inf if math.isnan(far) else far)
        limit = self.parameters.clip * (self.usual or statistics.median(self.lengths))
        share = limit / far if 0 < limit < far else 1.0
        if math.isfinite(far) or is_finite(update.weights):  # otherwise it counts for the median alone
            self.sum.add(update.weights, self.sizes[k] * share)
        self.weight += self.sizes[k]
        self.answered[k] = max(0, self.version - update.version)
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
        """M ← μ·m + d,  W ← W + c·(d + μ·m)."""
        if self.ran_away():
            self.start_over()
            return
        c, mu = self.parameters.gain, self.parameters.momentum
        missing = sum(size for k, size in self.sizes.items() if k not in self.answered)
        step = self.sum.snapshot() * np.float32(1 / (self.weight + missing))  # d; who is missing moves nothing
        self.momentum.scale(mu)
        self.momentum.add(without_statistics(step, self._statistics), 1.0)
        self.weights.add(statistics_once(step, self._statistics, c), c)
        self.weights.add(self.momentum.snapshot(), c * mu)
        self.sum, self.weight = Weights.zeros(step), 0.0
        del self.lengths[: -min(USUAL_ROUNDS * max(1, len(self.sizes)), USUAL_ANSWERS)]
        self.usual = max(self.first, statistics.median(self.lengths))
        self.first = self.first or self.usual
        self.state_answers(1.0)
        self.round += 1
        self.record(RoundEnded(self.id, self.round))
        self.begin_round()
        self.rounds += 1
        self.check_exchange()

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
        self.sum, self.weight = Weights.zeros(self.sum.snapshot()), 0.0
        self.lengths.clear()
        self.state_answers(0.0)
        self.begin_round()

    @property
    def now_rate(self) -> float:
        """The learning rate, as often halved as had to be."""
        return float(self.rate / 2**self.halved)

    def model(self, rate: float) -> Model:
        """The current model, with that rate."""
        return super().model(self.now_rate)

    def state_answers(self, weight: float) -> None:
        """State what has become of the round's answers."""
        for k, staleness in self.answered.items():
            self.age += 1
            self.version += 1
            self.record(UpdateApplied(self.id, k, staleness, weight, self.age, self.version, self.now_rate))

    def begin_round(self) -> None:
        """Whoever has answered trains the new model."""
        model = self.model(self.rate)
        for k in self.answered:
            if k in self.sizes:
                self.send_client(k, model)
        self.answered, self.hurried = {}, False
        self._began = self._now()
        self.stop_timer(ROUND)
        self.wait()

    # --- The exchange with the other servers ---------------------------------------------------------------------

    def take(self, baton: Baton) -> None:
        """The token is here."""
        self.bid, self.holds = max(baton.bid, self.latest) + 1, True
        self.absent = {j for j in baton.absent if j != self.id}
        self.record(TokenArrived(self.id, self.bid))
        self.check_exchange()

    def check_exchange(self) -> None:
        """The holder of the token starts an exchange when it has something to tell."""
        if self.holds and not self.sizes and self.n > 1:
            self.start_timer(ALONE, max(PAUSE, self.pace))  # there will be no round to wait for
        if not self.holds or self.exchanging or self.rounds < self.parameters.every:
            return
        if self.suspected.issuperset(j for j in self.ring if j != self.id):
            return  # with nobody
        if self._may_lead():
            self.exchanging, self.heard, self._called = True, {self.id}, self._now()
            self.record(SyncStarted(self.id, self.bid))
            self.start_timer(EXCHANGE, PATIENT * self.longest or FIRST)
            self.call(self.bid)

    def call(self, bid: int) -> None:
        """Send (W, m, A) to all, once for each bid, and remember it."""
        self.send_all_servers(self.stand(bid))

    def stand(self, bid: int) -> Stance:
        """Remember where this server stands."""
        data = max(1, sum(self.sizes.values()))  # a server that all clients have left still has a model
        stance = Stance(self.weights.snapshot(), self.momentum.snapshot(), self.age, data, bid)
        self.stances = {b: s for b, s in self.stances.items() if b > bid - KEPT} | {bid: stance}
        self.latest, self.rounds = bid, 0
        return stance

    def merge(self, j: int, theirs: Stance) -> None:
        """W ← W + p_j·(W_j − S.W), and likewise m and A."""
        if theirs.bid > self.latest:
            self.call(theirs.bid)
        mine = self.stances.get(theirs.bid)
        if mine is None:
            return  # of an exchange that is long over
        self.data[j] = theirs.data
        others = sum(self.data.get(i, mine.data) for i in self.ring if i != self.id)  # who has not told is like us
        self.shift(theirs, mine, theirs.data / (mine.data + others))
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

    def shift(self, towards: Stance | Common, of: Stance, share: float) -> None:
        """Move by a share of the way that one stance is from another."""
        way = towards.weights - of.weights
        if self._statistics:  # these are averaged, wherever they are by now
            last = slice(-self._statistics, None)
            way[last] = towards.weights[last] - self.weights.snapshot()[last]
        self.weights.add(way, share)
        self.momentum.add(towards.momentum - of.momentum, share)
        self.age = max(0.0, self.age + share * (towards.age - of.age))

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
        self.send_server(following, Baton(self.bid, tuple(sorted(self.absent))))

    def missing(self) -> set[int]:
        """Who was not heard of in the exchange that ends."""
        return set(self.ring) - self.heard

    # --- Servers that come and go ------------------------------------------------------------------------------------

    circulates = True
    gift = Footing

    @property
    def has_token(self) -> bool:
        """Whether it is here."""
        return self.holds

    def sighted(self) -> None:
        """Nobody waits for who is out of reach."""
        self.check_heard()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Go on with other servers, and another token."""
        self.data = {j: data for j, data in self.data.items() if j in self.ring}
        self.holds, self.exchanging, self.heard, self.absent = leads, False, set(), set()
        self.stop_timer(EXCHANGE)
        if leads:
            self.bid = first_bid(self.epoch)
            self.record(TokenArrived(self.id, self.bid))
            self.check_exchange()

    def handover(self) -> Footing:
        """The model goes with its momentum, and with what is known about lengths."""
        return Footing(self.weights.snapshot(), self.momentum.snapshot(), self.age, self.usual, self.halved)

    def take_over(self, gift: Footing) -> None:
        """Begin with what another server gave."""
        super().take_over(gift)
        self.momentum.replace(gift.momentum)
        self.usual = self.first = gift.usual
        self.halved = gift.halved
