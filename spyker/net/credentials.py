"""The credentials of clients: a file that may change while the server runs."""

from __future__ import annotations

from pathlib import Path

from spyker.errors import UsageError
from spyker.net.certificates import load_credentials
from spyker.net.json_log import JsonLog


class Credentials:
    """The content of ``clients.json``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = self._seen()
        self._owners = load_credentials(path)

    def owner(self, digest: str) -> int | None:
        """Return the client whose credential has this digest."""
        return self._owners.get(digest)

    def refresh(self, log: JsonLog) -> bool:
        """Reload the file if it has changed, and return whether it has. A file that cannot be read is ignored."""
        stamp = self._seen()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._owners = load_credentials(self.path)
        except UsageError as error:
            log.error("credentials", error=str(error))
            return False
        log.info("credentials", clients=len(self._owners))
        return True

    def _seen(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_size, found.st_ino
