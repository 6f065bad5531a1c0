"""Who was given which task, and what may come back.

Every task has a *token*: a number that rises over all incarnations of a server, the age and version of the model, and a
MAC under a secret that only this server has. To a client it is a word to be repeated. So an answer proves by itself
that its task was given, even if the server lost the memory of having given it: a restarted server accepts what an
earlier incarnation asked for, once, and nobody else's nor anything older.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from spyker.node.rejection import Rejection

SAID = struct.Struct("<QdQ")  # number, age, version
CLIENT = struct.Struct("<Q")
MAC_BYTES = 32
INCARNATION_BITS = 32


class TaskToken(NamedTuple):
    """The content of a token."""

    number: int
    age: float
    version: int


@dataclass(slots=True)
class ClientTasks:
    """What a server knows of one client."""

    given: int = 0
    """The number of the task given last."""
    taken: int = 0
    """The number of the last answer that passed the border."""
    applied: int = 0
    """The number of the last answer that was handled."""
    size: int = 1
    """d_k."""
    member: bool = False
    """Whether the protocol's server counts it among its clients."""

    @property
    def owed(self) -> bool:
        """Whether the next word is the server's: it has the answer to the last task, and will give the next."""
        return self.taken == self.given


class TaskTokens:
    """The tasks of all clients of a server."""

    def __init__(self, secret: bytes, incarnation: int) -> None:
        self._secret = secret
        self._next = (incarnation << INCARNATION_BITS) + 1
        self.clients: dict[int, ClientTasks] = {}

    def entry(self, client: int) -> ClientTasks:
        """What is known of a client; at first, nothing."""
        entry = self.clients.get(client)
        if entry is None:
            entry = self.clients[client] = ClientTasks()
        return entry

    def issue(self, client: int, age: float, version: int) -> bytes:
        """Return the token of a new task, which supersedes whatever the client was given before."""
        number, self._next = self._next, self._next + 1
        self.entry(client).given = number
        said = SAID.pack(number, age, version)
        return said + self._mac(client, said)

    def verify(self, client: int, token: bytes) -> TaskToken:
        """Refuse an answer to anything but the last task that this client was given and has not answered."""
        said = token[: SAID.size]
        if not hmac.compare_digest(self._mac(client, said), token[SAID.size :]):
            raise Rejection("unknown-task", f"this task was not given to client {client} by this server")
        read = TaskToken._make(SAID.unpack(said))
        self._check_number(client, read.number)
        return read

    def _check_number(self, client: int, number: int) -> None:
        entry = self.clients.get(client) or ClientTasks()
        if number <= entry.taken:
            raise Rejection("replayed", f"task {number} has been answered already")
        if number < entry.given:
            raise Rejection("superseded", f"task {entry.given} took the place of task {number}")

    def redeem(self, client: int, number: int) -> None:
        """An answer that passed :meth:`verify` has arrived in full: from now on it is a repetition."""
        self._check_number(client, number)
        entry = self.entry(client)
        entry.given = entry.taken = number
        self._next = max(self._next, number + 1)  # it may be of a process that a restored disk knows nothing of

    def _mac(self, client: int, said: bytes) -> bytes:
        return blake2b(CLIENT.pack(client) + said, key=self._secret, digest_size=MAC_BYTES).digest()

    def numbers(self) -> list[list[int]]:
        """For a checkpoint. What was taken and not handled is not part of it: it will be offered again."""
        return [[k, e.given, e.applied, e.size, int(e.member)] for k, e in self.clients.items()]

    def restore(self, numbers: Iterable[Iterable[int]]) -> None:
        """Go on from a checkpoint."""
        for k, given, applied, size, member in numbers:
            self.clients[k] = ClientTasks(given, applied, applied, size, bool(member))
            self._next = max(self._next, given + 1)
