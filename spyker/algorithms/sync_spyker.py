"""Sync-Spyker: Spyker with blocking synchronisation (the comparison variant of the Spyker paper, Sec. 5.1).

Client updates are applied as in Spyker. When a server has applied ``h_intra`` updates since the last synchronisation,
it stores further client messages, broadcasts its model and waits for all others, which stop on receipt. Each server
then folds the n models in the order of ids, *starting from the first server's*, so that all have the same model and
age, and processes the stored messages. ``h_inter`` and the token are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spyker.algorithms.spyker import Spyker
from spyker.protocol.facts import SyncStarted
from spyker.protocol.messages import Action, ClientMessage, Join, Leave, ModelBootstrap, PeerMessage, PeerModel, Update
from spyker.protocol.server import Work


class SyncSpyker(Spyker):
    """A server that stores client messages while servers exchange models."""

    name, title, section = "sync-spyker", "Sync-Spyker", "spyker"
    receives = (PeerModel,)

    def server_init(self) -> None:
        """Initialise the synchronisation state."""
        self.bid = 0  # the number of the last synchronisation this server began
        self.waiting = False
        self.count = 0  # client updates applied since this server last stopped
        self.stored: list[tuple[int, ClientMessage]] = []
        self.models: dict[int, dict[int, PeerModel]] = {}  # by synchronisation, by server

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Store client updates while waiting; otherwise as in Spyker.

        A departure is stored behind the updates, so that the client's earlier updates still count. If the client
        rejoins in the meantime, its departure is dropped; a stored update will be answered with its next task.
        """
        if self.waiting and isinstance(message, Update | Leave):
            if isinstance(message, Update) and (message.metrics is not None or message.evaluation is not None):
                message = replace(message, metrics=None, evaluation=None)  # they are recorded already
            self.stored.append((sender, message))
            return
        if self.waiting and isinstance(message, Join):
            self.stored = [(k, m) for k, m in self.stored if k != sender or not isinstance(m, Leave)]
            if sender in self.updates and any(k == sender for k, _ in self.stored):
                return
        super().receive(sender, message)

    def postpones(self, message: ClientMessage) -> bool:
        """Return whether the message is an update or departure during a synchronisation."""
        return self.waiting and isinstance(message, Update | Leave)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Charge nothing for an update that is only stored."""
        if self.waiting and isinstance(message, Update):
            return Work.NOTHING
        return super().work(sender, message)

    def check_synchronization(self, *, after_update: bool = False) -> None:
        """Count the updates; start a synchronisation after ``h_intra`` of them."""
        self.count += after_update
        if self.n > 1 and self.count >= self.parameters.h_intra:
            self.record(SyncStarted(self.id, self.bid + 1))
            self.begin(self.bid + 1)

    def begin(self, bid: int) -> None:
        """Stop processing updates, and send the model to all other servers."""
        self.bid, self.waiting, self.count = bid, True, 0
        self.models = {later: models for later, models in self.models.items() if later >= bid}
        mine = self.as_sent(PeerModel(self.weights.snapshot(), self.age, bid))  # all servers fold the same models
        self.models.setdefault(bid, {})[self.id] = mine
        self.send_all_servers(mine)

    def rcv_model(self, j: int, message: PeerModel) -> None:
        """Store the model; start the synchronisation if it is new; fold when all n models have arrived."""
        if message.bid < self.bid:  # its synchronisation is over
            self.call(j)
            return
        self.models.setdefault(message.bid, {})[j] = message
        if not self.waiting and message.bid > self.bid:
            self.begin(message.bid)
        self.check_models()

    def check_models(self) -> None:
        """Fold when all models have arrived, except those of suspected servers and servers that are ahead."""
        while self.waiting:
            later = {j for bid, models in self.models.items() if bid > self.bid for j in models}
            if not self.complete(self.models[self.bid].keys() | later):
                return
            self.fold(self.models.pop(self.bid))
            if later:  # a faster server has started the next one
                self.begin(min(bid for bid in self.models if bid > self.bid))

    def fold(self, models: dict[int, PeerModel]) -> None:
        """Merge all models in the same order on every server, and process the stored messages."""
        first, *others = sorted(models)
        self.weights.replace(models[first].weights)
        self.age = models[first].age
        for j in others:
            self.server_agg(j, models[j])
        self.waiting = False
        self.serve_again(tuple(self.stored))
        self.stored.clear()

    # --- Membership changes ----------------------------------------------------------------------------------

    uses_token = False
    has_token = False  # there is none

    def call(self, j: int) -> None:
        """Send the current synchronisation's model to a server that is behind."""
        if self.waiting and j not in self.models[self.bid]:
            self.send_server(j, self.models[self.bid][self.id])

    def suspect(self, servers: frozenset[int]) -> list[Action]:
        """Send the current model to servers that are no longer suspected."""
        for j in sorted(self.suspected - servers):
            self.call(j)
        return super().suspect(servers)

    def sighted(self) -> None:
        """Stop waiting for suspected servers."""
        self.check_models()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Continue with the servers of the new epoch."""
        self.models = {bid: {j: m for j, m in ms.items() if j in self.ring} for bid, ms in self.models.items()}
        self.check_models()

    def bootstrap_from(self, bootstrap: ModelBootstrap) -> None:
        """Start from another server's model."""
        self.weights.replace(bootstrap.weights)
        self.age = bootstrap.age
