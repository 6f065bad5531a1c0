"""The part of a server that passes clients' messages through the update filter, before the algorithm receives them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from spyker.protocol.client import Client
from spyker.protocol.facts import ClientQuarantined, Fact, UpdateClipped, UpdateDropped, UpdateRejected
from spyker.protocol.messages import ClientMessage, Join, Leave, MaskedUpdate, PeerMessage, Update
from spyker.protocol.weights import Weights
from spyker.robust.claimed_sizes import UNKNOWN_SIZE
from spyker.robust.update_filter import FilterDecision, UpdateFilter, Verdict

QUARANTINE = "quarantine:"  # prefix of the timer that ends a quarantine; the client's number follows
HELD = "held"  # timer that lets clients join that sent too many updates, if the others do not answer


class FilteredClients(ABC):
    """A server's clients behind the update filter; the base class of :class:`~spyker.protocol.server.Server`."""

    client: ClassVar[type[Client]]
    id: int
    weights: Weights
    update_filter: UpdateFilter

    @abstractmethod
    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Process a message. Implemented by the algorithm."""

    @abstractmethod
    def resize(self, k: int, size: int) -> None:
        """Change the number of data points of a client."""

    @abstractmethod
    def record(self, fact: Fact) -> None:
        """Write a fact to the run record."""

    @abstractmethod
    def start_timer(self, timer: str, seconds: float) -> None:
        """Call ``expired`` after ``seconds``."""

    @abstractmethod
    def stop_timer(self, timer: str) -> None:
        """Cancel a timer."""

    def expect_resent(self, client: int) -> None:
        """Note that the client's next update was sent before, to a process that crashed: it is not counted."""
        if self.update_filter.on:
            self.update_filter.rates.resent.add(client)

    def _filter(self, k: int, message: ClientMessage) -> None:
        """Pass a client's message to the algorithm, unless its client is in quarantine or its update is rejected.

        A client that learns how much data it has when it trains claims a size with its first update. If the sizes of
        the other clients are still unknown, too, nothing bounds the claim, so it counts from the next update on.
        """
        update_filter = self.update_filter
        first_claim: int | None = None
        if isinstance(message, Join):
            admitted = update_filter.join(k, message.size)
        elif isinstance(message, Leave):
            admitted = update_filter.leave(k)
        else:
            admitted = update_filter.admits(k)
            examples = message.examples if admitted and isinstance(message, Update) else None
            if isinstance(message, Update) and examples is not None:
                if update_filter.sizes.unknown(k):
                    first_claim, message = examples, replace(message, examples=UNKNOWN_SIZE)
                else:
                    update_filter.sizes.claim(k, examples)
        self._resize_clients()
        if admitted and isinstance(message, Update):
            update, model, difference = message, self.weights.snapshot(), self.client.difference
            if update.examples is not None and update.examples > update_filter.sizes.bounded(k):
                update = replace(update, examples=update_filter.sizes.bounded(k))
            verdict = update_filter.check(k, update.weights, update.version, model, difference=difference)
            self._apply(k, update, verdict)
        elif admitted and isinstance(message, MaskedUpdate) and not update_filter.admits_masked(k, message.version):
            self._drop(k)
        elif admitted:
            self.receive(k, Join(update_filter.sizes.bounded(k)) if isinstance(message, Join) else message)
        if first_claim is not None:
            update_filter.sizes.claim(k, first_claim)
            self._resize_clients(k)
        self._release(update_filter.released())

    def _resize_clients(self, *claimed: int) -> None:
        """Tell the algorithm which sizes now count; ``claimed`` are clients with a new claim."""
        for j in self.update_filter.resized(*claimed):
            self.resize(j, self.update_filter.sizes.bounded(j))

    def _apply(self, k: int, update: Update, verdict: Verdict) -> None:
        """Apply the verdict on an update: record it, and tell the algorithm."""
        match verdict.decision:
            case FilterDecision.ACCEPTED:
                self.receive(k, update)
            case FilterDecision.CLIPPED:
                self.record(UpdateClipped(self.id, k, verdict.norm, verdict.limit))
                self.receive(k, replace(update, weights=verdict.weights))
            case FilterDecision.REJECTED:
                self.record(UpdateRejected(self.id, k, verdict.norm, verdict.limit))
                self.receive(k, Leave())
                self.receive(k, Join(self.update_filter.sizes.bounded(k)))
            case FilterDecision.DROPPED:
                self._drop(k)
            case FilterDecision.QUARANTINED:
                assert self.update_filter.parameters is not None
                seconds = self.update_filter.parameters.quarantine
                reason = "sign-flipped" if verdict.sign_flipped else "norm"
                self.record(ClientQuarantined(self.id, k, reason, seconds))
                self.receive(k, Leave())
                self.start_timer(f"{QUARANTINE}{k}", seconds)

    def _drop(self, k: int) -> None:
        """Drop an update of a client that sends too many, and give it no task for a while."""
        assert self.update_filter.parameters is not None
        self.record(UpdateDropped(self.id, k))
        self.receive(k, Leave())
        if len(self.update_filter.rates.held) == 1:
            self.start_timer(HELD, self.update_filter.parameters.quarantine)

    def _release(self, clients: Sequence[int]) -> None:
        """Let clients join that were held because they had sent too many updates."""
        if clients:
            self.stop_timer(HELD)
        for k in clients:
            self.receive(k, Join(self.update_filter.sizes.bounded(k)))

    def _end_quarantine(self, k: int) -> None:
        """Let a client join whose quarantine is over, if it is still connected."""
        size = self.update_filter.end_quarantine(k)
        if size is not None:
            self.receive(k, Join(size))
