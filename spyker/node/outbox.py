"""Outboxes: exactly-once, in-order delivery of messages between servers that may crash.

A message is numbered and put into the *outbox* for its receiver, which is part of the sender's checkpoints. The message
may be sent once a checkpoint on disk holds it, and stays in the outbox until the receiver acknowledges that a
checkpoint of its own holds the effects. After a broken connection or a crash it is sent again, and the receiver drops
duplicates. So a server that restarts from its last checkpoint has a state that is consistent with what its peers know,
for every algorithm.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from spyker.node.rejection import Rejection, RolledBack
from spyker.protocol.codec import Array
from spyker.protocol.messages import PeerMessage
from spyker.protocol.state import Unpacker, pack


class OutdatedState(Rejection):
    """Another server knows of a later state of this one."""

    def __init__(self, detail: str) -> None:
        super().__init__("outdated", detail)


@dataclass(slots=True, eq=False)
class OutboxEntry:
    """A message in an outbox."""

    sequence: int
    message: PeerMessage


class Outbox:
    """The messages for one other server that it has not acknowledged."""

    def __init__(self) -> None:
        self.entries: deque[OutboxEntry] = deque()
        self.last = 0  # the highest number given
        self.committed = 0  # a checkpoint on disk holds messages up to this one
        self.acked = 0  # a checkpoint of the receiver holds the effects of messages up to this one

    def post(self, message: PeerMessage) -> None:
        """Number a message and keep it.

        A ``latest_only`` message replaces older ones of its kind, so that a server that is away for long finds the
        latest age and model only.
        """
        if message.latest_only:
            self.entries = deque(entry for entry in self.entries if type(entry.message) is not type(message))
        self.last += 1
        self.entries.append(OutboxEntry(self.last, message))

    def commit(self, sequence: int) -> bool:
        """Allow messages up to this one to be sent; return whether any were not allowed before."""
        news = sequence > self.committed
        self.committed = max(self.committed, sequence)
        return news

    def acknowledge(self, sequence: int) -> None:
        """Drop messages up to this one: the receiver will never ask for them again."""
        self.acked = max(self.acked, sequence)
        while self.entries and self.entries[0].sequence <= sequence:
            self.entries.popleft()

    def check_received(self, peer: int, received: int) -> None:
        """Raise a rejection if the last message that the receiver says it has contradicts what is known here."""
        if received < self.acked:
            raise RolledBack(
                f"server {peer} has message {received} from here and had saved message {self.acked}: its state is an "
                "older one"
            )
        if received > self.last:
            raise OutdatedState(
                f"server {peer} has message {received} from here, where {self.last} is the last that is known: the "
                "state of this server is an older one"
            )

    def next(self, after: int) -> OutboxEntry | None:
        """Return the first message after number ``after`` if it may be sent."""
        for entry in self.entries:
            if entry.sequence > after:
                return entry if entry.sequence <= self.committed else None
        return None

    @property
    def has_token(self) -> bool:
        """Whether the token is on its way to the receiver, which may take long behind large models."""
        return any(entry.message.is_token for entry in self.entries)

    def numbers(self, name: str, vectors: dict[str, Array]) -> dict[str, Any]:
        """Return the state for a checkpoint; arrays go into ``vectors``."""
        entries = [[e.sequence, pack(e.message, f"{name}-{e.sequence}", vectors)] for e in self.entries]
        return {"last": self.last, "acked": self.acked, "entries": entries}

    def restore(self, numbers: dict[str, Any], saved: Unpacker) -> None:
        """Restore the state from a checkpoint."""
        self.last = self.committed = numbers["last"]
        self.acked = numbers["acked"]
        self.entries = deque(OutboxEntry(sequence, saved.unpack(message)) for sequence, message in numbers["entries"])
