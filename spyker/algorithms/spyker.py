"""Spyker, the server's side (Zuo, Cox, Chen, Decouchant: Asynchronous Multi-Server Federated Learning for
Geo-Distributed Clients, Middleware 2024). The procedures stand in the paper's order and under its names.

Theory of operation
-------------------
A server holds one model W with an *age* A, a float that measures the amount of training in the model. The server mixes
each client update into W on arrival, with a weight that decreases with staleness (Algorithm 1), and returns the new
model to the client at once. A client with more updates than the mean trains with a lower learning rate.

Because the servers' models drift apart, servers synchronise (Algorithm 2). One *token* circulates among them. When the
ages of two servers differ by ``h_inter``, or the token holder's age has grown by ``h_intra``, the holder sends its
model to all servers under the token's number, ``bid``. A server that receives a new ``bid`` sends its own model to all.
Each server merges models as they arrive; no server waits, and clients are not affected. When the holder has received
all models, it passes the token on.

A server without the token that sees the condition announces its age to the holder.

Comments mark differences from the paper's pseudocode; ``docs/concepts/differences.md`` gives the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.facts import AgeAnnounced, Merged, SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.messages import (
    Age,
    ClientMessage,
    Join,
    Leave,
    ModelBootstrap,
    PeerMessage,
    PeerModel,
    Token,
    Update,
)
from spyker.protocol.server import Server, Setup, Work, first_bid


@dataclass(frozen=True, slots=True)
class SpykerParameters:
    """The parameters of Spyker, under the paper's symbols."""

    client_rate: float = parameter(0.6, "η_i: mixing weight of a fresh client update", above=0, at_most=1)
    staleness_exponent: float = parameter(
        0.5, "a: weight (1 + τ)^(-a) of an update of staleness τ", at_least=0, at_most=100
    )
    peer_rate: float = parameter(0.6, "η_a: mixing weight of another server's model", above=0, at_most=1)
    activation: float = parameter(1.5, "φ: slope of the merge weight as a function of the age difference", at_least=0)
    h_inter: float | None = parameter(
        None, "synchronise when the ages of two servers differ by this; unset: clients / (5 · servers)", above=0
    )
    h_intra: float = parameter(
        350.0, "synchronise when a server's age has grown by this since the last synchronisation", above=0
    )
    decay: float = parameter(
        0.005, "β: decrease of a client's learning rate per update above the mean; 0: off", at_least=0
    )
    min_rate: float = parameter(1e-6, "η_min: lower bound of the decayed learning rate", at_least=0)

    def resolve(self, clients: int, servers: int) -> SpykerParameters:
        """Return the parameters with defaults that depend on the numbers of clients and servers."""
        return self if self.h_inter is not None else replace(self, h_inter=clients / (5 * servers))


class Spyker(Server):
    """Server S_i."""

    topology = Topology.FLAT
    Parameters = SpykerParameters
    receives: ClassVar[tuple[type[PeerMessage], ...]] = (Age, Token, PeerModel)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.parameters: SpykerParameters = setup.parameters.resolve(setup.clients, setup.servers)
        self.updates = dict.fromkeys(roster, 0)  # u[k]
        self.updates_sum = 0  # Σ u[k], so that the mean costs no loop
        self.server_init()

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Call the paper's procedure for this kind of message."""
        match message:
            case Update():
                self.aggregation(sender, message)
            case PeerMessage() if sender not in self.ring:
                pass  # from a server that was removed
            case PeerModel():
                self.rcv_model(sender, message)
            case Age():
                self.rcv_age(sender, message)
            case Token():
                self.rcv_token(message)
            case Join():
                self.registration(sender)
            case Leave():
                self.departure(sender)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Charge one mix for each update or model of another server."""
        return Work.MIX if isinstance(message, Update | PeerModel) else Work.NOTHING

    # --- Algorithm 1: interactions between clients and servers ---------------------------------------------------

    def registration(self, k: int) -> None:
        """Register a client; one that joins late starts with the mean number of updates."""
        if k not in self.updates:
            self.updates[k] = math.floor(self.mean_updates()) if self.updates else 0
            self.updates_sum += self.updates[k]
        self.send_client(k, self.model(self.rate))

    def departure(self, k: int) -> None:
        """Remove a client from the mean. The paper does not consider departures."""
        self.updates_sum -= self.updates.pop(k, 0)

    def aggregation(self, k: int, update: Update) -> None:
        """Procedure Aggregation(W_k, A_k)."""
        if k not in self.updates:
            return  # not a client of ours
        p = self.parameters
        staleness = max(0.0, self.age - update.age)  # τ
        weight = math.pow(1 + staleness, -p.staleness_exponent)  # s(τ); the paper has A_i - A_k itself
        self.weights.mix(update.weights, p.client_rate * weight)
        self.age += 1
        self.version += 1
        self.updates[k] += 1
        self.updates_sum += 1
        rate = self.decay(k)
        self.send_client(k, self.model(rate))
        self.record(UpdateApplied(self.id, k, staleness, weight, self.age, self.version, rate))
        self.check_synchronization(after_update=True)

    def decay(self, k: int) -> float:
        """Function Decay(η, u[k], ū). It starts from η_init each time and so never compounds."""
        ahead = self.updates[k] - self.mean_updates()
        if ahead < 0:
            return self.rate
        return max(self.parameters.min_rate, self.rate - self.parameters.decay * ahead)

    def mean_updates(self) -> float:
        """The mean of u[k] over the clients registered now: ū."""
        return self.updates_sum / len(self.updates)

    # --- Algorithm 2: token-triggered aggregation of server models -----------------------------------------------

    def server_init(self) -> None:
        """Procedure ServerInit()."""
        n = self.n
        self.token: Token | None = Token(epoch=0, bid=1, ages=(0.0,) * n) if self.id == self.ring[0] else None
        self.heard: set[int] = set()  # servers heard from for the token's bid; the paper's cnt counts messages
        self.ages = [0.0] * n
        # The paper's didBroadcast is a set of bids. A holder waits for everybody's model of a bid before the next bid
        # can exist, so the last one stands for all before it.
        self.last_broadcast = 0
        self.ongoing_synchro = False
        self.age_prev = 0.0  # A_prev
        self.age_announced = 0.0  # A when this server last announced it; not in the paper

    def rcv_age(self, j: int, message: Age) -> None:
        """Procedure RcvAge(A_j)."""
        at = self.ring.index(j)
        self.ages[at] = max(self.ages[at], message.age)
        self.check_synchronization()

    def rcv_token(self, token: Token) -> None:
        """Procedure RcvToken(t)."""
        if token.epoch != self.epoch:
            return  # it was replaced by the token of a later epoch
        self.ages = [max(mine, theirs) for mine, theirs in zip(self.ages, token.ages, strict=True)]
        self.token = replace(token, bid=token.bid + 1)
        self.heard = set()
        self.record(TokenArrived(self.id, self.token.bid))
        self.check_synchronization()

    def check_synchronization(self, *, after_update: bool = False) -> None:
        """Procedure checkSynchronization()."""
        if len(self.ring) == 1:
            return
        p = self.parameters
        assert p.h_inter is not None
        self.ages[self.ring.index(self.id)] = self.age  # the paper never sets a server's own entry
        ages = self.ages
        if self.suspected:
            ages = [age for j, age in zip(self.ring, ages, strict=True) if j not in self.suspected]
        drifted = max(ages) - min(ages) >= p.h_inter
        grown = self.age - self.age_prev >= p.h_intra
        if not (drifted or grown) or len(ages) == 1:
            return
        if self.token is not None:
            if not self.ongoing_synchro and self._may_lead():
                self.ongoing_synchro = True
                self.heard = {self.id}
                self.record(SyncStarted(self.id, self.token.bid))
                self.broadcast(self.token.bid)
        # The paper announces here in any case. Announcements would answer announcements and grow without bound.
        elif after_update and self.age - self.age_announced >= p.h_inter:
            self.age_announced = self.age
            self.record(AgeAnnounced(self.id, self.age))
            self.send_all_servers(Age(self.age))

    def broadcast(self, bid: int) -> None:
        """Send (W_i, A_i, bid) to all servers, once for each bid."""
        self.age_prev = self.age
        self.last_broadcast = bid
        self.send_all_servers(PeerModel(self.weights.snapshot(), self.age, bid))

    def rcv_model(self, j: int, message: PeerModel) -> None:
        """Procedure RcvModel(W_j, A_j, bid)."""
        at = self.ring.index(j)
        self.ages[at] = max(self.ages[at], message.age)
        if message.bid > self.last_broadcast:  # bid ∉ didBroadcast
            self.broadcast(message.bid)
        self.server_agg(j, message)
        if self.token is not None and self.token.bid == message.bid:
            self.heard.add(j)
            self.check_heard()

    def check_heard(self) -> None:
        """Pass the token on when the models of all servers have arrived."""
        if self.token is None or not self.ongoing_synchro or not self.complete(self.heard):
            return
        self.ongoing_synchro = False
        self.ages[self.ring.index(self.id)] = self.age
        following, token = self.next_server(), replace(self.token, ages=tuple(self.ages))
        if following == self.id:  # all others are suspected
            self.token = replace(token, bid=token.bid + 1)
        else:
            self.token = None
            self.send_server(following, token)

    def server_agg(self, j: int, message: PeerModel) -> None:
        """Procedure ServerAgg(W_j, A_j)."""
        p = self.parameters
        weight = merge_weight(self.age, message.age, p.activation)
        self.weights.mix(message.weights, p.peer_rate * weight)
        self.age = merge_age(self.age, message.age, p.peer_rate * weight)
        self.record(Merged(self.id, j, message.bid, weight, self.age))

    # --- Failures of servers, which the paper does not consider ------------------------------------------------

    uses_token = True

    @property
    def has_token(self) -> bool:
        """Whether this server holds the token."""
        return self.token is not None

    def sighted(self) -> None:
        """Stop waiting for suspected servers."""
        self.check_heard()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Continue with the servers and the token of the new epoch. New servers get this server's age."""
        known = dict(zip(before, self.ages, strict=True))
        self.ages = [known.get(j, self.age) for j in self.ring]
        self.token, self.heard, self.ongoing_synchro = None, set(), False
        if leads:
            self.token = Token(self.epoch, first_bid(self.epoch), tuple(self.ages))
            self.record(TokenArrived(self.id, self.token.bid))
            self.check_synchronization()

    def bootstrap_from(self, bootstrap: ModelBootstrap) -> None:
        """Start from another server's model, whose age is known to all."""
        super().bootstrap_from(bootstrap)
        self.age_prev = self.age_announced = self.age
        self.ages = [self.age] * self.n


def merge_weight(age: float, peer_age: float, activation: float) -> float:
    """Return w_ij, the logistic function of φ(A_j − A_i) / max(1, A_i)."""
    a = activation * (peer_age - age) / max(1.0, age)  # the paper divides by A_i, which starts at 0
    if a >= 0:
        return 1 / (1 + math.exp(-a))
    return math.exp(a) / (1 + math.exp(a))  # the same number, without overflow


def merge_age(age: float, peer_age: float, share: float) -> float:
    """Return the age of a model after a peer's model was mixed in with this share."""
    return (1 - share) * age + share * peer_age
