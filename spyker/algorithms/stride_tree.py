"""Stride among many servers: an exchange costs 2·(n − 1) models instead of n·(n − 1).

The holder of the token is the root of a tree over all servers, in the order of the ring. Its call goes down the tree,
and everyone it reaches remembers where it stands, S. What comes up from below is averaged on the way, weighted by data;
the root's average, M, goes down again, and whoever gets it moves by M − S. So again the mean of all servers' models is
the same before and after, and nobody waits: clients are served all the time.

It takes three ways through the tree where all-to-all takes two hops, and with few servers that costs accuracy, so there
it is not used. A server that does not answer in time is left out, with all below it; the next exchange has another
root, and so another tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from spyker.algorithms.stride import EXCHANGE, FIRST, PATIENT, Stride
from spyker.algorithms.stride_messages import ExchangeModel, ExchangeRequest, ExchangeResult
from spyker.protocol.facts import Merged
from spyker.protocol.messages import ClientMessage, PeerMessage
from spyker.protocol.server import Setup, Work
from spyker.protocol.weights import Weights


class StrideTree(Stride):
    """One of many servers."""

    name, title, section = Stride.name, Stride.title, Stride.section
    averages_early = False  # only the holder of the token starts an exchange through a tree

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.root = id  # of the exchange under way
        self.shares: dict[int, ExchangeModel] = {}  # what came from below in it
        self.asked = False  # whether something is still to come
        self.longest_below = 0.0  # seconds that those below took to answer, when this was not the root
        self.below: dict[int, tuple[int, ...]] = {}  # who is to be told the end, by bid

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """As in Stride, but for what goes through the tree."""
        match message:
            case PeerMessage() if sender not in self.ring:
                pass  # from a server that is one of us no more
            case ExchangeRequest() if message.bid > self.latest and message.root in self.ring:
                self.root, self._called = message.root, self._now()
                self.start_timer(EXCHANGE, PATIENT * self.longest_below or FIRST)
                self.call(message.bid)
            case ExchangeModel():
                self.gather(sender, message)
            case ExchangeResult():
                self.settle(message)
            case ExchangeRequest():
                pass  # of an exchange that is over
            case _:
                super().receive(sender, message)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """What goes down costs a mix as well."""
        return Work.MIX if isinstance(message, ExchangeResult) else super().work(sender, message)

    def expired(self, timer: str) -> None:
        """Go on with those who have answered."""
        if timer == EXCHANGE:
            self.pass_up()
        else:
            super().expired(timer)

    @property
    def branches(self) -> int:
        """How many are below one: with √n, nobody is more than two steps from the root."""
        return math.isqrt(self.n - 1) + 1

    def parent(self) -> int:
        """Who is above."""
        return self.at((self.place() - 1) // self.branches)

    def children(self) -> list[int]:
        """Who is below."""
        first = self.place() * self.branches + 1
        return [self.at(place) for place in range(first, min(first + self.branches, self.n))]

    def place(self) -> int:
        """How far behind the root this server comes on the ring."""
        return (self.ring.index(self.id) - self.ring.index(self.root)) % self.n

    def at(self, place: int) -> int:
        """Who comes so far behind the root."""
        return self.ring[(self.ring.index(self.root) + place) % self.n]

    def call(self, bid: int) -> None:
        """Have everyone below remember where it stands."""
        if self.exchanging:
            self.root = self.id
        self.stand(bid)
        self.shares, self.asked = {}, True
        for j in self.children():
            self.send_server(j, ExchangeRequest(bid, self.root))
        self.check_shares()

    def gather(self, j: int, share: ExchangeModel) -> None:
        """Something came from below."""
        if self.asked and share.bid == self.latest:
            self.shares[j] = share
            self.check_shares()

    def check_shares(self) -> None:
        """Go on when all is there."""
        if self.asked and self.suspected.issuperset(set(self.children()) - self.shares.keys()):
            took = self._now() - self._called
            if self.root == self.id:
                self.longest = max(self.longest, took)
            else:
                self.longest_below = max(self.longest_below, took)
            self.pass_up()

    def pass_up(self) -> None:
        """The average of what is below goes up; at the root it is everybody's, and the token goes on."""
        self.asked = False
        self.stop_timer(EXCHANGE)
        self.below = {b: js for b, js in self.below.items() if b in self.stances} | {self.latest: tuple(self.shares)}
        whole = average([self.stances[self.latest], *self.shares.values()])
        if self.root != self.id:
            self.send_server(self.parent(), whole)
            return
        self.heard = {self.id, *self.shares}
        self.settle(ExchangeResult(whole.weights, whole.momentum, whole.age, whole.bid))
        self.finish()

    def settle(self, common: ExchangeResult) -> None:
        """W ← W + M − S.W, and likewise m and A; and whoever took part below does the same."""
        mine = self.stances.pop(common.bid, None)
        if mine is None:
            return
        for j in self.below.pop(common.bid, ()):
            self.send_server(j, common)
        self.shift(common, mine, 1.0, 1 / self.n)
        self.record(Merged(self.id, self.root, common.bid, 1.0, self.age))

    def check_heard(self) -> None:
        """Nobody waits for who is out of reach; all below it are left out this time."""
        self.check_shares()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """An exchange under way ends without a result."""
        self.asked, self.root = False, self.id
        super().reformed(before, leads=leads)

    def missing(self) -> set[int]:
        """The root has heard of some for others, and the next tree has another shape."""
        return set()


def average(stances: Iterable[ExchangeModel]) -> ExchangeModel:
    """The mean of some stances, weighted by the data behind them."""
    total, weights, momentum, age, bid = 0, None, None, 0.0, 0
    for each in stances:
        total += each.data
        share, bid = each.data / total, each.bid
        if weights is None or momentum is None:
            weights, momentum = Weights(each.weights), Weights(each.momentum)
        weights.mix(each.weights, share)
        momentum.mix(each.momentum, share)
        age += share * (each.age - age)
    assert weights is not None
    assert momentum is not None
    return ExchangeModel(weights.snapshot(), momentum.snapshot(), age, total, bid)
