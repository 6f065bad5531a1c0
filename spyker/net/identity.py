"""A server's identity over all its processes: secret, lineage and number of incarnations."""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spyker.errors import CheckpointError
from spyker.net.checkpoints import NEWEST
from spyker.node.ed25519_keys import lineage_of
from spyker.records import write_atomically
from spyker.records.files import sync
from spyker.untrusted_files import read_json

FILE, CHECKSUM = "identity.json", "checksum"
TO_RESET = (
    "To start without a state, give another folder; among other servers, run spyker members replace at one of them, "
    "and add --join"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's identity. It is kept in the state folder, readable by its owner alone."""

    lineage: str
    secret: str
    incarnation: int
    former: str = ""
    """Its lineage before it restarted as a new member."""
    former_secret: str = ""
    """The secret of that lineage, which proves that this server succeeds it."""

    @classmethod
    def create(cls, former: str = "", former_secret: str = "") -> Identity:
        """Return the identity of a new state: a secret, and the lineage that is the public key to it."""
        secret = secrets.token_bytes(32)
        return cls(lineage_of(secret), secret.hex(), 1, former, former_secret)

    @property
    def numbers(self) -> dict[str, Any]:
        """The part that checkpoints hold, for comparison."""
        return {"lineage": self.lineage, "incarnation": self.incarnation}


def has_state(folder: Path) -> bool:
    """Return whether a server has run with this state folder."""
    return (folder / FILE).exists()


def read_identity(folder: Path) -> Identity | None:
    """Return the identity of the last process, or ``None`` if there was none."""
    file = folder / FILE
    try:
        table = read_json(file)
        checksum = table.pop(CHECKSUM)
        identity = Identity(**table)
        if checksum != checksum_of(identity) or not bytes.fromhex(identity.secret):
            raise ValueError("it is not as it was written")
        if identity.lineage != lineage_of(bytes.fromhex(identity.secret)):
            raise ValueError("its lineage does not follow from its secret; an earlier version of Spyker has written it")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"{file} is damaged: {problem}. It belongs to the checkpoints beside it: restore all of {folder} from one "
            f"backup. {TO_RESET}"
        ) from None
    return identity


def compare(identity: Identity | None, numbers: Mapping[str, Any], folder: Path, number: int) -> None:
    """Raise an error if an identity is not that of a checkpoint, or is older."""
    saved = numbers.get("identity") or {}
    remedy = f"Restore all of {folder} from one backup. {TO_RESET}"
    if identity is None:
        raise CheckpointError(f"{folder / FILE} is missing, and checkpoint {number} needs it. {remedy}")
    if saved.get("lineage") != identity.lineage:
        raise CheckpointError(
            f"{folder / FILE} is of another server than checkpoint {number}: lineage {identity.lineage[:8]}, not "
            f"{str(saved.get('lineage'))[:8]}. {remedy}"
        )
    if saved["incarnation"] > identity.incarnation:
        raise CheckpointError(
            f"{folder / FILE} is older than checkpoint {number}: incarnation {identity.incarnation}, and the "
            f"checkpoint is of incarnation {saved['incarnation']}. {remedy}"
        )


def start_incarnation(folder: Path) -> Identity:
    """Return the identity for a new process, after writing it to disk."""
    known = read_identity(folder)
    identity = Identity.create() if known is None else replace(known, incarnation=known.incarnation + 1)
    write_identity(folder, identity)
    return identity


def reset_identity(folder: Path) -> None:
    """Move an outdated state aside, and make a new lineage."""
    known = read_identity(folder)
    assert known is not None
    aside = folder / f"outdated-{known.lineage[:8]}"
    aside.mkdir(exist_ok=True)
    for checkpoint in (*folder.glob("checkpoint-*"), *folder.glob(NEWEST)):
        checkpoint.rename(aside / checkpoint.name)
    write_identity(folder, Identity.create(known.lineage, known.secret))


def write_identity(folder: Path, identity: Identity) -> None:
    """Write an identity, readable by its owner alone, and sync the folder.

    Without the sync a power cut could undo the rename, and the numbers of an incarnation would be used twice. It also
    makes a checkpoint durable that an earlier process was killed while saving: this process may start from it.
    """
    before = os.umask(0o077)
    try:
        write_atomically(folder / FILE, json.dumps(asdict(identity) | {CHECKSUM: checksum_of(identity)}))
    finally:
        os.umask(before)
    sync(folder)


def checksum_of(identity: Identity) -> int:
    """Return the checksum of an identity."""
    return zlib.crc32(json.dumps(asdict(identity), sort_keys=True).encode())
