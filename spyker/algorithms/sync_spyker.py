"""Sync-Spyker: Spyker whose servers stop for each other (the comparison variant of the Spyker paper, Sec. 5.1).

Client updates are applied as in Spyker. When a server has applied ``h_intra`` of them since the last synchronisation,
it stops: it stores what its clients send, broadcasts its model and waits for all others, who stop as soon as they hear
of it. Each server then folds the n models in the order of ids, *starting from the first server's*, so that all end with
the same model and age, and serves what it stored. ``h_inter`` plays no part, nor does a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spyker.algorithms.spyker import Spyker
from spyker.protocol.facts import SyncStarted
from spyker.protocol.messages import Action, ClientMessage, Join, Leave, ModelBootstrap, PeerMessage, PeerModel, Update
from spyker.protocol.server import Work


class SyncSpyker(Spyker):
    """A server that holds its clients back while servers exchange models."""

    name, title, section = "sync-spyker", "Sync-Spyker", "spyker"
    receives = (PeerModel,)

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
            if isinstance(message, Update) and message.metrics is not None:
                message = replace(message, metrics=None)  # which have been told
            self.stored.append((sender, message))
            return
        if self.waiting and isinstance(message, Join):
            self.stored = [(k, m) for k, m in self.stored if k != sender or not isinstance(m, Leave)]
            if sender in self.updates and any(k == sender for k, _ in self.stored):
                return
        super().receive(sender, message)

    def postpones(self, message: ClientMessage) -> bool:
        """Updates and departures wait until the models of all servers are there."""
        return self.waiting and isinstance(message, Update | Leave)

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
        self.models = {later: models for later, models in self.models.items() if later >= bid}
        mine = PeerModel(self.weights.snapshot(), self.age, bid)
        self.models.setdefault(bid, {})[self.id] = mine
        self.send_all_servers(mine)

    def rcv_model(self, j: int, message: PeerModel) -> None:
        """Keep the model; begin if this is news; fold once all n are there."""
        if message.bid < self.bid:  # it comes too late
            self.call(j)
            return
        self.models.setdefault(message.bid, {})[j] = message
        if not self.waiting and message.bid > self.bid:
            self.begin(message.bid)
        self.check_models()

    def check_models(self) -> None:
        """Fold once all n are there; who is out of reach, or has begun a later synchronisation, will not come."""
        while self.waiting:
            later = {j for bid, models in self.models.items() if bid > self.bid for j in models}
            if not self.complete(self.models[self.bid].keys() | later):
                return
            self.fold(self.models.pop(self.bid))
            if later:  # a faster server has begun the next one already
                self.begin(min(bid for bid in self.models if bid > self.bid))

    def fold(self, models: dict[int, PeerModel]) -> None:
        """Merge all models, the same way on every server, and go back to the clients."""
        first, *others = sorted(models)
        self.weights.replace(models[first].weights)
        self.age = models[first].age
        for j in others:
            self.server_agg(j, models[j])
        self.waiting = False
        self.serve_again(tuple(self.stored))
        self.stored.clear()

    # --- Servers that come and go ----------------------------------------------------------------------------------

    uses_token = False
    has_token = False  # there is none

    def call(self, j: int) -> None:
        """Tell a server that is behind what is going on."""
        if self.waiting and j not in self.models[self.bid]:
            self.send_server(j, self.models[self.bid][self.id])

    def suspect(self, servers: frozenset[int]) -> list[Action]:
        """Who is back, or new, may not know what is going on."""
        for j in sorted(self.suspected - servers):
            self.call(j)
        return super().suspect(servers)

    def sighted(self) -> None:
        """Nobody waits for who is out of reach."""
        self.check_models()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Go on with other servers."""
        self.models = {bid: {j: m for j, m in ms.items() if j in self.ring} for bid, ms in self.models.items()}
        self.check_models()

    def bootstrap_from(self, bootstrap: ModelBootstrap) -> None:
        """Begin with another server's model."""
        self.weights.replace(bootstrap.weights)
        self.age = bootstrap.age
