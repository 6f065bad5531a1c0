"""The server's side of compression: it codes models, and decodes updates before they are filtered."""

from __future__ import annotations

import contextlib
from typing import NamedTuple, TypeVar, cast

from spyker.compression.block_codec import NONE, UncodableError, encode
from spyker.compression.settings import CompressionSettings
from spyker.protocol.codec import CodedAs, Sizes, schema_of
from spyker.protocol.coded_messages import coded_kind, convert, plain_kind, vector_fields
from spyker.protocol.messages import ClientMessage, Join, Leave, Message, Model, PeerMessage
from spyker.protocol.public_model import PublicModel
from spyker.vectors import Vector

M = TypeVar("M", bound=Message)
P = TypeVar("P", bound=PeerMessage)


class SentTask(NamedTuple):
    """The last task of a client, until its update arrives."""

    version: int
    number: int
    """Number of the public model that the client has if it gets the task; 0: none."""
    model: Vector | None
    """What the client trains, if its update is coded as the difference from it."""


class ServerCoder:
    """Codes what one server sends, and decodes what it receives.

    Nothing of it is part of a checkpoint. After a restart, clients are sent the public model in full, and an update
    that is the difference from a model which the server has lost counts as the difference from its current model.
    """

    def __init__(self, settings: CompressionSettings, sizes: Sizes, *, difference: bool) -> None:
        """``difference`` says whether the clients' updates are differences anyway."""
        self.settings, self.sizes = settings, sizes
        self.public = PublicModel(settings.models, sizes)
        self._origins = settings.updates != NONE and not difference
        self._tasks: dict[int, SentTask] = {}
        self._known: dict[int, int] = {}  # number of the public model that a client is known to have
        self._exchanged: dict[type[PeerMessage], tuple[PeerMessage, PeerMessage, PeerMessage]] = {}

    def forget(self, client: int) -> None:
        """Note that a client may have lost its task and its public model."""
        self._tasks.pop(client, None)
        self._known.pop(client, None)

    def reconnected(self, client: int) -> None:
        """Note that a client may be a new process without a public model. It may still hold the update for its task."""
        self._known.pop(client, None)
        if client in self._tasks:
            self._tasks[client] = self._tasks[client]._replace(number=0)

    def encode_model(self, client: int, message: Model) -> tuple[Model, Vector]:
        """Return the message to be sent to a client, and the model that it will train."""
        sent, model, number = message, message.weights, 0
        kind = coded_kind(type(message), self.settings.models)
        if kind is not type(message):
            known = 0 if client in self._tasks else self._known.get(client, 0)
            clients = len(self._known.keys() | self._tasks.keys())
            with contextlib.suppress(UncodableError):
                difference, model = self.public.tell(message.weights, known, clients)
                base, number, public, coded = difference
                fields = {"public_base": base, "public_number": number, "public": public}
                sent = convert(message, kind, weights=coded, **fields)
        self._tasks[client] = SentTask(message.version, number, model if self._origins else None)
        return sent, model

    def as_sent(self, message: P) -> P:
        """Return a message to other servers as they will decode it; the same object is sent as these bytes."""
        return cast(P, self._coded(message)[1])

    def encode_peer(self, message: PeerMessage) -> PeerMessage:
        """Return the message to be sent to another server."""
        return self._coded(message)[2]

    def _coded(self, message: PeerMessage) -> tuple[PeerMessage, PeerMessage, PeerMessage]:
        """Return a message, as receivers decode it, and coded. The last one of each class is coded once."""
        kind = coded_kind(type(message), self.settings.exchanges)
        found = self._exchanged.get(kind)
        if found is not None and (found[0] is message or found[1] is message):
            return found
        if kind is type(message):
            return message, message, message
        try:
            vectors = {
                name: encode(getattr(message, name), self.settings.exchanges, self.sizes.buffers)
                for name in vector_fields(type(message))
            }
        except UncodableError:
            return message, message, message
        coded = convert(message, kind, **vectors)
        self._exchanged[kind] = message, decoded(coded, self.sizes), coded
        return self._exchanged[kind]

    def decode(self, sender: int, message: ClientMessage | PeerMessage, current: Vector) -> ClientMessage | PeerMessage:
        """Return a message with decoded vectors; ``current`` is the server's model."""
        origin = None
        if isinstance(message, ClientMessage):
            if isinstance(message, Join | Leave):
                self.forget(sender)
                return message
            task = self._tasks.pop(sender, None)
            answered = task is not None and task.version == getattr(message, "version", None)
            if task is not None:
                self._known[sender] = task.number if answered else 0
            if self._origins:
                origin = task.model if task is not None and answered else current
        return decoded(message, self.sizes, origin)


def decoded(message: M, sizes: Sizes, origin: Vector | None = None) -> M:
    """Return a message with decoded vectors, each added to ``origin``."""
    kind = plain_kind(type(message))
    if kind is None:
        return message
    vectors = {
        form.name: form.mark.decoded(getattr(message, form.name), sizes, origin)
        for form in schema_of(type(message)).arrays
        if isinstance(form.mark, CodedAs)
    }
    return cast(M, convert(message, kind, **vectors))
