"""How processes that work for this one begin."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from types import ModuleType


def spawn(process: BaseProcess) -> None:
    """Start a process. Ctrl-C is for the caller, who then ends it; and the caller's program is not run in it again."""
    with interrupts_ignored(), main_left_out():
        process.start()


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let Ctrl-C pass for a moment. Only the main thread can, and only it would be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def main_left_out() -> Iterator[None]:
    """Let multiprocessing find a main module without a file, which it does not import in the new process.

    A script that has no ``if __name__ == "__main__"`` would otherwise begin again in each worker, and one that comes
    from standard input or a notebook has no file to import. What workers need of it comes by value.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
