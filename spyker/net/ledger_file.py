"""The privacy ledgers of the clients of a process, as small files in their state folder.

``client-7.ledger`` is replaced before each training: a temporary file is written and synced, renamed over the old one,
and the folder is synced. ``--discard-state`` leaves it alone: what was spent stays spent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from spyker.config.privacy_settings import PrivacySettings
from spyker.errors import ClientError, ClientStateError, UsageError
from spyker.privacy.accounting import Mechanism
from spyker.privacy.ledger import Budget, Ledger, LedgerError, from_text
from spyker.records.files import replacing, sync
from spyker.untrusted_files import read_bytes

NAME = re.compile(r"client-(\d+)\.ledger")
PRIVATE_FILE = 0o600
STATE_FOLDER = "state"


class PrivacyBudgetSpentError(ClientError):
    """The client has spent its privacy budget. It trains no more, also after a restart."""

    def __init__(self, client: int, why: str) -> None:
        super().__init__(client, f"its privacy budget is spent: {why}")


class ClientLedgers:
    """The ledgers of clients. :meth:`book` returns when the cost of a training is on disk."""

    def __init__(self, folder: Path, privacy: PrivacySettings) -> None:
        self.folder = folder
        self._budget = Budget(privacy.delta, privacy.epsilon, privacy.trainings)
        self._ledgers: dict[int, Ledger] = {}

    def path(self, client: int) -> Path:
        """Return the file of a client."""
        return self.folder / f"client-{client}.ledger"

    def open(self, client: int, trainings: int) -> Ledger:
        """Load the ledger of a client, or begin one.

        Args:
            client: number of the client.
            trainings: how many trainings its saved state counts.

        Raises:
            UsageError: the file is damaged or missing.

        """
        path = self.path(client)
        if path.exists():
            ledger = replace(read_ledger(path), budget=self._budget)
            if ledger.client != client:
                raise UsageError("--state", f"{path} is the ledger of client {ledger.client}", "Give its own folder")
        else:
            ledger = Ledger(client, self._budget)
        if ledger.booked < trainings:
            raise UsageError(
                "privacy.unit",
                f"client {client} has made {trainings:,} trainings, of which {path.name} books {ledger.booked:,}: "
                "the others have no known privacy cost",
                "Restore the ledger, or begin with new data in a new state folder",
            )
        self._ledgers[client] = ledger
        return ledger

    def ledger(self, client: int) -> Ledger:
        """Return the ledger of a client that was opened."""
        return self._ledgers[client]

    def check(self, client: int, mechanism: Mechanism) -> None:
        """Raise a ``PrivacyBudgetSpentError`` if one more training is not allowed."""
        why = self._ledgers[client].refusal(mechanism)
        if why is not None:
            raise PrivacyBudgetSpentError(client, why)

    def book(self, client: int, mechanism: Mechanism) -> Ledger:
        """Book a training; when this returns, it is on disk and may begin.

        Raises:
            PrivacyBudgetSpentError: the budget does not allow it.
            ClientStateError: the ledger cannot be written.

        """
        self.check(client, mechanism)
        return self._save(self._ledgers[client].book(mechanism))

    def raise_to(self, client: int, booked: int, mechanism: Mechanism) -> Ledger:
        """Continue from the count that a server remembers, if it is higher: this state was restored from a backup."""
        return self._save(self._ledgers[client].at_least(booked, mechanism))

    def _save(self, ledger: Ledger) -> Ledger:
        path = self.path(ledger.client)
        try:
            with replacing(path) as temporary:
                temporary.touch(PRIVATE_FILE)
                temporary.write_text(ledger.to_text(), "utf-8", newline="\n")
            sync(self.folder)
        except OSError as error:
            raise ClientStateError(
                f"its privacy ledger cannot be written to {path} ({error.strerror}). Free space there"
            ) from error
        self._ledgers[ledger.client] = ledger
        return ledger


def read_ledger(path: Path) -> Ledger:
    """Read a client's ledger. Its process may be running.

    Raises:
        UsageError: the file cannot be read, or is damaged.

    """
    try:
        return from_text(read_bytes(path).decode())
    except OSError as error:
        raise UsageError("--state", f"{path} cannot be read ({error.strerror})", "Check its permissions") from None
    except (LedgerError, UnicodeDecodeError) as error:
        raise UsageError("--state", f"{path} is damaged: {error}", "Restore it from a backup") from None


def find_ledgers(places: Iterable[Path]) -> list[Ledger]:
    """Read the ledgers in clients' folders, or in their state folders.

    Raises:
        UsageError: a folder has none, or one is damaged.

    """
    found: list[Ledger] = []
    for place in places:
        folders = [folder for folder in (place, place / STATE_FOLDER) if folder.is_dir()]
        files = sorted(path for folder in folders for path in folder.iterdir() if NAME.fullmatch(path.name))
        if not files:
            problem = f"{place} has no client-K.ledger" if folders else f"{place} is not a folder"
            raise UsageError(
                "FOLDER", problem, "Name the folder of a client that trains with privacy.unit = example or client"
            )
        found += map(read_ledger, files)
    return found
