"""The exchange of models between Stride's servers, all to all.

Theory of operation
-------------------
Servers exchange models and momenta as in Spyker. One *token* circulates; its holder starts exchange number ``bid`` once
it has finished ``exchange_rounds`` rounds since the last exchange. A server that first hears of a ``bid`` takes a
snapshot S of its model and momentum and sends it to all. A snapshot that arrives is merged as a difference to S:

    W ← W + p_j·(S_j.W − S.W),    m ← m + p_j·(S_j.m − S.m)

with p_j, server j's share of all data. A merge therefore undoes nothing that a server learnt while the models were
under way, and Σ p_i·W_i is the same before and after.

Where servers do not agree, averaging is what makes progress, and no server waits for the token: each starts the next
exchange as soon as it has heard all others and finished a round since. A server that hears of an exchange takes part
when it has finished a round of its own. Meanwhile its clients wait, because the exchange replaces the model that they
would train.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from spyker.algorithms.consensus import REMEMBERED, Consensus
from spyker.algorithms.reach import Reach
from spyker.algorithms.stride_messages import ExchangeModel, ExchangeResult, Token
from spyker.protocol.facts import EarlySyncStarted, Merged, SyncStarted, TokenArrived
from spyker.protocol.noisy_server import NoisyServer
from spyker.protocol.server import Setup, first_bid
from spyker.protocol.weights import Weights
from spyker.robust.claimed_sizes import ClaimedData
from spyker.vectors import Vector, difference

TIMEOUT_FACTOR = 3.0  # an exchange is over after this multiple of the longest exchange, or attempt, so far
FIRST_TIMEOUT = 30.0  # seconds, for the first exchange
TOKEN_PAUSE = 1.0  # seconds for which a server without clients keeps the token, at least
FULL_ROUND = 1 - 1e-6  # a sum of shares that counts as one round
EXCHANGE, NO_CLIENTS = "exchange", "empty"  # timers


class ExchangingServer(NoisyServer):
    """A server's model and momentum, and their exchange with the other servers."""

    averages_early: ClassVar[bool] = True
    """Exchanges start without the token where servers do not agree."""
    uses_token = True
    sizes: dict[int, int]
    pace: float

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.consensus = Consensus(setup.weights, setup.buffers)
        self.momentum = Weights.zeros(setup.weights)  # m
        self.step_reach = Reach()
        self.old_version = -1  # models up to this version were given out before the last exchange
        self.holds = id == self.ring[0]  # the token
        self.bid = 1 if self.holds else 0  # number of the holder's next exchange
        self.exchanging = False  # this server holds the token and its exchange is under way
        self.rounds = 0.0  # since the last exchange began; a round of old updates counts by their trust
        self.averaged = 0  # number of updates in the last round's mean
        self.latest = 0  # number of the last exchange that this server took part in
        self.exchange_models: dict[int, ExchangeModel] = {}  # S, by number of the exchange
        self.merged: set[int] = set()  # servers whose models of the last exchange were merged
        self.deferred: list[tuple[int, ExchangeModel]] = []  # models of exchanges that wait for the end of a round
        self.heard: set[int] = set()  # servers heard in the exchange that this server started
        self.absent: set[int] = set()  # servers that missed the last exchange
        self.data: dict[int, int] = {}  # data points of the other servers, where known
        self.clients: dict[int, int] = {}  # and their clients
        self.longest = 0.0  # seconds of the longest exchange
        self.lasted = 0.0  # seconds from this server's snapshot to the end of the last exchange
        self.overdue = -1  # number of an exchange that clients no longer wait for
        self._began: dict[int, float] = {}  # by number, when this server took its snapshot for an exchange
        self._now = setup.now
        self._exchange_began = self._snapshot_taken = setup.now()
        self._working: Vector | None = None  # the model that clients train, until something changes

    @abstractmethod
    def check_idle(self) -> None:
        """Give clients that wait for an exchange the new model if it has ended."""

    # --- The model ---------------------------------------------------------------------------------------------------

    @property
    def working(self) -> Vector:
        """The model that clients train."""
        if self._working is None:
            same = self.consensus.agreement == 1
            self._working = self.weights.snapshot() if same else self.consensus.working()
        return self._working

    def publish(self) -> None:
        """Update the published model after its parts have changed.

        Where servers do not agree, a model that only some servers have been merged into is worse than the one before.
        It is not published.
        """
        self._working = None
        if not self.partly_merged or self.consensus.trust == 1:
            self.weights.replace_later(self.consensus.published)

    def keep_published(self) -> None:
        """Compute the published model before its parts change, if :meth:`publish` will not replace it."""
        if self.partly_merged:
            self.weights.snapshot()

    @property
    def partly_merged(self) -> bool:
        """Whether some, and not all, models of the last exchange were merged."""
        return bool(self.merged) and not self.complete(self.merged | {self.id})

    @property
    def trusted(self) -> bool:
        """Whether the server's own progress is good enough for clients not to wait for exchanges."""
        return not self.averages_early or self.n == 1 or self.consensus.trust == 1

    @property
    def waits(self) -> bool:
        """Whether clients wait for the end of an exchange."""
        if self.trusted or self.latest not in self.exchange_models or self.latest == self.overdue:
            return False
        return not self.complete(self.merged | {self.id})

    # --- The start of an exchange ------------------------------------------------------------------------------------

    def receive_token(self, token: Token) -> None:
        """Hold the token."""
        self.bid, self.holds = max(token.bid, self.latest) + 1, True
        self.absent = {j for j in token.absent if j != self.id}
        self.record(TokenArrived(self.id, self.bid))
        self.check_exchange()

    def check_exchange(self) -> None:
        """Start an exchange if one is due."""
        if self.holds and not self.learns and self.n > 1:
            self.start_timer(NO_CLIENTS, max(TOKEN_PAUSE, self.pace))  # no round will end here
        if self.suspected.issuperset(j for j in self.ring if j != self.id):
            return  # no other server is there
        early = self.needs_averaging()
        due = self.holds and self.rounds >= self.parameters.exchange_rounds - 1 + FULL_ROUND
        if not (early or due) or not self._may_lead():
            return
        if not self.holds or self.exchanging:
            if early:
                if self.latest in self.exchange_models and self.latest == self.overdue:
                    self.lasted = max(self.lasted, self._now() - self._snapshot_taken)
                self.record(EarlySyncStarted(self.id, self.latest + 1))
                self.start_exchange(self.latest + 1)
        else:
            self.bid = max(self.bid, self.latest + 1)
            self.exchanging, self.heard, self._exchange_began = True, {self.id}, self._now()
            self.record(SyncStarted(self.id, self.bid))
            self.start_timer(EXCHANGE, TIMEOUT_FACTOR * self.longest or FIRST_TIMEOUT)
            self.start_exchange(self.bid)

    @property
    def learns(self) -> bool:
        """Whether this server has the clients that a round needs. Otherwise others do not wait for its progress."""
        return len(self.sizes) >= self.fewest_clients

    def needs_averaging(self) -> bool:
        """Whether an exchange is due without the token.

        It is if servers do not agree, and a round has ended since all servers were heard. Models that are overdue may
        still be under way on slow links, behind which further ones would queue.
        """
        if self.trusted or self.rounds < FULL_ROUND:
            return False
        if self.latest not in self.exchange_models or self.complete(self.merged | {self.id}):
            return True
        patience = TIMEOUT_FACTOR * self.lasted
        return self.latest == self.overdue and self._now() - self._snapshot_taken >= patience

    def start_exchange(self, bid: int) -> None:
        """Send (W, m, A) to all servers."""
        self.send_all_servers(self.take_snapshot(bid))

    def take_snapshot(self, bid: int) -> ExchangeModel:
        """Return this server's model and momentum, and remember them for the merge."""
        self.merged = set()
        self.publish()
        data = round(self.whole_weight(max(1, sum(self.sizes.values()))))  # without clients, it still has a model
        clients = round(self.whole_weight(len(self.sizes)))
        weights, momentum = self.consensus.begin_exchange(bid), self.momentum.snapshot()
        snapshot = self.as_sent(ExchangeModel(weights, momentum, self.age, data, bid, clients=max(1, clients)))
        recent = {b: s for b, s in self.exchange_models.items() if b > bid - REMEMBERED}
        self.exchange_models = recent | {bid: snapshot}
        self.latest, self.rounds, self.old_version = bid, 0.0, self.version
        self._snapshot_taken = self._now()
        self._began = {b: t for b, t in self._began.items() if b in self.exchange_models} | {bid: self._now()}
        self.step_reach.exchanged()
        return snapshot

    # --- The merge ---------------------------------------------------------------------------------------------------

    def merge(self, j: int, theirs: ExchangeModel, *, wait: bool = True) -> None:
        """W ← W + p_j·(S_j.W − S.W), and likewise m and A."""
        if self.exchanging and theirs.bid > self.bid:
            self.heard.add(j)  # it has moved on, and an outbox keeps only the latest model
            self.check_heard()
        if theirs.bid > self.latest:
            if j not in self.merged:
                self.overdue = self.latest  # server j has moved on: its model of that exchange will not come
            if wait and self.consensus.trust < 1 and self.rounds < FULL_ROUND and self.learns:
                self.deferred.append((j, theirs))  # until this server has new progress to send
                self.check_idle()
                return
            self.start_exchange(theirs.bid)
        mine = self.exchange_models.get(theirs.bid)
        if mine is None:
            return  # the exchange is long over
        self.data[j], self.clients[j] = theirs.data, theirs.clients
        shares = self.shares_of_data(mine)
        if theirs.bid == self.latest:
            self.merged.add(j)
        self.apply_difference(theirs, mine, shares[j], shares[self.id])
        self.record(Merged(self.id, j, theirs.bid, shares[j], self.age))
        self.absent.discard(j)
        if theirs.bid < self.latest and theirs.bid in self._began:  # it is late: exchanges take that long
            took = self._now() - self._began[theirs.bid]
            self.longest, self.lasted = max(self.longest, took), max(self.lasted, took)
        if self.exchanging and theirs.bid == self.bid:
            self.heard.add(j)
            self.check_heard()

    def shares_of_data(self, mine: ExchangeModel) -> dict[int, float]:
        """Return p_i of all servers. One that is unknown counts as much as this server."""
        own = ClaimedData(mine.data, mine.clients)
        claims = {i: ClaimedData(self.data[i], self.clients.get(i, 1)) if i in self.data else own for i in self.ring}
        data = self.update_filter.bounded_data(claims | {self.id: own})
        whole = sum(data.values())
        return {i: each / whole for i, each in data.items()}

    def merge_deferred(self) -> None:
        """Take part in exchanges that waited for the end of a round."""
        deferred, self.deferred = self.deferred, []
        for j, theirs in deferred:
            if j in self.ring:
                self.merge(j, theirs, wait=False)

    def apply_difference(
        self, theirs: ExchangeModel | ExchangeResult, mine: ExchangeModel, share: float, own: float
    ) -> None:
        """Add ``share`` of the difference between two models; ``own`` is this server's share of all data."""
        self.keep_published()
        self.consensus.merge(mine.bid, theirs.weights, mine.weights, share, own)
        if isinstance(theirs, ExchangeResult) or (mine.bid == self.latest and self.complete(self.merged | {self.id})):
            if self.parameters.safe:
                self.consensus.measure(mine.bid, own, self.averaged)
            self.consensus.forget(mine.bid)
            self.lasted = self._now() - self._snapshot_taken
            self.exchange_models.pop(mine.bid, None)
        self.momentum.add(difference(theirs.momentum, mine.momentum), share)
        self.age = max(0.0, self.age + share * (theirs.age - mine.age))
        self.old_version = self.version
        self.publish()
        self.check_idle()

    # --- The end of an exchange --------------------------------------------------------------------------------------

    def check_heard(self) -> None:
        """End the exchange when all servers have been heard, or are known to be absent."""
        if self.exchanging and self.complete(self.heard | self.absent):
            if not self.suspected:
                self.longest = max(self.longest, self._now() - self._exchange_began)
            self.pass_token()

    def exchange_overdue(self) -> None:
        """End the exchange without the servers that were not heard. They may just be slow: the next one has longer."""
        self.longest = max(self.longest, self._now() - self._exchange_began)
        self.pass_token()

    def pass_token(self) -> None:
        """Send the token to the next server that was heard. If there is none, keep it and try again later."""
        self.exchanging = False
        self.stop_timer(EXCHANGE)
        self.absent = self.missing()
        here = self.ring.index(self.id)
        successors = (*self.ring[here + 1 :], *self.ring[: here + 1])
        following = next(j for j in successors if j == self.id or (j in self.heard and j not in self.suspected))
        if following == self.id:
            self.bid += 1
            return
        self.holds = False
        self.send_server(following, Token(self.bid, tuple(sorted(self.absent))))

    def missing(self) -> set[int]:
        """Return the servers that were not heard in the exchange that ends."""
        return set(self.ring) - self.heard

    # --- Membership --------------------------------------------------------------------------------------------------

    @property
    def has_token(self) -> bool:
        """Whether this server holds the token."""
        return self.holds

    def sighted(self) -> None:
        """Do not wait for servers that are suspected."""
        self.check_heard()
        self.check_idle()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Continue with another ring and another token."""
        self.data = {j: data for j, data in self.data.items() if j in self.ring}
        self.clients = {j: clients for j, clients in self.clients.items() if j in self.ring}
        self.holds, self.exchanging, self.heard, self.absent = leads, False, set(), set()
        self.stop_timer(EXCHANGE)
        self.overdue = self.latest
        self.check_idle()
        if leads:
            self.bid = first_bid(self.epoch)
            self.record(TokenArrived(self.id, self.bid))
            self.check_exchange()
