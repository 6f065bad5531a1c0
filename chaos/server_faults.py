"""Faults of real server processes: SIGKILL, SIGSTOP and full disks."""

from __future__ import annotations

import contextlib
import errno
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.waiting import listening
from spyker.net.local_cluster import LocalCluster

DISK = "4m"  # size of a state disk
BALLAST = "ballast"  # the file that fills it
STOPPED_SECONDS = FULL_SECONDS = (1.0, 10.0)  # shorter and longer than the time until other servers suspect it


class ServerFaults:
    """Injects faults into the servers of a cluster, one at a time."""

    def __init__(self, cluster: LocalCluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.starts = [1] * len(cluster.addresses)
        self.by_name: dict[str, Callable[[int], None]] = {"kill": self.kill, "stop": self.stop, "disk": self.fill_disk}

    def kill(self, server: int) -> None:
        """Kill a server and restart it from its state."""
        self.cluster.servers[server].kill()
        self.cluster.servers[server].wait()
        self.restart(server)

    def restart(self, server: int) -> None:
        """Start a server that was killed."""
        self.starts[server] += 1
        self.cluster.servers[server] = self.cluster.serve(server, "--resume")
        listening(self.cluster, server, self.starts[server])

    def stop(self, server: int) -> None:
        """Stop a server for a while; the others may suspect it."""
        self.cluster.servers[server].send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(*STOPPED_SECONDS))
        self.cluster.servers[server].send_signal(signal.SIGCONT)

    def fill_disk(self, server: int) -> None:
        """Fill the disk of a server's state for a while; kill the server in every second case before there is room."""
        ballast = state_folder(self.cluster, server) / BALLAST
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        time.sleep(self.chance.uniform(*FULL_SECONDS))
        killed = self.chance.random() < 0.5
        if killed:
            self.cluster.servers[server].kill()
            self.cluster.servers[server].wait()
        ballast.unlink()
        if killed:
            self.restart(server)


def state_folder(cluster: LocalCluster, server: int) -> Path:
    """Return the folder of a server's state."""
    return cluster.folder / f"server-{server}" / "state"


@contextlib.contextmanager
def state_disks(cluster: LocalCluster) -> Iterator[None]:
    """Mount a small disk for the state of each server. Needs root; the disks outlive the processes, not the context."""
    folders = [state_folder(cluster, server) for server in range(len(cluster.addresses))]
    with contextlib.ExitStack() as stack:
        for folder in folders:
            folder.mkdir(parents=True)
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], capture_output=True)
            if done.returncode:
                raise PermissionError(errno.EPERM, f"cannot mount a disk: {done.stderr.decode().strip()}", str(folder))
            stack.callback(subprocess.call, ["umount", "--lazy", str(folder)])
        yield
