"""Who was given which task, and what may come back.

Every task has a number that rises over all incarnations of a server, and a MAC under a secret that only this server
has. So an answer proves by itself that its task was given, even if the server lost the memory of having given it: a
restarted server accepts what an earlier incarnation asked for, once, and nobody else's nor anything older.
"""

from __future__ import annotations

import hmac
import itertools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.frames import Refusal

SIGNED = struct.Struct("<QQdQ")  # client, number, age, version
MAC_BYTES = 32
INCARNATION_BITS = 32


@dataclass(slots=True)
class Entry:
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


class Ledger:
    """The tasks of all clients of a server."""

    def __init__(self, secret: bytes, incarnation: int) -> None:
        self._secret = secret
        self._numbers = itertools.count((incarnation << INCARNATION_BITS) + 1)
        self.clients: dict[int, Entry] = {}

    def entry(self, client: int) -> Entry:
        """What is known of a client; at first, nothing."""
        entry = self.clients.get(client)
        if entry is None:
            entry = self.clients[client] = Entry()
        return entry

    def give(self, client: int, age: float, version: int) -> pb.Ticket:
        """A new task, which supersedes whatever the client was given before."""
        number = next(self._numbers)
        self.entry(client).given = number
        return pb.Ticket(number=number, age=age, version=version, mac=self._mac(client, number, age, version))

    def check(self, client: int, ticket: pb.Ticket) -> Entry:
        """Refuse an answer to anything but the last task that this client was given and has not answered."""
        mac = self._mac(client, ticket.number, ticket.age, ticket.version)
        if not hmac.compare_digest(mac, ticket.mac):
            raise Refusal("unknown-task", f"task {ticket.number} was not given to client {client} by this server")
        return self._check_number(client, ticket.number)

    def _check_number(self, client: int, number: int) -> Entry:
        entry = self.entry(client)
        if number <= entry.taken:
            raise Refusal("replayed", f"task {number} has been answered already")
        if number < entry.given:
            raise Refusal("superseded", f"task {entry.given} took the place of task {number}")
        return entry

    def take(self, client: int, ticket: pb.Ticket) -> None:
        """An answer that passed :meth:`check` has arrived in full: from now on it is a repetition."""
        entry = self._check_number(client, ticket.number)
        entry.given = entry.taken = ticket.number

    def _mac(self, client: int, number: int, age: float, version: int) -> bytes:
        return blake2b(SIGNED.pack(client, number, age, version), key=self._secret, digest_size=MAC_BYTES).digest()

    def numbers(self) -> list[list[int]]:
        """For a checkpoint. What was taken and not handled is not part of it: it will be offered again."""
        return [[k, e.given, e.applied, e.size, int(e.member)] for k, e in self.clients.items()]

    def restore(self, numbers: Iterable[Iterable[int]]) -> None:
        """Go on from a checkpoint."""
        for k, given, applied, size, member in numbers:
            self.clients[k] = Entry(given, applied, applied, size, bool(member))
