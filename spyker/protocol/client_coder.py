"""The client's side of compression: it decodes models and codes its updates."""

from __future__ import annotations

from typing import Any, cast

from spyker.compression.block_codec import UncodableError, encode_with_error
from spyker.compression.settings import CompressionSettings
from spyker.protocol.codec import Sizes
from spyker.protocol.coded_messages import coded_kind, convert, plain_kind
from spyker.protocol.messages import ServerMessage, Update
from spyker.protocol.public_model import Difference, KnownModel
from spyker.vectors import Vector


class ClientCoder:
    """Decodes the models that one client is sent, and codes its updates, with error feedback.

    What the code of an update has lost is added to the next update, so that the sum of all updates loses nothing.
    """

    __slots__ = ("_known", "error", "settings", "sizes")

    def __init__(self, settings: CompressionSettings, sizes: Sizes) -> None:
        self.settings, self.sizes = settings, sizes
        self._known = KnownModel(settings.models, sizes)
        self.error: Vector | None = None
        """What the updates so far have lost. It is not kept over a restart of the process."""

    @classmethod
    def of(cls, settings: CompressionSettings, sizes: Sizes) -> ClientCoder | None:
        """Return a coder; ``None`` if nothing is coded."""
        return cls(settings, sizes) if settings.on else None

    def decode(self, message: ServerMessage) -> ServerMessage:
        """Return a message with decoded vectors; raise ``MalformedMessage`` if it does not fit the earlier ones."""
        kind, coded = plain_kind(type(message)), cast(Any, message)
        if kind is None:
            return message
        difference = Difference(coded.public_base, coded.public_number, coded.public, coded.weights)
        return cast(ServerMessage, convert(message, kind, weights=self._known.told(difference)))

    def encode(self, update: Update, origin: Vector | None) -> Update:
        """Return the coded update; the update itself if updates are not coded, or if it cannot be.

        Args:
            update: the update.
            origin: the model of the task, if ``update`` has the trained model; ``None`` if it has the difference.

        """
        kind = coded_kind(type(update), self.settings.updates)
        if kind is type(update):
            return update
        vector = update.weights.copy() if origin is None else update.weights - origin
        if self.error is not None:
            vector += self.error
        try:
            coded, self.error = encode_with_error(vector, self.settings.updates, self.sizes.buffers)
        except UncodableError:
            self.error = None
            return update
        return convert(update, kind, weights=coded)
