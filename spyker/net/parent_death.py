"""Processes that are killed when their parent ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # as in <linux/prctl.h>


def die_with_parent() -> Callable[[], None]:
    """Return a ``preexec_fn`` that makes the kernel kill the new process when its parent ends.

    It works on Linux only; elsewhere it does nothing. The kernel watches the thread that starts the process, so that
    thread must live as long as the parent.
    """
    parent, prctl = os.getpid(), None
    with contextlib.suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up now, because little is safe between fork and exec

    def bind() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # the parent has already ended
                os._exit(1)

    return bind
