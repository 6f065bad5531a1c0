"""Task tokens: which client holds which task, so that each update is applied at most once.

Every task has a *token*: a number that rises over all incarnations of a server, the age and version of the model, and a
MAC under the server's secret. To a client it is opaque. So an update proves that its task was issued, also to a server
that was restarted from a checkpoint before it issued the task: the server accepts that update once, and rejects forged,
repeated and superseded ones.

A client keeps its updates until a checkpoint holds them, and shows their tokens when it reconnects. After a crash the
server asks for those that it lost, in the order of their tasks: each takes the place of a task that the algorithm would
give to this client now. So the algorithm still gets one update per task.
"""

from __future__ import annotations

import hmac
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from spyker.node.pending_updates import MOST_UNSAVED
from spyker.node.rejection import Rejection

CONTENT = struct.Struct("<QdQ")  # number, age, version
CLIENT = struct.Struct("<Q")
MAC_BYTES = 32
INCARNATION_BITS = 32
COPIED_LEDGER = "copied-ledger"  # reason of a rejection
MOST_RESENT = MOST_UNSAVED  # updates of a client for tasks of earlier processes, in one process


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
    saved: int = 0
    """Number of the task of the last update that a checkpoint on disk holds."""
    unsaved: int = 0
    """Number of updates that were handled and that no checkpoint on disk holds."""
    held: deque[int] = field(default_factory=deque)
    """Numbers of the tasks whose updates the client keeps and this server does not have."""
    resent: int = 0
    """Number of updates that this process has handled for tasks of earlier processes."""
    booked: int = 0
    """Highest number of trainings in the client's privacy ledger that this server has heard of."""
    taken_booking: int = 0
    """Number in that ledger of the training of the last update that was accepted."""
    applied_booking: int = 0
    """Number in that ledger of the training of the last update that was handled."""

    @property
    def owed(self) -> bool:
        """Whether the server owes the client a task: it has the update for the last one."""
        return self.taken == self.given


class TaskTokens:
    """The tasks of all clients of a server."""

    def __init__(self, secret: bytes, incarnation: int) -> None:
        self._secret = secret
        self._next = self._first = (incarnation << INCARNATION_BITS) + 1
        self.clients: dict[int, ClientTasks] = {}
        self._marks: list[tuple[int, int, int]] = []  # client, applied and unsaved, of the checkpoint being written

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
        content = CONTENT.pack(number, age, version)
        return content + self._mac(client, content)

    def verify(self, client: int, token: bytes) -> TaskToken:
        """Return a token's content, or raise a rejection unless the client's last task has it and was not redeemed."""
        content = token[: CONTENT.size]
        if not hmac.compare_digest(self._mac(client, content), token[CONTENT.size :]):
            raise Rejection("unknown-task", f"this task was not given to client {client} by this server")
        read = TaskToken._make(CONTENT.unpack(content))
        self._check_number(client, read.number)
        return read

    def _check_number(self, client: int, number: int) -> None:
        entry = self.clients.get(client) or ClientTasks()
        if number <= entry.taken:
            raise Rejection("replayed", f"task {number} has been answered already")
        if number < entry.given:
            raise Rejection("superseded", f"task {entry.given} took the place of task {number}")

    def redeem(self, client: int, number: int, booked: int = 0) -> None:
        """Accept the update for a task. Another one for the same task is rejected from now on.

        ``booked`` is the number of the training in the client's privacy ledger, which rises from task to task. If it
        does not, another copy of the client's state has trained: this update is rejected, and counted as a training.
        """
        self._check_number(client, number)
        entry = self.entry(client)
        if entry.taken_booking and booked <= entry.taken_booking:
            entry.booked += 1  # it was disclosed, and the ledger of neither copy knows both trainings
            raise Rejection(
                COPIED_LEDGER,
                f"an earlier update was number {entry.taken_booking:,} in the privacy ledger of client {client}, and "
                f"this one is number {booked:,}: two copies of its state are in use. Keep one state folder per client",
            )
        entry.booked, entry.taken_booking = max(entry.booked, booked), booked
        entry.given = entry.taken = number
        self._next = max(self._next, number + 1)  # the task may be of a process later than the restored state

    def hold(self, client: int, tokens: Iterable[bytes]) -> tuple[bool, Rejection | None]:
        """Note which tasks a client has updates for that this server misses.

        Returns:
            Whether some of these updates are not saved, and a rejection if a token is not of this server.

        """
        entry, numbers, rejection = self.entry(client), [], None
        for token in tokens:
            content = token[: CONTENT.size]
            if hmac.compare_digest(self._mac(client, content), token[CONTENT.size :]):
                numbers.append(TaskToken._make(CONTENT.unpack(content)).number)
            else:
                rejection = Rejection("unknown-task", f"this task was not given to client {client} by this server")
        entry.held = deque(sorted(number for number in numbers if number > entry.taken))
        return any(number > entry.saved for number in numbers), rejection

    def ask(self, client: int) -> bool:
        """Let the next update that a client keeps take the place of a task; return False if it keeps none."""
        entry = self.entry(client)
        if entry.held:
            entry.given = entry.held.popleft()
            return True
        return False

    def handled(self, client: int, number: int, booked: int = 0) -> int:
        """Note that an update was handled, and return how many of this client's are not saved."""
        entry = self.entry(client)
        entry.applied, entry.applied_booking = number, booked
        entry.unsaved += 1
        return entry.unsaved

    def is_resent(self, client: int, number: int) -> bool:
        """Count an update; return whether a crash took it back, and its client sends it again.

        An honest client keeps at most ``MOST_RESENT`` updates. One that collects the tokens of more tasks, by
        reconnecting, gains no more by it.
        """
        entry = self.entry(client)
        entry.resent += number < self._first
        return number < self._first and entry.resent <= MOST_RESENT

    def begin_checkpoint(self) -> None:
        """Note which updates the checkpoint that begins now will hold."""
        self._marks = [(k, entry.applied, entry.unsaved) for k, entry in self.clients.items() if entry.unsaved]

    def checkpoint_saved(self) -> dict[int, int]:
        """Note that the checkpoint is on disk; return, per client that it concerns, how many updates were unsaved."""
        before = {}
        for k, applied, unsaved in self._marks:
            entry = self.clients[k]
            before[k] = entry.unsaved
            entry.saved = applied
            entry.unsaved -= unsaved
        self._marks = []
        return before

    def _mac(self, client: int, content: bytes) -> bytes:
        return blake2b(CLIENT.pack(client) + content, key=self._secret, digest_size=MAC_BYTES).digest()

    def numbers(self) -> list[list[int]]:
        """Return the state for a checkpoint. Updates that were accepted and not handled are not part of it."""
        return [
            [k, e.given, e.applied, e.size, int(e.member), *([e.booked, e.applied_booking] if e.booked else [])]
            for k, e in self.clients.items()
        ]

    def restore(self, numbers: Iterable[Iterable[int]]) -> None:
        """Restore the state from a checkpoint."""
        for k, given, applied, size, member, *ledger in numbers:
            self.clients[k] = entry = ClientTasks(given, applied, applied, size, bool(member), applied)
            if ledger:
                entry.booked, entry.applied_booking = ledger
                entry.taken_booking = entry.applied_booking
            self._next = max(self._next, given + 1)
