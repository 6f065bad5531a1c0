"""Alerts when a client's connection is replaced by another one: its key may be in use in two places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from spyker.net.driver import Driver
from spyker.records import ClientReplaced

ANOTHER, SAME = "another address", "same address"


@dataclass(slots=True)
class Replacement:
    """The replacements of one client's connections."""

    client: int
    times: int
    address: str
    former_address: str


class ReplacedClients:
    """Logs, counts and records each replacement, and keeps the latest ones for operators."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._latest: dict[int, Replacement] = {}

    def connected(self, client: int, address: str, open_from: Iterable[str]) -> None:
        """Note a new connection of a client, while connections from the addresses ``open_from`` are open.

        One replacement from the same address is usually a client that reconnects before the server notices the loss of
        its connection; many are two processes with one key.
        """
        for former in open_from:
            reason = SAME if former == address else ANOTHER
            if reason == ANOTHER:
                self._driver.metrics.replaced()
                latest = self._latest.setdefault(client, Replacement(client, 0, address, former))
                latest.times, latest.address, latest.former_address = latest.times + 1, address, former
            named = self._driver.named(client)
            logged = self._driver.limited_log.say(
                "warning", "client-replaced", reason, client, **named, address=address, former_address=former
            )
            if logged and self._driver.started.is_set():
                fact = ClientReplaced(self._driver.node.id, client, another_address=reason == ANOTHER)
                self._driver.recorder.fact(fact, 0)

    def status(self) -> list[dict[str, Any]]:
        """Return the clients that were replaced from another address since the process started."""
        return [asdict(each) | self._driver.named(each.client) for each in self._latest.values()]
