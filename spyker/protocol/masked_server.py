"""Secure aggregation between servers: requests to helpers and their answers.

:mod:`spyker.privacy.masking` explains the protocol and does what needs no messages. An algorithm derives from
:class:`MaskedServer` and calls

- :meth:`~MaskedServer.add_masked` with each masked update,
- :meth:`~MaskedServer.open_sums` at the end of a round,

and implements ``summed``, which is called with the sum once the helpers have answered. Meanwhile ``opening`` is true.
Every server helps others, and a :class:`HelperServer` does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spyker.privacy.batches import Batch
from spyker.privacy.mask_helper import Asked, HelpError, MaskHelper
from spyker.privacy.masked_scores import MOST_SCORES, WORDS
from spyker.privacy.masking import EXTRAS, LEVELS, MaskedSum, MaskedSums, Terms
from spyker.privacy.offenders import SPARE
from spyker.protocol.buffers import parameters_only
from spyker.protocol.facts import ClientQuarantined, SumDiscarded, SumEvaluated, SumOpened
from spyker.protocol.filtered_clients import QUARANTINE
from spyker.protocol.messages import (
    Action,
    ClientMessage,
    Join,
    Leave,
    MaskedModel,
    MaskedUpdate,
    MaskTotal,
    Message,
    Model,
    OpenRefused,
    OpenRequest,
    PeerMessage,
    ToClient,
    Update,
)
from spyker.protocol.server import Server, Setup, Work
from spyker.vectors import length

MASKING_MESSAGES: tuple[type[PeerMessage], ...] = (OpenRequest, MaskTotal, OpenRefused)
"""Messages that any server may send to any other one."""
OPENING = "masks"  # timer that limits how long a server waits for a helper
OPENING_SECONDS = 30.0
LONGEST_REASON = 200  # characters
SPOILER = "spoilt-sums"  # reason of a quarantine
LEFT_OUT = "these clients are left out for this sum, to find out who spoils others"
MOST_NAMED = 256  # seals in a refusal


class MaskedServer(Server):
    """A server that can add masked updates up, and helps others to."""

    supports_masking = True

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        masking = self._masking = setup.masking
        norm = length(parameters_only(setup.weights, setup.buffers))
        scored = list(setup.client_metrics.items())[:MOST_SCORES] if masking is not None and masking.scores else []
        self._scored = [name for name, _ in scored]
        limits = [limit for _, limit in scored]
        self.masked_sums = None if masking is None else MaskedSums(setup.weights.size, setup.buffers, norm, limits)
        self.mask_helper = None if masking is None else MaskHelper(id, masking.threshold, masking.opener(id))
        self.masked_clients = set() if masking is None else set(roster)  # that are connected
        self._learners = setup.servers  # that have clients, at the start

    @classmethod
    def kinds(cls) -> dict[str, type[Message]]:
        """Return the message classes that the server receives or sends, by kind."""
        further: tuple[type[Message], ...] = (MaskedUpdate, *MASKING_MESSAGES)
        return super().kinds() | {kind.kind: kind for kind in further}

    # --- For algorithms ----------------------------------------------------------------------------------------------

    @property
    def masks(self) -> bool:
        """Whether clients mask their updates."""
        return self.masked_sums is not None

    @property
    def opening(self) -> bool:
        """Whether a sum is being opened."""
        return self.masked_sums is not None and self.masked_sums.opening

    @property
    def fewest_clients(self) -> int:
        """Number of clients that a round needs."""
        return 1 if self._masking is None else self._masking.threshold

    def add_masked(self, client: int, update: MaskedUpdate, multiple: float = 1.0) -> int:
        """Add a masked update to the next sum; it counts ``multiple`` times, at most once.

        Returns:
            The multiple that it counts with, as a number of ``1/LEVELS``; 0: there was no room for it.

        """
        assert self.masked_sums is not None
        times = round(LEVELS * multiple)
        # The median matters to clients only.
        terms = Terms(update.helper, update.scale, update.bound, update.bound, update.largest)
        scores = update.evaluated, update.scores
        arrays = update.masked, update.extra, update.seal
        added = self.masked_sums.add(client, *arrays, terms, update.weight, times, *scores)
        return times if added else 0

    def open_sums(self) -> None:
        """Ask the helpers to open what has arrived; :meth:`summed` follows, perhaps at once."""
        masking, sums = self._masking, self.masked_sums
        assert masking is not None
        assert sums is not None
        for number, batch in sums.close(masking.threshold):
            if number is None:
                left_out = batch.group == SPARE
                self._discarded(batch, LEFT_OUT if left_out else "there are too few clients, or one outweighs the rest")
            else:
                self.send_server(batch.helper, open_request(number, batch, len(self._scored) * WORDS))
        if sums.requested:
            self.start_timer(OPENING, OPENING_SECONDS)
            self._give_up_suspected()
        else:
            self._end_opening()

    def summed(self, total: MaskedSum) -> None:
        """Process the opened sum of a round. Implemented by algorithms that mask updates."""
        raise NotImplementedError(f"{type(self).__name__}.summed() is missing. Implement it")

    def update_bound(self, median: float) -> float:
        """Return the norm that clients clip their updates to, given the estimated median norm."""
        return 2.0 * median

    def reference_size(self) -> float:
        """Return the number of examples whose weight is 1; 1: all clients have the same weight."""
        return 1.0

    # --- Processing --------------------------------------------------------------------------------------------------

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Return the cost class: a mix to add up masks, an average for the sum of a round."""
        match message:
            case OpenRequest():
                return Work.MIX
            case MaskTotal():
                return Work.AVERAGE
        return super().work(sender, message)

    def handle(self, sender: int, message: ClientMessage | PeerMessage) -> list[Action]:
        """Process a message and return the actions."""
        match message:
            case OpenRequest():
                self._help(sender, message)
                return self._taken()
            case MaskTotal() | OpenRefused():
                self._opened(sender, message)
                return self._taken()
            case Update() if self.masks:
                message = Leave()  # a client that would show its update
                self.masked_clients.discard(sender)
            case MaskedUpdate() if not self.masks:
                message = Leave()
            case Join() if self.masks:
                self.masked_clients.add(sender)
            case Leave():
                self.masked_clients.discard(sender)
        return super().handle(sender, message)

    def expire(self, timer: str) -> list[Action]:
        """Process the expiry of a timer and return the actions."""
        if timer != OPENING:
            return super().expire(timer)
        sums = self.masked_sums
        if sums is not None and sums.requested:
            late = {batch.helper for batch in sums.requested.values()}
            sums.failed |= late
            for helper in sorted(late):
                self._give_up(helper, "it has not answered")
        return self._taken()

    def suspect(self, servers: frozenset[int]) -> list[Action]:
        """Set the servers that the failure detector suspects, and return the actions."""
        actions = super().suspect(servers)
        self._give_up_suspected()
        return actions + self._taken()

    def reform(self, epoch: int, ring: Sequence[int], *, leads: bool) -> list[Action]:
        """Start an epoch and return the actions. A helper that is no longer a member will not answer."""
        actions = super().reform(epoch, ring, leads=leads)
        self._give_up_suspected()
        return actions + self._taken()

    @property
    def _edits_actions(self) -> bool:
        return self.masked_sums is not None or super()._edits_actions

    def _outgoing(self, actions: list[Action]) -> list[Action]:
        masked = actions if self.masked_sums is None else [self._to_mask(action) for action in actions]
        return super()._outgoing(masked)

    def _to_mask(self, action: Action) -> Action:
        """Tell a client how to mask its update."""
        if not (isinstance(action, ToClient) and type(action.message) is Model):
            return action
        model, sums = action.message, self.masked_sums
        assert sums is not None
        terms = self.mask_terms()
        sums.issue(terms)
        return ToClient(action.client, MaskedModel(model.weights, model.age, model.version, model.rate, *terms))

    def mask_terms(self) -> Terms:
        """Return what clients are told about the masking of their next updates."""
        sums = self.masked_sums
        assert sums is not None
        bound = self.update_bound(sums.clip_median)
        scale = sums.scale_of(bound, len(self.masked_clients))
        return Terms(self.helper(), scale, bound, sums.median, self.reference_size(), len(self._scored))

    def helper(self) -> int:
        """Return the server for which clients seal: the nearest one that can help."""
        assert self._masking is not None
        assert self.masked_sums is not None
        known = [j for j in self._masking.helpers.get(self.id, ()) if self._is_member(j)]
        candidates = known or [j for j in self.ring if j != self.id] or list(self._masking.helpers.get(self.id, ()))
        there = [j for j in candidates if j not in self.suspected]
        answering = [j for j in there if j not in self.masked_sums.failed]
        return (answering or there or candidates or [self.id])[0]  # clients refuse the last one

    def _is_member(self, server: int) -> bool:
        """Return whether a server that may help is still a member, as far as this server knows."""
        assert self._masking is not None
        return server in self.ring or server >= self._learners  # a cloud or a helper is never in the ring

    # --- The home server ---------------------------------------------------------------------------------------------

    def _opened(self, helper: int, message: MaskTotal | OpenRefused) -> None:
        sums = self.masked_sums
        batch = None if sums is None else sums.requested.get(message.number)
        if sums is not None:
            sums.failed.discard(helper)  # it answers again, perhaps too late for this request
        if sums is None or batch is None or batch.helper != helper:
            return  # this server no longer waits for it
        if isinstance(message, OpenRefused):
            del sums.requested[message.number]
            self._discarded(batch, message.reason[:LONGEST_REASON])
            for client in sorted({batch.clients[place] for place in message.places if place < len(batch.clients)}):
                self._exclude(client, "seal")
        elif message.masks.size != batch.total.size or message.extra.size not in (batch.extra.size, EXTRAS):
            del sums.requested[message.number]
            self._discarded(batch, f"a sum of {message.masks.size} + {message.extra.size} numbers")
        elif sums.subtract(message.number, message.masks, message.extra):
            self.record(SumOpened(self.id, helper, len(set(batch.clients))))
        else:
            self._discarded(batch, self._spoilt())
        if not sums.requested:
            self._end_opening()

    def _spoilt(self) -> str:
        """Return what is known about a spoilt sum."""
        assert self._masking is not None
        reason, count = "the sum is larger than its clients can cause together", len(self._present())
        if not self.update_filter.on:
            return f"{reason}; robust.when says that nobody is excluded for it"
        if count > self._masking.threshold:
            return reason
        return f"{reason}; who spoilt it cannot be found out: there are {count} clients, as many as a sum needs"

    def _discarded(self, batch: Batch, reason: str) -> None:
        self.record(SumDiscarded(self.id, batch.helper, len(set(batch.clients)), reason))

    def _give_up(self, helper: int, reason: str) -> None:
        """Stop waiting for a helper. What was sealed for it is lost; its clients train again, for another one."""
        sums = self.masked_sums
        assert sums is not None
        for batch in sums.give_up(helper):
            self._discarded(batch, reason)
        if sums.opening and not sums.requested:
            self._end_opening()

    def _give_up_suspected(self) -> None:
        """Stop waiting for helpers that are suspected, if there are others, and for those that were removed."""
        sums = self.masked_sums
        if sums is None:
            return
        asked = {batch.helper for batch in sums.requested.values()}
        for helper in sorted(asked):
            if not self._is_member(helper):
                self._give_up(helper, "it is no longer a member")
            elif helper in self.suspected and self.helper() not in self.suspected:
                self._give_up(helper, "it is suspected")

    def _end_opening(self) -> None:
        sums, masking = self.masked_sums, self._masking
        assert sums is not None
        assert masking is not None
        self.stop_timer(OPENING)
        if self.update_filter.on:
            for client in sums.search.judge(self._present(), masking.threshold):
                self._exclude(client, SPOILER)
            sums.search.regroup(self._present(), masking.threshold)
        self.opened_sum(sums.finish())

    def opened_sum(self, total: MaskedSum) -> None:
        """Process the opened sum of a round."""
        assert self.masked_sums is not None
        self.masked_sums.observe(total)
        if total.scores:
            means = {self._scored[place]: score / total.evaluated for place, score in sorted(total.scores.items())}
            self.record(SumEvaluated(self.id, total.evaluators, max(1, round(total.evaluated)), means))
        self.summed(total)

    def _present(self) -> set[int]:
        """The clients that take part."""
        return self.masked_clients - self.update_filter.out.keys() - self.update_filter.rates.held

    def _exclude(self, client: int, reason: str) -> None:
        """Exclude a client for a while: it would spoil every sum."""
        update_filter = self.update_filter
        if update_filter.parameters is None or client in update_filter.out:
            return
        seconds = update_filter.parameters.quarantine
        update_filter.out[client] = True
        self.record(ClientQuarantined(self.id, client, reason, seconds))
        self.receive(client, Leave())
        self.start_timer(f"{QUARANTINE}{client}", seconds)

    # --- The helper --------------------------------------------------------------------------------------------------

    def _help(self, home: int, request: OpenRequest) -> None:
        helper = self.mask_helper
        if helper is None:
            return
        size = self.weights.snapshot().size
        try:
            masks = helper.masks(home, asked(request), size + EXTRAS + request.words)
        except HelpError as error:
            named = error.places[:MOST_NAMED]
            self.send_server(home, OpenRefused(request.number, str(error)[:LONGEST_REASON], named))
        else:
            self.send_server(home, MaskTotal(request.number, masks[:size], masks[size:]))


def open_request(number: int, batch: Batch, words: int = 0) -> OpenRequest:
    """Return the request to open a batch; ``words`` of its further numbers belong to scores."""
    times, lengths = np.array(batch.times, np.uint8), np.array(batch.lengths, np.uint16)
    weights, bounds = np.array(batch.weights, np.float64), np.array(batch.bounds, np.float64)
    seals = np.frombuffer(bytes(batch.seals), np.uint8)
    return OpenRequest(number, batch.scale, batch.largest, times, weights, bounds, lengths, seals, words)


def asked(request: OpenRequest) -> Asked:
    """Return what a request asks for; raise a ``HelpError`` if its seals are not as long as it says."""
    ends = np.cumsum(request.lengths, dtype=np.int64)
    if (ends[-1] if len(ends) else 0) != len(request.seals):
        raise HelpError("the seals are not as long as the request says")
    data = request.seals.tobytes()
    seals = [data[end - size : end] for end, size in zip(ends.tolist(), request.lengths.tolist(), strict=True)]
    numbers = request.times.tolist(), request.weights.tolist(), request.bounds.tolist()
    return Asked(request.scale, request.largest, *numbers, seals, request.words)


class HelperServer(MaskedServer):
    """A server without clients that opens sums for others, and does nothing else."""

    def start(self) -> Iterator[Action]:
        """Return no actions."""
        return iter(())

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Ignore messages of the algorithm."""
