"""FedAvg (McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017).

One server works in rounds: a fraction of the clients trains the current model. After the last update has arrived, the
model becomes the average of the updates, weighted by the clients' numbers of data points.

The paper does not consider departures. Here the server drops a departed client from the round and renormalises the
weights of the others. If no client of the round is left, the round restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.privacy.masking import MaskedSum, reference_size
from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.masked_server import MASKING_MESSAGES
from spyker.protocol.messages import Action, ClientMessage, Join, Leave, MaskedUpdate, PeerMessage, Update
from spyker.protocol.noisy_server import NoisyServer
from spyker.protocol.server import Setup, Work
from spyker.protocol.weights import Weights


@dataclass(frozen=True, slots=True)
class FedAvgParameters:
    """The parameters of FedAvg."""

    fraction: float = parameter(1.0, "C: fraction of the clients that train in each round", above=0, at_most=1)


class FedAvg(NoisyServer):
    """The single server; in HierFAVG, the base class of edges."""

    topology = Topology.SINGLE
    Parameters: ClassVar[type[Any]] = FedAvgParameters
    waits_for_all_clients = True

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.random = setup.generator(id)
        self.sizes = dict(roster)  # d_k
        self.round = 0  # rounds that have ended
        self.shares: dict[int, float] = {}  # d_k/d of the clients in this round
        self.awaited: set[int] = set()
        self.answered: list[int] = []
        self.average = Weights.zeros(setup.weights)  # Σ d_k/d · W_k of the updates so far
        self.idle = False  # no clients to start a round with

    def start(self) -> Iterator[Action]:
        """Start the first round."""
        self.begin_round()
        return iter(self._taken())

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Add an awaited update to the round's average. A new client takes part from the next round on."""
        match message:
            case Update() | MaskedUpdate() if sender in self.awaited and message.version != self.version:
                self.send_client(sender, self.model(self.rate))  # the update is from another round
            case Update() | MaskedUpdate() if sender in self.awaited and self.sums_updates:
                self.awaited.remove(sender)
                self.answered += [sender] if self.add_to_sum(sender, message) else []
                if not self.awaited:
                    self.complete_round()
            case Update() if sender in self.awaited:
                self.resize(sender, message.examples or self.sizes[sender])
                self.awaited.remove(sender)
                self.answered.append(sender)
                self.average.add(message.weights, self.shares[sender])
                if not self.awaited:
                    self.complete_round()
            case Join():
                self.resize(sender, message.size)
                if self.idle:
                    self.begin_round()
                elif sender in self.awaited:  # the client lost its task
                    self.send_client(sender, self.model(self.rate))
            case Leave():
                self.departure(sender)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Charge the aggregation to the message that ends the round: the last update or departure."""
        if self.masks or isinstance(message, MASKING_MESSAGES):
            return super().work(sender, message)
        match message:
            case Update():
                ends = message.version == self.version
            case Leave():
                ends = bool(self.answered)
            case _:
                ends = False
        return Work.AVERAGE if ends and self.awaited == {sender} else Work.NOTHING

    def resize(self, k: int, size: int) -> None:
        """Set a client's number of data points; if its update is awaited, the weights of this round follow."""
        if k in self.awaited and size != self.sizes[k]:
            share = self.shares[k] * size / self.sizes[k]
            total = 1 - self.shares[k] + share
            self.shares = {j: (share if j == k else other) / total for j, other in self.shares.items()}
            self.average.scale(1 / total)
        self.sizes[k] = size

    def departure(self, k: int) -> None:
        """Remove a client. An update that has arrived counts; a missing one is no longer awaited."""
        self.sizes.pop(k, None)
        if k not in self.awaited:
            return
        self.awaited.remove(k)
        del self.shares[k]
        if not self.shares:
            self.begin_round()  # no update has arrived or will arrive
            return
        rest = sum(self.shares.values())
        self.shares = {j: share / rest for j, share in self.shares.items()}
        self.average.scale(1 / rest)
        if not self.awaited:
            self.complete_round()

    def begin_round(self) -> None:
        """Sample the clients of this round and send them the model. Without enough clients, wait for a join."""
        self.idle = len(self.sizes) < self.fewest_clients
        if self.idle:
            return
        chosen = sorted(self.sizes)
        if self.parameters.fraction < 1:
            count = max(self.fewest_clients, round(self.parameters.fraction * len(chosen)))
            chosen = sorted(self.random.choice(chosen, count, replace=False).tolist())
        self.awaited = set(chosen)
        size = sum(self.sizes[k] for k in chosen)  # d
        self.shares = {k: self.sizes[k] / size for k in chosen}
        model = self.model(self.rate)
        self.average = Weights.zeros(model.weights)
        for k in chosen:
            self.send_client(k, model)

    def complete_round(self) -> None:
        """End the round: all updates have arrived. With masks or noise, their sum comes first."""
        if self.sums_updates:
            self.sum_updates()
        else:
            self.end_round()

    def summed(self, total: MaskedSum) -> None:
        """W ← W + Σ d_k·Δ_k / Σ d_k; if no sum could be opened, repeat the round."""
        if total.vector is None:
            self.answered.clear()
            self.begin_round()
            return
        self.answered = [k for k in self.answered if k in total.clients]
        self.average.replace(self.weights.snapshot())
        self.average.add(total.vector, 1 / total.weight)
        self.end_round()

    @property
    def cohort(self) -> float:
        """Number of clients that a round is planned to have."""
        fraction = self.parameters.fraction
        return super().cohort if fraction == 1 else max(self.fewest_clients, round(fraction * super().cohort))

    def reference_size(self) -> float:
        """Return the number of examples whose weight is 1."""
        return reference_size(list(self.sizes.values()))

    def end_round(self) -> None:
        """Aggregate the updates and record them."""
        self.aggregate()
        for k in self.answered:
            self.age += 1
            self.version += 1
            self.record(UpdateApplied(self.id, k, 0.0, self.shares[k], self.age, self.version, self.rate))
        self.answered.clear()
        self.round += 1
        self.record(RoundEnded(self.id, self.round))
        self.after_round()

    def aggregate(self) -> None:
        """W ← Σ d_k/d · W_k."""
        self.weights.replace(self.average.snapshot())

    def after_round(self) -> None:
        """Start the next round."""
        self.begin_round()
