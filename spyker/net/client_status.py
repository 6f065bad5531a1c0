"""The status of the clients of a process, as a small JSON file for monitoring."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from spyker.version import __version__

STATUS = "status.json"
PAGE = 4096  # bytes; the file is padded, so that it can be overwritten in place when the disk is full
HEARTBEAT_SECONDS = 10.0


@dataclass(slots=True)
class ClientStatus:
    """The status of one client. Times are in seconds since 1970."""

    client: int
    address: str | None = None
    """Address of the server to which the client is connected; ``None``: it is not connected."""
    server: int | None = None
    """Number of that server, or of the last one."""
    trainings: int = 0
    last_update: float | None = None
    """When the client last sent an update."""
    scores: Mapping[str, float] | None = None
    """The client's last evaluation."""
    last_error: str | None = None
    last_error_time: float | None = None

    def failed(self, error: str) -> None:
        """Note an error."""
        self.last_error, self.last_error_time = error, time.time()


class StatusFile:
    """Writes the status of all clients of a process, when it has changed and as a heartbeat."""

    def __init__(self, folder: Path, clients: Sequence[ClientStatus]) -> None:
        self.path, self.clients = folder / STATUS, clients
        self._written: list[dict[str, object]] = []
        self._time = 0.0

    def write(self, *, ended: bool = False) -> None:
        """Replace the file if there is something new. The caller limits the rate.

        An error is ignored: a client trains without a status file, too.
        """
        clients, now = [asdict(client) for client in self.clients], time.time()
        if not ended and clients == self._written and now - self._time < HEARTBEAT_SECONDS:
            return
        self._written, self._time = clients, now
        about = {"time": round(now, 3), "process": os.getpid(), "version": __version__, "ended": ended}
        text = json.dumps({**about, "clients": clients}, indent=1) + "\n"
        content = text.encode()
        content += b" " * (-(len(content) + 1) % PAGE) + b"\n"
        with contextlib.suppress(OSError):
            replace_file(self.path, content)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; in place if there is no space for a second one. It need not survive a power cut."""
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
