"""The event log of a server process: every event of its node, so that ``spyker replay`` can rebuild the state."""

from __future__ import annotations

import os
from pathlib import Path

from spyker.net.json_log import JsonLog
from spyker.node.event_codec import LogHeader, encode_event
from spyker.node.events import Event

MAX_LOGS = 2  # of this process and of the one before it


class EventLog:
    """An append-only file. Logging stops when the file or the disk is full; the server continues."""

    def __init__(self, folder: Path, incarnation: int, header: LogHeader, limit: int, log: JsonLog) -> None:
        """Create ``events-INCARNATION.log`` in a folder, and delete the logs of all but the last process."""
        self._log, self._left = log, limit
        folder.mkdir(0o700, parents=True, exist_ok=True)
        self.path = folder / f"events-{incarnation:06}.log"
        self._file: int | None = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for old in sorted(folder.glob("events-*.log"))[:-MAX_LOGS]:
            old.unlink()
        self._write(header.encode())

    def append(self, event: Event) -> None:
        """Append an event. If the process is killed, all records but the last are complete."""
        if self._file is not None:
            self._write(encode_event(event))

    def _write(self, record: bytes) -> None:
        assert self._file is not None
        if len(record) > self._left:
            self._log.warning("event-log-full", path=str(self.path))
            self.close()
            return
        try:
            written = os.write(self._file, record)
        except OSError as error:
            self._log.error("event-log-failed", path=str(self.path), error=repr(error))
            self.close()
            return
        self._left -= written
        if written < len(record):
            self._log.error("event-log-failed", path=str(self.path), error="no space left")
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
