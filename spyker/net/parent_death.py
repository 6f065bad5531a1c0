"""A process that ends when the one that started it does, however that came about."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # as in <linux/prctl.h>


def die_with_parent() -> Callable[[], None]:
    """What a new process must do before anything else, so that the kernel kills it when its parent is gone.

    Only Linux can do this; elsewhere it does nothing. What counts is the thread that starts the process: it must live
    as long as the parent.
    """
    parent, prctl = os.getpid(), None
    with contextlib.suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None, use_errno=True).prctl  # found now: between fork and exec little is allowed

    def bind() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before it could be bound
                os._exit(1)

    return bind
