"""The state folder of a server, from which the server resumes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from spyker.errors import CheckpointError, DeploymentError, NoReadableCheckpointError, StateFolderError, UsageError
from spyker.net.checkpoints import Checkpoint, Checkpoints
from spyker.net.identity import Identity, compare, read_identity
from spyker.net.server_config import ServerConfig


class RestartAsNewMember(Exception):  # noqa: N818 - not an error
    """The state of this server is outdated: it must restart as a new member."""


class OpenedState(NamedTuple):
    """A state folder, locked by this process."""

    checkpoints: Checkpoints
    known: Identity | None
    """The identity of the last process, if there was one."""
    checkpoint: Checkpoint | None

    @property
    def reset(self) -> bool:
        """Whether the server was reset earlier, has never saved a checkpoint, and is not readmitted yet."""
        return self.checkpoint is None and self.known is not None and bool(self.known.former)


def open_state(config: ServerConfig, *, resume: bool, alone: bool) -> OpenedState:
    """Open a state folder. On an error nothing is changed, and the lock is released."""
    deploy, folder = config.deploy, config.path(config.deploy.state)
    try:
        checkpoints = Checkpoints(folder, deploy.checkpoints, deploy.hourly_checkpoints)
        try:
            return OpenedState(checkpoints, *_found(checkpoints, deploy.server, resume=resume, alone=alone))
        except BaseException:
            checkpoints.close()
            raise
    except StateFolderError:
        raise  # a mistake in the configuration
    except CheckpointError as error:
        raise DeploymentError(str(error)) from None


def _found(
    checkpoints: Checkpoints, server: int, *, resume: bool, alone: bool
) -> tuple[Identity | None, Checkpoint | None]:
    known = read_identity(checkpoints.folder)
    try:
        checkpoint = checkpoints.latest()
    except NoReadableCheckpointError as error:
        if resume and known is not None and not alone:
            raise RestartAsNewMember(str(error)) from None
        raise
    if checkpoint is None:
        return known, None
    if not resume:
        raise UsageError(
            "deploy.state",
            f"{checkpoints.folder} holds checkpoints",
            "Add --resume to continue from the last one, or give another folder",
        )
    check_owner(checkpoint, server, known, checkpoints.folder)
    refuse_rollback(checkpoint, alone=alone)
    return known, checkpoint


def refuse_rollback(checkpoint: Checkpoint, *, alone: bool) -> None:
    """Raise ``RestartAsNewMember`` if a newer checkpoint is damaged: other servers may depend on its content.

    A single server resumes from the older checkpoint.
    """
    if checkpoint.damaged and not alone:
        problems = "\n".join(checkpoint.damaged)
        raise RestartAsNewMember(f"{problems}\nThe last one that can be read is number {checkpoint.number}")


def check_owner(checkpoint: Checkpoint, server: int, known: Identity | None, folder: Path) -> None:
    """Raise an error if a checkpoint is not this server's own."""
    owner = checkpoint.numbers.get("id")
    if owner != server:
        raise UsageError(
            "deploy.state",
            f"{folder} holds checkpoints of server {owner}, and this is server {server}",
            "Name this server's own folder, or a new one",
        )
    compare(known, checkpoint.numbers, folder, checkpoint.number)
