"""What makes a server process the same one over all its lives: its secret, its lineage, and how often it has begun."""

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
from spyker.records import write_atomically

FILE, CHECKSUM = "identity.json", "checksum"
TO_BEGIN_ANEW = (
    "To begin anew, name another folder; among other servers, run spyker members replace at one of them, and add --join"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Kept in the state folder, readable by its owner alone."""

    lineage: str
    secret: str
    incarnation: int
    former: str = ""
    """The lineage that it had before it began anew."""

    @property
    def numbers(self) -> dict[str, Any]:
        """What a checkpoint holds of it, so that both can be compared."""
        return {"lineage": self.lineage, "incarnation": self.incarnation}


def read_identity(folder: Path) -> Identity | None:
    """The identity of the last life; none if nothing ever lived here."""
    file = folder / FILE
    try:
        table = json.loads(file.read_text("utf-8"))
        checksum = table.pop(CHECKSUM)
        identity = Identity(**table)
        if checksum != checksum_of(identity) or not bytes.fromhex(identity.secret):
            raise ValueError("it is not as it was written")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"{file} is damaged: {problem}. It belongs to the checkpoints beside it: restore all of {folder} from one "
            f"backup. {TO_BEGIN_ANEW}"
        ) from None
    return identity


def compare(identity: Identity | None, numbers: Mapping[str, Any], folder: Path, number: int) -> None:
    """Refuse an identity that is not that of a checkpoint, or that is older than it."""
    saved = numbers.get("identity") or {}
    remedy = f"Restore all of {folder} from one backup. {TO_BEGIN_ANEW}"
    if identity is None:
        raise CheckpointError(f"{folder / FILE} is missing, and checkpoint {number} needs it. {remedy}")
    if saved.get("lineage") != identity.lineage:
        raise CheckpointError(
            f"{folder / FILE} is of another server than checkpoint {number}: lineage {identity.lineage[:8]}, not "
            f"{str(saved.get('lineage'))[:8]}. {remedy}"
        )
    if saved["incarnation"] > identity.incarnation:
        raise CheckpointError(
            f"{folder / FILE} is older than checkpoint {number}: it knows of {identity.incarnation} lives, and that "
            f"was saved in life {saved['incarnation']}. {remedy}"
        )


def begin_life(folder: Path) -> Identity:
    """The identity for a new life, which is on disk before it is used."""
    known = read_identity(folder)
    if known is not None:
        identity = replace(known, incarnation=known.incarnation + 1)
    else:
        identity = Identity(secrets.token_hex(16), secrets.token_hex(32), 1)
    keep(folder, identity)
    return identity


def begin_anew(folder: Path) -> None:
    """What the folder holds is an older state than others know of: put it aside, and be somebody else from now on."""
    known = read_identity(folder)
    assert known is not None
    aside = folder / f"outdated-{known.lineage[:8]}"
    aside.mkdir(exist_ok=True)
    for checkpoint in (*folder.glob("checkpoint-*"), *folder.glob(NEWEST)):
        checkpoint.rename(aside / checkpoint.name)
    keep(folder, Identity(secrets.token_hex(16), secrets.token_hex(32), 1, known.lineage))


def keep(folder: Path, identity: Identity) -> None:
    """Write it down, for its owner alone."""
    before = os.umask(0o077)
    try:
        write_atomically(folder / FILE, json.dumps(asdict(identity) | {CHECKSUM: checksum_of(identity)}))
    finally:
        os.umask(before)


def checksum_of(identity: Identity) -> int:
    """Of all that is in it."""
    return zlib.crc32(json.dumps(asdict(identity), sort_keys=True).encode())
