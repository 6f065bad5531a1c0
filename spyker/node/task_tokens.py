"""Task tokens: which client holds which task, so that each update is applied at most once.

Every task has a *token*: a number that rises over all incarnations of a server, the age and version of the model, and a
MAC under the server's secret. To a client it is opaque. So an update proves that its task was issued, also to a server
that was restarted from a checkpoint before it issued the task: the server accepts that update once, and rejects forged,
repeated and superseded ones.
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
    """The tasks of one client."""

    given: int = 0
    """Number of the last task issued."""
    taken: int = 0
    """Number of the task of the last update that was accepted."""
    applied: int = 0
    """Number of the task of the last update that was handled."""
    size: int = 1
    """Number of the client's data points, d_k."""
    member: bool = False
    """Whether the protocol's server has the client as a member."""

    @property
    def owed(self) -> bool:
        """Whether the server owes the client a task: it has the update for the last one."""
        return self.taken == self.given


class TaskTokens:
    """The tasks of all clients of a server."""

    def __init__(self, secret: bytes, incarnation: int) -> None:
        self._secret = secret
        self._next = (incarnation << INCARNATION_BITS) + 1
        self.clients: dict[int, ClientTasks] = {}

    def entry(self, client: int) -> ClientTasks:
        """Return the entry of a client, and create it on first use."""
        entry = self.clients.get(client)
        if entry is None:
            entry = self.clients[client] = ClientTasks()
        return entry

    def issue(self, client: int, age: float, version: int) -> bytes:
        """Return the token of a new task. It supersedes the client's earlier tasks."""
        number, self._next = self._next, self._next + 1
        self.entry(client).given = number
        said = SAID.pack(number, age, version)
        return said + self._mac(client, said)

    def verify(self, client: int, token: bytes) -> TaskToken:
        """Return a token's content, or raise a rejection unless the client's last task has it and was not redeemed."""
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
        """Accept the update for a task. Another one for the same task is rejected from now on."""
        self._check_number(client, number)
        entry = self.entry(client)
        entry.given = entry.taken = number
        self._next = max(self._next, number + 1)  # the task may be of a process later than the restored state

    def _mac(self, client: int, said: bytes) -> bytes:
        return blake2b(CLIENT.pack(client) + said, key=self._secret, digest_size=MAC_BYTES).digest()

    def numbers(self) -> list[list[int]]:
        """Return the state for a checkpoint. Updates that were accepted and not handled are not part of it."""
        return [[k, e.given, e.applied, e.size, int(e.member)] for k, e in self.clients.items()]

    def restore(self, numbers: Iterable[Iterable[int]]) -> None:
        """Restore the state from a checkpoint."""
        for k, given, applied, size, member in numbers:
            self.clients[k] = ClientTasks(given, applied, applied, size, bool(member))
            self._next = max(self._next, given + 1)
