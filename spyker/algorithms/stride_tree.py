"""Stride among many servers: an exchange costs 2·(n − 1) models instead of n·(n − 1).

The holder of the token is the root of a tree over all servers, in the order of the ring. Its request goes down the
tree, and every server that receives it takes a snapshot S. Snapshots are averaged on the way up, weighted by data. The
root's average, M, goes down again, and every server adds M − S. So the mean of all servers' models is again the same
before and after, and rounds continue during the exchange.

An exchange passes the tree three times where all to all takes two hops. With few servers that costs accuracy, so it is
not used there. A server that does not answer in time is left out together with its subtree; the next exchange has
another root, and so another tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spyker.algorithms.stride import Stride
from spyker.algorithms.stride_exchange import EXCHANGE, FIRST_TIMEOUT, TIMEOUT_FACTOR
from spyker.algorithms.stride_messages import ExchangeModel, ExchangeRequest, ExchangeResult
from spyker.protocol.facts import Merged
from spyker.protocol.messages import ClientMessage, PeerMessage
from spyker.protocol.server import Setup, Work
from spyker.protocol.weights import Weights
from spyker.robust.claimed_sizes import ClaimedData


class StrideTree(Stride):
    """A server that exchanges through a tree."""

    name, title, section = Stride.name, Stride.title, Stride.section
    averages_early = False  # only the holder of the token starts an exchange through a tree

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.root = id  # of the current exchange
        self.shares: dict[int, ExchangeModel] = {}  # averages of the children's subtrees
        self.asked = False  # children have been asked, and the average has not been passed up
        self.longest_below = 0.0  # seconds that the children took at most, when this server was not the root
        self.below: dict[int, tuple[int, ...]] = {}  # children that get the result, by number of the exchange

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Process a message of the tree, or one that all Stride servers process."""
        match message:
            case PeerMessage() if sender not in self.ring:
                pass  # from a server that is no longer a member
            case ExchangeRequest() if message.bid > self.latest and message.root in self.ring:
                self.root, self._exchange_began = message.root, self._now()
                self.start_timer(EXCHANGE, TIMEOUT_FACTOR * self.longest_below or FIRST_TIMEOUT)
                self.start_exchange(message.bid)
            case ExchangeModel():
                self.gather(sender, message)
            case ExchangeResult():
                self.settle(message)
            case ExchangeRequest():
                pass  # the exchange is over
            case _:
                super().receive(sender, message)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Return the cost class: a mix for the result of an exchange, too."""
        return Work.MIX if isinstance(message, ExchangeResult) else super().work(sender, message)

    def expired(self, timer: str) -> None:
        """Continue with the children that have answered."""
        if timer == EXCHANGE:
            self.pass_up()
        else:
            super().expired(timer)

    @property
    def branches(self) -> int:
        """Number of children per server: with √n, no server is more than two hops from the root."""
        return math.isqrt(self.n - 1) + 1

    def parent(self) -> int:
        """Return the parent."""
        return self.at((self.place() - 1) // self.branches)

    def children(self) -> list[int]:
        """Return the children."""
        first = self.place() * self.branches + 1
        return [self.at(place) for place in range(first, min(first + self.branches, self.n))]

    def place(self) -> int:
        """Return this server's distance from the root on the ring."""
        return (self.ring.index(self.id) - self.ring.index(self.root)) % self.n

    def at(self, place: int) -> int:
        """Return the server at a distance from the root on the ring."""
        return self.ring[(self.ring.index(self.root) + place) % self.n]

    def start_exchange(self, bid: int) -> None:
        """Take a snapshot, and have the whole subtree do so."""
        if self.exchanging:
            self.root = self.id
        self.take_snapshot(bid)
        self.shares, self.asked = {}, True
        for j in self.children():
            self.send_server(j, ExchangeRequest(bid, self.root))
        self.check_shares()

    def gather(self, j: int, share: ExchangeModel) -> None:
        """Store the average of a child's subtree."""
        if self.asked and share.bid == self.latest:
            self.shares[j] = share
            self.check_shares()

    def check_shares(self) -> None:
        """Pass the average up when all children have answered, or are suspected."""
        if self.asked and self.suspected.issuperset(set(self.children()) - self.shares.keys()):
            took = self._now() - self._exchange_began
            if self.root == self.id:
                self.longest = max(self.longest, took)
            else:
                self.longest_below = max(self.longest_below, took)
            self.pass_up()

    def pass_up(self) -> None:
        """Send the subtree's average to the parent. At the root it is the result, and the token is passed on."""
        self.asked = False
        self.stop_timer(EXCHANGE)
        self.below = {b: js for b, js in self.below.items() if b in self.exchange_models} | {
            self.latest: tuple(self.shares)
        }
        whole = self.average({self.id: self.exchange_models[self.latest]} | self.shares)
        if self.root != self.id:
            self.send_server(self.parent(), whole)
            return
        self.heard = {self.id, *self.shares}
        self.settle(self.as_sent(ExchangeResult(whole.weights, whole.momentum, whole.age, whole.bid)))
        self.pass_token()

    def settle(self, common: ExchangeResult) -> None:
        """W ← W + M − S.W, and likewise m and A; send the result to the children that took part."""
        mine = self.exchange_models.pop(common.bid, None)
        if mine is None:
            return
        for j in self.below.pop(common.bid, ()):
            self.send_server(j, common)
        self.apply_difference(common, mine, 1.0, 1 / self.n)
        self.record(Merged(self.id, self.root, common.bid, 1.0, self.age))

    def check_heard(self) -> None:
        """Do not wait for suspected servers. Their subtrees are left out of this exchange."""
        self.check_shares()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Continue with another ring. The current exchange ends without a result."""
        self.asked, self.root = False, self.id
        super().reformed(before, leads=leads)

    def missing(self) -> set[int]:
        """Return none: the root does not hear all servers itself, and the next tree has another shape."""
        return set()

    def average(self, models: Mapping[int, ExchangeModel]) -> ExchangeModel:
        """Return the mean of models and momenta, weighted by data."""
        data = self.update_filter.bounded_data({j: ClaimedData(each.data, each.clients) for j, each in models.items()})
        total, weights, momentum, age, bid, clients = 0, None, None, 0.0, 0, 0
        for j, each in models.items():
            total += data[j]
            clients += each.clients
            share, bid = data[j] / total, each.bid
            if weights is None or momentum is None:
                weights, momentum = Weights(each.weights), Weights(each.momentum)
            weights.mix(each.weights, share)
            momentum.mix(each.momentum, share)
            age += share * (each.age - age)
        assert weights is not None
        assert momentum is not None
        return ExchangeModel(weights.snapshot(), momentum.snapshot(), age, total, bid, clients=clients)
