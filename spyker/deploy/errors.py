"""Why a process of a deployment had to end."""

from __future__ import annotations


class DeploymentError(RuntimeError):
    """It had to end; the message says why and, where there is one, names a remedy."""


class NotWantedError(DeploymentError):
    """No server will ever take this client as it is."""


class ChildError(DeploymentError):
    """A process of a local deployment ended before its time."""
