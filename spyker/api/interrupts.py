"""Graceful shutdown on Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from spyker.sim.clock import StopRequest


class InterruptRequest(StopRequest):
    """A stop request that records whether a signal caused it."""

    interrupted = False


@contextlib.contextmanager
def interrupts() -> Iterator[InterruptRequest]:
    """Stop gracefully on Ctrl-C and SIGTERM, and immediately on a second Ctrl-C.

    Only the main thread receives signals; in other threads the context does nothing.
    """
    stop = InterruptRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: object) -> None:
        stop.interrupted = stop.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
