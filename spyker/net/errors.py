"""Why a process of a deployment had to end."""

from __future__ import annotations


class DeploymentError(RuntimeError):
    """It had to end; the message says why and, where there is one, names a remedy."""


class MustNotGoOnError(DeploymentError):
    """The server is one no more: it was removed or replaced, or is a copy. To start it again does not help."""


class ClientError(DeploymentError):
    """A client cannot go on."""

    def __init__(self, client: int, reason: str) -> None:
        super().__init__(f"client {client}: {reason}")
        self.reason = reason


class NotWantedError(ClientError):
    """No server will ever take this client as it is."""


class TrainingFailedError(ClientError):
    """The task raised an error when it trained for this client."""


class ChildError(DeploymentError):
    """A process of a local deployment ended before its time."""
