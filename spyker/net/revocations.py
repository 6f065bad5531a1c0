"""Revoked certificates of clients: a file that may change while the server runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from spyker.errors import UsageError
from spyker.net.json_log import JsonLog
from spyker.records import write_atomically
from spyker.untrusted_files import LARGEST_TABLE, read_bytes


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of ``revoked.json``: a certificate of a client or, without a serial number, all that it ever had."""

    client: int
    name: str
    serial: str = ""
    """In hexadecimal."""


def load_revocations(path: Path) -> list[Revocation]:
    """Read ``revoked.json``."""
    remedy = "Copy revoked.json from the folder of the federation; if nothing was revoked it contains []"
    try:
        return msgspec.json.decode(read_bytes(path, LARGEST_TABLE), type=list[Revocation])
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", remedy) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(str(path), f"is not a list of revocations: {error}", remedy) from None


def write_revocations(path: Path, revocations: list[Revocation]) -> None:
    """Write ``revoked.json`` atomically."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(revocations), indent=1).decode() + "\n")


class Revocations:
    """The content of ``revoked.json``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = self._seen()
        self._entries = {(each.client, each.serial) for each in load_revocations(path)}

    def revoked(self, client: int, serial: int) -> bool:
        """Return whether a certificate was revoked."""
        return (client, "") in self._entries or (client, f"{serial:x}") in self._entries

    def refresh(self, log: JsonLog) -> bool:
        """Reload the file if it has changed, and return whether it has. A file that cannot be read is ignored."""
        stamp = self._seen()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._entries = {(each.client, each.serial) for each in load_revocations(self.path)}
        except UsageError as error:
            log.error("revocations", error=str(error))
            return False
        log.info("revocations", revoked=len(self._entries))
        return True

    def _seen(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_size, found.st_ino
