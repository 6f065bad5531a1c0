"""What makes a server process the same one over all its lives: its secret, its lineage, and how often it has begun."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from spyker.records import write_atomically

FILE = "identity.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """Kept in the state folder, readable by its owner alone."""

    lineage: str
    secret: str
    incarnation: int


def begin_life(folder: Path) -> Identity:
    """The identity for a new life, which is on disk before it is used."""
    file = folder / FILE
    if file.exists():
        known = Identity(**json.loads(file.read_text("utf-8")))
        identity = replace(known, incarnation=known.incarnation + 1)
    else:
        identity = Identity(secrets.token_hex(16), secrets.token_hex(32), 1)
    before = os.umask(0o077)
    try:
        write_atomically(file, json.dumps(asdict(identity)))
    finally:
        os.umask(before)
    return identity
