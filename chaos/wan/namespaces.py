"""Network namespaces with a TUN device each: creation, entering and removal.

The namespaces of one network carry its name, and the network holds a lock on a file of that name while its process
runs. A name whose lock is free is abandoned: :func:`remove_leftovers` ends the processes in its namespaces and deletes
them. A TUN device disappears with the process that has it open.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PREFIX = "spyker-wan-"
RUN = Path("/run/spyker-wan")
LOCK = "lock"
NAMESPACES = Path("/run/netns")
ETC = Path("/etc/netns")  # files that ip netns exec mounts over /etc, by namespace
TUN = Path("/dev/net/tun")
DEVICE = "wan"
MTU = 1500
GRACE_SECONDS = 3.0  # from SIGTERM to SIGKILL
QUEUE = 10_000  # packets that the kernel keeps while the emulator is busy

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


class WanError(RuntimeError):
    """The network cannot be created; the message says why."""


def missing_requirement() -> str | None:
    """Return what this machine lacks for a network of namespaces, or ``None``."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command ip (package iproute2) is missing"
    if not os.access(TUN, os.R_OK | os.W_OK):
        return f"{TUN} is not available (in a container: --device {TUN} --cap-add NET_ADMIN --cap-add SYS_ADMIN)"
    made = subprocess.run(
        ["ip", "netns", "add", probe := f"spyker-probe-{os.getpid()}"], capture_output=True, text=True
    )
    if made.returncode:
        return f"ip netns add: {made.stderr.strip()}"
    ip("netns", "del", probe)
    return None


def ip(*arguments: str) -> str:
    """Run the command ``ip``."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise WanError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Exclude other processes from claiming names and removing leftovers."""
    RUN.mkdir(parents=True, exist_ok=True)
    with RUN.with_suffix(".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Claim:
    """A unique name of a network. It counts as abandoned once this process has ended."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(3)
        self.folder = RUN / self.name
        with alone():
            self.folder.mkdir()
            self._file = (self.folder / LOCK).open("x")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def namespace(self, place: int) -> str:
        """Return the name of a place's namespace."""
        return f"{PREFIX}{self.name}-{place}"

    def release(self) -> None:
        """Release the name."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._file.close()


def remove_leftovers() -> list[str]:
    """Remove the namespaces of networks whose process has ended; return their names."""
    removed = []
    with alone():
        names = existing(PREFIX)
        networks = {path.name for path in RUN.iterdir()} | {n.removeprefix(PREFIX).partition("-")[0] for n in names}
        for network in networks:
            folder = RUN / network
            folder.mkdir(exist_ok=True)
            with contextlib.suppress(OSError), (folder / LOCK).open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process runs
                abandoned = [name for name in names if name.startswith(f"{PREFIX}{network}-")]
                delete(abandoned)
                removed += abandoned
                shutil.rmtree(folder)
    return removed


def existing(prefix: str) -> list[str]:
    """Return the namespaces with this prefix."""
    return sorted(p.name for p in NAMESPACES.glob(f"{prefix}*")) if NAMESPACES.is_dir() else []


def create(name: str, address: str, network: str) -> int:
    """Create a namespace with one TUN device and an address; return the device's file descriptor."""
    ip("netns", "add", name)
    descriptor = inside(name, open_tun)
    for arguments in (
        ("link", "set", "lo", "up"),
        ("addr", "add", f"{address}/32", "dev", DEVICE),
        ("link", "set", DEVICE, "mtu", str(MTU), "txqueuelen", str(QUEUE), "up"),
        ("route", "add", network, "dev", DEVICE, "src", address),
    ):
        ip("-n", name, *arguments)
    return descriptor


def write_hosts(name: str, hosts: Mapping[str, str]) -> None:
    """Write the hosts file of a namespace: these names, and localhost."""
    (ETC / name).mkdir(parents=True, exist_ok=True)
    lines = [f"{address} {host}\n" for host, address in {"localhost": "127.0.0.1", **hosts}.items()]
    (ETC / name / "hosts").write_text("".join(lines))


def open_tun() -> int:
    """Create a TUN device in the namespace of the calling thread."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def delete(names: Sequence[str]) -> None:
    """Delete namespaces, after all processes in them have been ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = [pid for name in names for pid in pids(name)]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while not all(map(is_zombie, running)) and time.monotonic() < deadline:
            time.sleep(0.02)
    for name in names:
        ip("netns", "del", name)
        shutil.rmtree(ETC / name, ignore_errors=True)


def pids(name: str) -> list[int]:
    """Return the processes in a namespace, without zombies."""
    with contextlib.suppress(WanError):
        return [int(word) for word in ip("netns", "pids", name).split() if not is_zombie(int(word))]
    return []


def is_zombie(pid: int) -> bool:
    """Return whether a process is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def inside(name: str, do: Callable[[], T]) -> T:
    """Call a function in a namespace; a socket that it opens stays there."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:  # in a new thread: entering a namespace is permanent for the calling thread
        try:
            with open(NAMESPACES / name) as file:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(file.fileno(), CLONE_NEWNET):
                    raise WanError(f"cannot enter namespace {name}: {os.strerror(ctypes.get_errno())}")
            done.append(do())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
