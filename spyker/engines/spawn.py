"""Starting of worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType


def spawn(target: Callable[..., None], *arguments: object) -> tuple[BaseProcess, Connection]:
    """Start a process that ignores Ctrl-C and does not import the caller's main module.

    Returns:
        The process and a connection to it; ``target`` is called with the other end and the arguments.

    """
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    with interrupts_ignored(), main_left_out():
        process.start()
    theirs.close()
    return process, pipe


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C within the context; only in the main thread."""
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
    """Hide the file of the main module, so that multiprocessing does not import it in the new process.

    A script without ``if __name__ == "__main__"`` would otherwise run again in each worker, and a script from standard
    input or a notebook has no file. Workers receive what they need by value.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
