"""The server's side of compression: it decodes its clients' updates before they are filtered."""

from __future__ import annotations

from typing import NamedTuple, TypeVar, cast

from spyker.compression.settings import CompressionSettings
from spyker.protocol.codec import CodedAs, Sizes, schema_of
from spyker.protocol.coded_messages import convert, plain_kind
from spyker.protocol.messages import ClientMessage, Join, Leave, Message, Model, PeerMessage
from spyker.vectors import Vector

M = TypeVar("M", bound=Message)


class SentTask(NamedTuple):
    """The last task of a client, until its update arrives."""

    version: int
    model: Vector | None
    """What the client trains, if its update is coded as the difference from it."""


class ServerCoder:
    """Codes what one server sends, and decodes what it receives.

    Nothing of it is part of a checkpoint. After a restart, an update that is the difference from a model which the
    server has lost counts as the difference from its current model.
    """

    def __init__(self, settings: CompressionSettings, sizes: Sizes, *, difference: bool) -> None:
        """``difference`` says whether the clients' updates are differences anyway."""
        self.settings, self.sizes = settings, sizes
        self._origins = settings.updates != "none" and not difference
        self._tasks: dict[int, SentTask] = {}

    def forget(self, client: int) -> None:
        """Note that a client may have lost its task."""
        self._tasks.pop(client, None)

    def encode_model(self, client: int, message: Model) -> tuple[Model, Vector]:
        """Return the message to be sent to a client, and the model that it will train."""
        self._tasks[client] = SentTask(message.version, message.weights if self._origins else None)
        return message, message.weights

    def decode(self, sender: int, message: ClientMessage | PeerMessage, current: Vector) -> ClientMessage | PeerMessage:
        """Return a message with decoded vectors; ``current`` is the server's model."""
        origin = None
        if isinstance(message, ClientMessage):
            if isinstance(message, Join | Leave):
                self.forget(sender)
                return message
            task = self._tasks.pop(sender, None)
            if self._origins:
                answers = task is not None and task.version == getattr(message, "version", None)
                origin = task.model if task is not None and answers else current
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
