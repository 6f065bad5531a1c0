"""Detection of a disk that takes no checkpoints: it is full, read-only, broken, or does not respond.

Theory of operation
-------------------
Messages to other servers and votes wait for a checkpoint. A server that cannot save therefore takes part in nothing,
and must not be waited for. It *cannot save* if no checkpoint has reached the disk for ``suspect_after`` seconds since
the first attempt that failed began. An attempt that has not failed may just be slow: it has ``SLOW`` times as long as
the longest one that succeeded.

Such a server keeps its clients and applies their updates in memory. It does not use the token and does not say that it
holds it, so that the others renew the token by a vote; it proposes nothing; and its heartbeats say that it cannot save,
so that the others exchange models without it. The next checkpoint on disk ends this. None of it weakens a lease: the
server gives up what it was allowed to do, and the others do what they would do if it had crashed.
"""

from __future__ import annotations

from collections.abc import Callable

SLOW = 3.0


class SaveMonitor:
    """When checkpoints were begun and saved. It is not part of checkpoints."""

    def __init__(self, now: Callable[[], float], suspect_after: float) -> None:
        self._now, self._suspect_after = now, suspect_after
        self._since: float | None = None  # when the first attempt after the last success began
        self._began = 0.0  # when the last attempt began
        self._failed = False  # an attempt, since the last success
        self._longest = 0.0  # seconds that a checkpoint took

    def began(self) -> None:
        """Note that a checkpoint is being written."""
        self._began = self._now()
        if self._since is None:
            self._since = self._began

    def saved(self) -> None:
        """Note that the checkpoint is on disk."""
        self._longest = max(self._longest, self._now() - self._began)
        self._since, self._failed = None, False

    def failed(self) -> None:
        """Note that the checkpoint could not be written."""
        self._failed = True

    def cannot_save(self, now: float | None = None) -> bool:
        """Return whether checkpoints have not reached the disk for too long."""
        if self._since is None:
            return False
        limit = self._suspect_after if self._failed else max(self._suspect_after, SLOW * self._longest)
        return (self._now() if now is None else now) - self._since > limit

    def unsaved_for(self, now: float) -> float:
        """Return the age in seconds of the oldest checkpoint attempt that is not on disk, or 0 if all are saved."""
        return 0.0 if self._since is None else now - self._since
