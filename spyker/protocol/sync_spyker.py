"""Sync-Spyker: Spyker whose servers stop for each other (the comparison variant of the Spyker paper, Sec. 5.1).

Client updates are applied as in Spyker. When a server has applied ``h_intra`` of them since the last synchronisation,
it stops: it stores what its clients send, broadcasts its model and waits for all others, who stop as soon as they hear
of it. Each server then folds the n models in the order of ids, *starting from the first server's*, so that all end with
the same model and age, and serves what it stored. ``h_inter`` plays no part, nor does a token.
"""

from __future__ import annotations

from spyker.protocol.facts import SyncStarted
from spyker.protocol.messages import ClientMessage, Join, Leave, PeerMessage, PeerModel, Update
from spyker.protocol.server import Work
from spyker.protocol.spyker import Spyker


class SyncSpyker(Spyker):
    """A server that holds its clients back while servers exchange models."""

    name, title, section = "sync-spyker", "Sync-Spyker", "spyker"
    hears = (PeerModel,)

    def server_init(self) -> None:
        """At the start nobody synchronises."""
        self.bid = 0  # the number of the last synchronisation this server began
        self.waiting = False
        self.count = 0  # client updates applied since this server last stopped
        self.stored: list[tuple[int, ClientMessage]] = []
        self.models: dict[int, dict[int, PeerModel]] = {}  # by synchronisation, by server

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Store client updates while waiting; otherwise as in Spyker.

        A departure is stored behind them, so that what the client has sent before still counts. If it comes back in
        the meantime, it has never been away: if it has sent something, that will be answered with its next task.
        """
        if self.waiting and isinstance(message, Update | Leave):
            self.stored.append((sender, message))
            return
        if self.waiting and isinstance(message, Join):
            self.stored = [(k, m) for k, m in self.stored if k != sender or not isinstance(m, Leave)]
            if sender in self.updates and any(k == sender for k, _ in self.stored):
                return
        super().receive(sender, message)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """An update that is only stored costs nothing."""
        if self.waiting and isinstance(message, Update):
            return Work.NOTHING
        return super().work(sender, message)

    def check_synchronization(self, *, after_update: bool = False) -> None:
        """Count the updates; the ``h_intra``-th begins a synchronisation."""
        self.count += after_update
        if self.n > 1 and self.count >= self.parameters.h_intra:
            self.record(SyncStarted(self.id, self.bid + 1))
            self.begin(self.bid + 1)

    def begin(self, bid: int) -> None:
        """Stop serving clients, and tell all other servers by sending them the model."""
        self.bid, self.waiting, self.count = bid, True, 0
        mine = PeerModel(self.weights.snapshot(), self.age, bid)
        self.models.setdefault(bid, {})[self.id] = mine
        self.send_all_servers(mine)

    def rcv_model(self, j: int, message: PeerModel) -> None:
        """Keep the model; begin if this is news; fold once all n are there."""
        self.models.setdefault(message.bid, {})[j] = message
        if not self.waiting and message.bid > self.bid:
            self.begin(message.bid)
        while self.waiting and len(self.models[self.bid]) == self.n:
            self.fold(self.models.pop(self.bid))
            if self.bid + 1 in self.models:  # a faster server has begun the next one already
                self.begin(self.bid + 1)

    def fold(self, models: dict[int, PeerModel]) -> None:
        """Merge all models, the same way on every server, and go back to the clients."""
        self.weights.replace(models[0].weights)
        self.age = models[0].age
        for j in range(1, self.n):
            self.server_agg(j, models[j])
        self.waiting = False
        self.serve_again(tuple(self.stored))
        self.stored.clear()
