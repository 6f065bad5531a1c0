"""Whether a server may go on from what it finds in its state folder."""

from __future__ import annotations

from pathlib import Path

from spyker.config.sections import ScenarioError
from spyker.deploy.checkpoints import Checkpoint
from spyker.deploy.identity import Identity, compare


class BeginAnew(Exception):  # noqa: N818 - no error: it will go on as somebody else
    """The state of this server is an older one than others know of."""


def refuse_rollback(checkpoint: Checkpoint, *, alone: bool) -> None:
    """Other servers may know of what a damaged checkpoint held: go on from what they have, and not from an older one.

    A server that is alone goes on from what it has.
    """
    if checkpoint.damaged and not alone:
        problems = "\n".join(checkpoint.damaged)
        raise BeginAnew(f"{problems}\nThe last one that can be read is number {checkpoint.number}")


def check_owner(checkpoint: Checkpoint, server: int, known: Identity | None, folder: Path) -> None:
    """Refuse a state that is not this server's own."""
    owner = checkpoint.numbers.get("id")
    if owner != server:
        raise ScenarioError(
            "deploy.state",
            f"{folder} holds checkpoints of server {owner}, and this is server {server}",
            "Name this server's own folder, or a new one",
        )
    compare(known, checkpoint.numbers, folder, checkpoint.number)
