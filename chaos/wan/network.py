"""A network of places, one namespace each. Its links can be changed and cut while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from chaos.wan.namespaces import (
    Claim,
    WanError,
    create,
    delete,
    existing,
    inside,
    missing_requirement,
    remove_leftovers,
    write_hosts,
)

T = TypeVar("T")

ADDRESSES = "10.77"
MOST_PLACES = 250


class Network:
    """A context manager that creates the network, and removes it at the end.

    It first removes namespaces that killed processes have left.
    """

    def __init__(self, places: Sequence[str], hosts: Mapping[str, str] | None = None) -> None:
        """``hosts`` maps host names, which processes in the network can look up, to places."""
        if not 2 <= len(places) <= MOST_PLACES or len(set(places)) < len(places):
            raise WanError(f"a network has from 2 to {MOST_PLACES} places with distinct names, not {list(places)}")
        self.places = list(places)
        self.hosts = {host: self.address(place) for host, place in (hosts or {}).items()}
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        """Create the namespaces and start forwarding. Links have no delay and no limit yet."""
        problem = missing_requirement()
        if problem is not None:
            raise WanError(problem)
        remove_leftovers()
        self._stack = contextlib.ExitStack()
        self._claim = Claim()
        self._stack.callback(self._claim.release)
        with self._stack:  # if the rest fails
            self._build()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all processes in the network and the emulator, and delete the namespaces."""
        # Another Ctrl-C must not interrupt the cleanup.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main_thread() else None
        try:
            self._stack.close()
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)

    def _build(self) -> None:
        self._stack.callback(self._delete_namespaces)
        devices = []
        for place in self.places:
            devices.append(create(self.namespace(place), self.address(place), f"{ADDRESSES}.0.0/16"))
            self._stack.callback(os.close, devices[-1])
            if self.hosts:
                write_hosts(self.namespace(place), self.hosts)
        self.control = self._claim.folder / "control"
        """Address of the emulator's socket for commands; see :mod:`chaos.wan.emulator`."""
        listening = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(self.control))
        listening.listen()
        passed = [listening.fileno(), *devices]
        self._emulator = subprocess.Popen(
            [sys.executable, "-m", "chaos.wan.emulator", *map(str, passed)],
            stdin=subprocess.PIPE,
            pass_fds=passed,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # this process handles Ctrl-C: packets are forwarded until all others have ended
        )
        self._stack.callback(self._end_emulator)
        self._orders = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._orders.connect(str(self.control))
        self._answers = self._stack.enter_context(self._orders.makefile("rb"))
        self.scheduling: str = self._order("links")["scheduling"]
        """Scheduling of the emulator: ``real-time``, or its nice value."""

    def _end_emulator(self) -> None:
        assert self._emulator.stdin is not None
        self._emulator.stdin.close()
        try:
            self._emulator.wait(3)
        except subprocess.TimeoutExpired:
            self._emulator.kill()
            self._emulator.wait()

    def _delete_namespaces(self) -> None:
        delete(existing(self._claim.namespace(0)[:-1]))
        for process in self._processes:  # collect them
            process.wait()

    def namespace(self, place: str) -> str:
        """Return the name of a place's namespace, for ``ip netns``."""
        return self._claim.namespace(self._number(place))

    def address(self, place: str) -> str:
        """Return the IPv4 address of a place."""
        return f"{ADDRESSES}.{self._number(place) + 1}.1"

    def _number(self, place: str) -> int:
        if place not in self.places:
            raise WanError(f"there is no place {place!r}; there are {', '.join(self.places)}")
        return self.places.index(place)

    def run(self, place: str, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start a process in a place; ``options`` are passed to :class:`subprocess.Popen`."""
        process = subprocess.Popen(["ip", "netns", "exec", self.namespace(place), *map(str, command)], **options)
        self._processes.append(process)
        return process

    def inside(self, place: str, do: Callable[[], T]) -> T:
        """Call a function in a place; a socket that it opens stays there."""
        return inside(self.namespace(place), do)

    def set(
        self,
        source: str,
        target: str,
        *,
        delay_ms: float | None = None,
        rate_mbit: float | None = None,
        loss: float | None = None,
    ) -> None:
        """Change the given properties of the link from one place to another, from the next packet on."""
        order = {
            "delay": None if delay_ms is None else delay_ms / 1000,
            "rate": None if rate_mbit is None else rate_mbit * 1e6,
            "loss": loss,
        }
        for name, value in order.items():
            if value is not None and (value < 0 or (name == "loss" and value > 1)):
                raise WanError(f"{name} of the link from {source} to {target} cannot be {value:g}")
        self._link_order("set", source, target, **{name: v for name, v in order.items() if v is not None})

    def cut(self, source: str, target: str) -> None:
        """Cut the link from one place to another, not the other direction."""
        self._link_order("cut", source, target)

    def heal(self, source: str, target: str) -> None:
        """Undo a cut."""
        self._link_order("heal", source, target)

    def links(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the settings and counters of each link: ``packets``, ``bytes``, ``lost``."""
        rows = self._order("links")["links"]
        return {(a, b): rows[i][j] for i, a in enumerate(self.places) for j, b in enumerate(self.places) if a != b}

    def _link_order(self, do: str, source: str, target: str, **values: float) -> None:
        self._order(do, **{"from": self._number(source), "to": self._number(target), **values})

    def _order(self, do: str, **values: Any) -> dict[str, Any]:
        try:
            self._orders.sendall(json.dumps({"do": do, **values}).encode() + b"\n")
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line:
            raise WanError("the emulator of the network has ended; look for its error above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WanError(f"{do}: {answer['error']}")
        return answer


def is_main_thread() -> bool:
    """Return whether this thread may set signal handlers."""
    return threading.current_thread() is threading.main_thread()
