"""The process between the namespaces: takes packets from each TUN device and puts them into another when they are due.

:class:`chaos.wan.network.Network` starts it and passes the open devices. Delays are accurate as long as the process
gets a processor when a packet is due. It therefore asks for real-time priority, or at least for a better nice value,
and waits for nothing but packets, due times and commands.

Commands are JSON objects, one per line, over a Unix socket: ``{"do": "set", "from": 0, "to": 1, "delay": 0.1}``,
``cut``, ``heal``, ``links``. Each is answered with one line. End of file on standard input ends the process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import sys
import time
from typing import Any

from chaos.wan.links import Links

LARGEST = 65_536
BATCH = 32  # packets read from one device before due packets are forwarded
REAL_TIME_PRIORITY = 10
SHAPES = ("delay", "rate", "loss")


class Emulator:
    """Forwards packets between TUN devices. The third byte of an address is the number of a place, from 1."""

    def __init__(self, devices: list[int], orders: socket.socket) -> None:
        self.devices, self.orders = devices, orders
        self.links = Links(len(devices))
        self.speaking: dict[int, tuple[socket.socket, bytearray]] = {}
        self.strangers = 0
        """Packets without a receiver here, such as IPv6 multicasts."""

    def serve(self) -> None:
        """Forward until standard input ends."""
        sources = {descriptor: place for place, descriptor in enumerate(self.devices)}
        links, clock = self.links, time.monotonic
        listening, parent = self.orders.fileno(), sys.stdin.fileno()
        while True:
            due = links.next_arrival()
            # select and not epoll: its timeout is in microseconds, and there are few descriptors.
            ready, _, _ = select.select(
                [*sources, listening, parent, *self.speaking],
                (),
                (),
                None if due is None else max(0.0, due - clock()),
            )
            for descriptor in ready:
                if descriptor in sources:
                    self.take(descriptor, sources[descriptor])
                elif descriptor == listening:
                    connection, _ = self.orders.accept()
                    self.speaking[connection.fileno()] = connection, bytearray()
                elif descriptor == parent:
                    if not os.read(parent, 1024):
                        return
                else:
                    self.hear(descriptor)
            for place, packet in links.arrived(clock()):
                with contextlib.suppress(OSError):  # a device that is down loses packets, as a cable would
                    os.write(self.devices[place], packet)

    def take(self, descriptor: int, source: int) -> None:
        """Read packets from a device, up to a batch."""
        places = len(self.devices)
        for _ in range(BATCH):
            try:
                packet = os.read(descriptor, LARGEST)
            except OSError:  # no more packets
                return
            target = packet[18] - 1 if packet[0] >> 4 == 4 else -1
            if 0 <= target < places and target != source:
                self.links.send(time.monotonic(), source, target, packet)
            else:
                self.strangers += 1

    def hear(self, descriptor: int) -> None:
        """Read commands from a connection, and carry out the complete ones."""
        connection, text = self.speaking[descriptor]
        data = connection.recv(LARGEST)
        if not data:
            del self.speaking[descriptor]
            connection.close()
            return
        text += data
        while b"\n" in text:
            line, _, rest = bytes(text).partition(b"\n")
            text[:] = rest
            try:
                answer = self.obey(json.loads(line))
            except (KeyError, ValueError, IndexError, TypeError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out a command."""
        match order["do"]:
            case "set":
                link = self.links.links[order["from"]][order["to"]]
                for name in SHAPES:
                    if name in order:
                        setattr(link, name, float(order[name]))
            case "cut":
                self.links.cut(order["from"], order["to"])
            case "heal":
                self.links.heal(order["from"], order["to"])
            case "links":
                shown = (*SHAPES, "is_cut", "packets", "bytes", "lost")
                return {
                    "scheduling": scheduling(),
                    "strangers": self.strangers,
                    "links": [[{n: getattr(link, n) for n in shown} for link in row] for row in self.links.links],
                }
            case unknown:
                raise ValueError(f"there is no command {unknown!r}")
        return {}


def raise_priority() -> None:
    """Raise the priority of this process as far as permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -15)
    gc.collect()
    gc.disable()  # there are no reference cycles, and a collection would delay packets


def scheduling() -> str:
    """Return the scheduling of this process."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        return "real-time"
    return f"nice {os.getpriority(os.PRIO_PROCESS, 0)}"


def main() -> None:
    """Forward packets; the arguments are the descriptors of the devices and of the listening socket."""
    orders, *devices = map(int, sys.argv[1:])
    raise_priority()
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reaches the whole group; the parent ends this process
        Emulator(devices, socket.socket(fileno=orders)).serve()


if __name__ == "__main__":
    main()
