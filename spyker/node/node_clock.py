"""The time as a node knows it: that of the last event."""

from __future__ import annotations


class NodeClock:
    """Returns the time of the last event when called.

    An algorithm must not see the time change while it handles a message, possibly in a thread: it reads
    :meth:`handling`, the time at which the handling of the present message began.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = self._handling = now

    def __call__(self) -> float:
        """Return the time of the last event."""
        return self._now

    def handling(self) -> float:
        """Return the time of the last event that came while no message was being handled."""
        return self._handling

    def advance(self, now: float, *, handling: bool) -> None:
        """Set the time of the last event; ``handling`` says whether a message is being handled."""
        self._now = now
        if not handling:
            self._handling = now
