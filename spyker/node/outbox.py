"""Messages between servers: each is delivered once, in order, and only if its sender cannot forget having sent it.

A message is numbered and put into the *outbox* for its receiver, which is part of the sender's checkpoints. It is sent
once a checkpoint on disk holds it, and stays in the outbox until the receiver says that a checkpoint of its own holds
the effect. Whatever breaks in between, connections or processes, it is sent again, and the receiver drops what it has.
So a crash takes a server back to a state that its peers may know of, for every algorithm, without their help.
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
    """What one other server has not acknowledged yet."""

    def __init__(self) -> None:
        self.entries: deque[OutboxEntry] = deque()
        self.last = 0  # the number given last
        self.committed = 0  # up to here a checkpoint on disk holds it
        self.acked = 0  # up to here a checkpoint of the receiver holds the effect
        self.sent = 0  # up to here it was sent over the present connection

    def post(self, message: PeerMessage) -> None:
        """Number a message and keep it. One that has not arrived may give way to a newer one of its kind.

        So whoever stays away for long finds the latest age and model, and no more.
        """
        if message.latest_only:
            self.entries = deque(posted for posted in self.entries if type(posted.message) is not type(message))
        self.last += 1
        self.entries.append(OutboxEntry(self.last, message))

    def commit(self, sequence: int) -> bool:
        """Everything up to here may be sent; whether that is news."""
        news = sequence > self.committed
        self.committed = max(self.committed, sequence)
        return news

    def acknowledge(self, sequence: int) -> None:
        """The receiver will never ask for these again."""
        self.acked = max(self.acked, sequence)
        while self.entries and self.entries[0].sequence <= sequence:
            self.entries.popleft()

    def connected(self, peer: int, received: int) -> None:
        """Compare what the receiver says it has with what is known here, and go on from there."""
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
        self.sent = received

    def next(self) -> OutboxEntry | None:
        """The first message that may be sent and has not been."""
        for posted in self.entries:
            if posted.sequence > self.sent:
                return posted if posted.sequence <= self.committed else None
        return None

    def numbers(self, name: str, vectors: dict[str, Array]) -> dict[str, Any]:
        """For a checkpoint."""
        entries = [[p.sequence, pack(p.message, f"{name}-{p.sequence}", vectors)] for p in self.entries]
        return {"last": self.last, "acked": self.acked, "entries": entries}

    def restore(self, numbers: dict[str, Any], saved: Unpacker) -> None:
        """Go on from a checkpoint."""
        self.last = self.committed = numbers["last"]
        self.acked = numbers["acked"]
        self.entries = deque(OutboxEntry(sequence, saved.unpack(message)) for sequence, message in numbers["entries"])
