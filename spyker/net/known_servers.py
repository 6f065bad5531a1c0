"""The servers that the clients of a process know: those that were given, and those of the signed member list."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from spyker.net.json_log import JsonLog
from spyker.node.rejection import Rejection
from spyker.records import write_atomically

MEMBERS_FILE = "members.json"
MOST_LISTS = 64  # that are stored; then a client asks for a complete list again


class FollowedList(Protocol):
    """The verified member list: it follows the lists that servers send."""

    @property
    def epoch(self) -> int:
        """Epoch of the last view that is known."""

    @property
    def addresses(self) -> Mapping[int, str]:
        """Per server, the address for clients; empty if the server has announced none."""

    def sealing_key(self, server: int) -> str | None:
        """Return the public key for the seeds of masks that a server has announced, if it is known."""

    def update(self, data: bytes) -> bool:
        """Follow a list; return whether anything has changed. Raise a ``Rejection`` if it is not proven."""


class KnownServers:
    """Addresses and numbers of servers. A client verifies a list before it believes it, also one of its own disk."""

    def __init__(
        self,
        addresses: Sequence[str],
        numbers: Mapping[str, int] | None = None,
        followed: FollowedList | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start with the given servers and the lists that were stored.

        Args:
            addresses: the servers that were given.
            numbers: the numbers of the servers at these addresses, as far as they are known.
            followed: verifies member lists; ``None``: servers are not asked for any.
            folder: where the lists are stored; ``None``: nowhere.

        """
        self.addresses = list(addresses)
        self.numbers = dict(numbers or {})
        self._given, self._followed = tuple(addresses), followed
        self._file = None if folder is None or followed is None else folder / MEMBERS_FILE
        self._lists: list[str] = []
        self._met: dict[str, int] = {}
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError, Rejection):  # start with those that were given
                for text in map(str, json.loads(self._file.read_text("utf-8"))[:MOST_LISTS]):
                    self._follow(text)

    @property
    def follows(self) -> bool:
        """Whether servers are asked for member lists."""
        return self._followed is not None

    @property
    def epoch(self) -> int:
        """Epoch of the last view that is known."""
        return 0 if self._followed is None else self._followed.epoch

    def sealing_key(self, server: int) -> str | None:
        """Return the public key for the seeds of masks that a server has announced, if it is known."""
        return None if self._followed is None else self._followed.sealing_key(server)

    def met(self, address: str, server: int) -> None:
        """Note which server has answered at an address. Another one may answer there later."""
        self._met[address] = server

    def follow(self, data: bytes, log: JsonLog) -> None:
        """Follow a list that a server has sent, and store it.

        Raises:
            Rejection: the list is not proven.

        """
        before = list(self.addresses)
        if not self._follow(data.decode("utf-8", "replace")):
            return
        if self.addresses != before:
            log.info("servers", epoch=self.epoch, servers=self.addresses)
        if self._file is not None:
            with contextlib.suppress(OSError):  # a client works without the file, too
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._file, json.dumps(self._lists[:MOST_LISTS]))

    def _follow(self, text: str) -> bool:
        if self._followed is None or not self._followed.update(text.encode()):
            return False
        self._lists.append(text)
        listed = self._followed.addresses
        servers = {address: self.numbers.get(address, self._met.get(address)) for address in self._given}
        # A server that has announced no address is at the one that was given; one that is not listed was removed.
        given = [address for address, server in servers.items() if server is None or listed.get(server) == ""]
        announced = {address: server for server, address in sorted(listed.items()) if address}
        self.numbers |= announced
        self.addresses = list(dict.fromkeys([*announced, *given])) or list(self._given)
        return True
