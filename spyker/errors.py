"""The exceptions that users of Spyker can meet."""

from __future__ import annotations

from typing import Any


class UsageError(ValueError):
    """A setting, an argument or a file that cannot be used. Names the field, the problem and the remedy."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}. {remedy}")
        self.field = field


class RecordError(Exception):
    """A record that cannot be written or read; says which folder or file, and what to do."""


class CheckpointError(RecordError):
    """A state folder that cannot be used; says which one, why, and what to do."""


class NoReadableCheckpointError(CheckpointError):
    """There are checkpoints, and all of them are damaged."""


class StateFolderError(CheckpointError):
    """The state folder cannot be used at all. Name another one."""


class RecordWriteError(RuntimeError):
    """A run record cannot be written any more, as when the disk is full."""


class DivergenceError(RuntimeError):
    """Training diverged: a model is no longer finite."""


class RunFailedError(RuntimeError):
    """A run could not be completed; says which and why."""


class DataError(Exception):
    """A dataset cannot be downloaded, stored or verified. Says why and what to do."""


class TaskError(RuntimeError):
    """A task failed. Says which task, doing what, and why."""


class ClientTrainingError(TaskError):
    """One training of one client failed. ``reason`` says why in a line; the whole text has the traceback."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


class WorkerCrashedError(TaskError):
    """A worker process crashed, and would crash again."""


class FlowerError(RuntimeError):
    """An app that does not answer as Flower's servers expect."""


class DeploymentError(RuntimeError):
    """A process of a deployment had to end. Says why and, where there is one, names a remedy."""


class FencedError(DeploymentError):
    """A server that was removed, replaced or copied, or clients without privacy budget. A restart does not help."""


class ClientError(DeploymentError):
    """A client cannot go on."""

    def __init__(self, client: int, reason: str) -> None:
        super().__init__(f"client {client}: {reason}")
        self.reason = reason


class ClientRejectedError(ClientError):
    """Every server rejects this client."""


class TrainingFailedError(ClientError):
    """The task raised an error when it trained for this client."""


class ClientStateError(DeploymentError):
    """The state of a client cannot be written or read. Says which file, and why."""


class LocalProcessError(DeploymentError):
    """A process of a local deployment ended unexpectedly."""


class Interrupted(KeyboardInterrupt):
    """A run was interrupted and has ended cleanly. ``result`` holds what there is so far."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result
