"""Ctrl-C and SIGTERM, as a wish to end in good order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from spyker.sim.clock import StopRequest


class InterruptRequest(StopRequest):
    """A stop that remembers whether somebody outside asked for it."""

    interrupted = False


@contextlib.contextmanager
def interrupts() -> Iterator[InterruptRequest]:
    """Let Ctrl-C and SIGTERM end what runs in good order; a second Ctrl-C ends it at once.

    Only the main thread hears signals. Elsewhere nobody interrupts.
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
