"""A deployment on this machine, with real server and client processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from spyker.config.scenario import Scenario, dump
from spyker.errors import LocalProcessError
from spyker.net.certificate_issuing import make_deployment
from spyker.net.certificates import CA, CERTIFICATE, KEY, REVOKED
from spyker.net.checkpoint_models import write_checkpoint_models
from spyker.net.parent_death import die_with_parent
from spyker.net.server_config import DeploymentOptions, write_config
from spyker.records import (
    Evaluated,
    EvaluatedByClients,
    Fact,
    Follower,
    RunRecord,
    RunStarted,
    evaluated,
    first_fact,
    read_back,
)
from spyker.records.client_scores import combined_by_clients
from spyker.records.merge import merge

PORTS = range(10_000, 32_768)  # below Linux's ephemeral ports, which outgoing connections could take meanwhile
POLL_SECONDS = 0.1
STOP_SECONDS = 20.0
GOODBYE_SECONDS = 5.0  # from a server's goodbye to its clients until its end
FAILED = 1  # exit code of a failed process
LOG_LINES = 10  # of a failed process, in its error


def free_ports(count: int) -> list[int]:
    """Return random free ports of the loopback interface."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = PORTS[secrets.randbelow(len(PORTS))]
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


def combined(start: RunStarted, last: Sequence[Evaluated]) -> Evaluated:
    """Combine the servers' last evaluations. The mean of their models has not been evaluated."""
    updates, size = sum(each.updates for each in last), sum(each.bytes for each in last)
    return evaluated(updates, size, [each.mean for each in last], None, higher_is_better=start.higher_is_better)


class LocalCluster:
    """Server and client processes of a scenario, in one folder. A context manager that stops them at the end."""

    def __init__(
        self, scenario: Scenario, folder: Path, *, insecure: bool, paced: bool, duration: float | None, **deploy: Any
    ) -> None:
        """Write the configuration; ``deploy`` are further keys of ``[deploy]``, for every server."""
        self.scenario, self.folder, self.insecure, self.paced = scenario, folder, insecure, paced
        self.servers: list[subprocess.Popen[bytes]] = []
        self.clients: list[subprocess.Popen[bytes]] = []
        self._names: dict[int, str] = {}  # by process ID
        self._healthy_at = time.monotonic()  # the last time that no client process had failed
        self.places = scenario.placement()
        count = len(self.places.servers)
        ports = free_ports(2 * count)
        self.addresses = [f"127.0.0.1:{port}" for port in ports[:count]]
        peers = tuple(f"127.0.0.1:{port}" for port in ports[count:])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario.toml").write_text(dump(scenario), "utf-8")
        if not insecure:
            make_deployment(folder / "certs", count, scenario.client_count, ["localhost", "127.0.0.1"], 30)
        for i in range(count):
            own = folder / f"server-{i}"
            own.mkdir(exist_ok=True)
            section = DeploymentOptions(
                server=i,
                listen_clients=self.addresses[i],
                listen_peers=peers[i],
                peers=peers,
                ca=f"../certs/{CA}",
                certificate=f"../certs/server-{i}/{CERTIFICATE}",
                key=f"../certs/server-{i}/{KEY}",
                revoked=f"../certs/{REVOKED}",
                min_clients=len(self.places.clients_of(i)),
                duration=duration,
            )
            write_config(own / "config.toml", "../scenario.toml", replace(section, **deploy))

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- Processes -------------------------------------------------------------------------------------------------

    def start(self, *more: str) -> None:
        """Start the servers, with further options, and one process per region with its clients."""
        for i in range(len(self.addresses)):
            self.servers.append(self.serve(i, *more))
        for i in self.places.learners:
            ids = self.places.clients_of(i)
            self.clients.append(self.join(f"{ids[0]}-{ids[-1]}", [self.addresses[i]]))

    def serve(self, server: int, *more: str) -> subprocess.Popen[bytes]:
        """Start a server process."""
        insecure = ["--insecure"] if self.insecure else []
        config = str(self.folder / f"server-{server}" / "config.toml")
        return self._spawn(f"server-{server}", "serve", config, *insecure, *more)

    def join(self, clients: str, servers: list[str], *more: str) -> subprocess.Popen[bytes]:
        """Start a client process."""
        identity = ["--insecure"] if self.insecure else ["--certs", str(self.folder / "certs")]
        where = [argument for address in servers for argument in ("--server", address)]
        paced = ["--paced"] if self.paced else []
        scenario = str(self.folder / "scenario.toml")
        return self._spawn(
            f"clients-{clients}", "join", scenario, *where, "--clients", clients, *identity, *paced, *more
        )

    def _spawn(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in its own session, so that Ctrl-C does not reach it; :meth:`stop` ends it."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "spyker.cli.main", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # in case this process is killed
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        self._names[process.pid] = name
        return process

    def stop(self) -> None:
        """Terminate the servers, which save their state, then the clients; kill processes that do not end."""
        deadline = time.monotonic() + STOP_SECONDS
        for group in (self.servers, self.clients):
            for process in group:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            for process in group:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    # --- Watching --------------------------------------------------------------------------------------------------

    def watch(self, sink: Callable[[float, Fact], None], stop: Callable[[], bool]) -> bool:
        """Pass the facts of all servers to ``sink`` as they are written, until all servers have ended.

        The first facts are merged into one. Evaluations are combined, once every server has one.

        Args:
            sink: called with the time and the fact.
            stop: polled; when it returns true, watching ends.

        Returns:
            Whether the servers have ended; false if ``stop`` returned true.

        Raises:
            LocalProcessError: a process failed.

        """
        followers = [Follower(self.record(i)) for i in range(len(self.servers))]
        start: RunStarted | None = None
        last: dict[int, Evaluated] = {}
        by_clients: dict[str, dict[int, EvaluatedByClients]] = {}
        while True:
            ended = all(process.poll() is not None for process in self.servers)
            for i, follower in enumerate(followers):
                for t, fact, _ in follower.poll():
                    if isinstance(fact, RunStarted):
                        if start is not None:
                            continue
                        fact = start = replace(fact, server=None)
                    elif isinstance(fact, Evaluated):
                        last[i] = fact
                        if start is None or len(last) < len(self.places.learners):
                            continue
                        fact = combined(start, [last[j] for j in sorted(last)])
                    elif isinstance(fact, EvaluatedByClients):
                        parts = by_clients.setdefault(fact.name, {})
                        parts[i] = fact
                        fact = combined_by_clients([parts[j] for j in sorted(parts)])
                    sink(t, fact)
            self._check()
            if ended:
                return True
            if stop():
                return False
            time.sleep(POLL_SECONDS)

    def _check(self) -> None:
        """Raise an error if a process failed. Clients may end shortly before their server."""
        failed = [process for process in self.clients if process.poll()]
        self._healthy_at = time.monotonic() if not failed else self._healthy_at
        if time.monotonic() < self._healthy_at + GOODBYE_SECONDS:
            failed = []
        for process in (*self.servers, *failed):
            if process.poll():
                raise LocalProcessError(self._report(process))

    def check_clients(self) -> None:
        """Raise an error if clients of a process failed."""
        for process in self.clients:
            if process.poll() == FAILED:
                raise LocalProcessError(self._report(process))

    def _report(self, process: subprocess.Popen[bytes]) -> str:
        """Describe a failed process, with its error message or the end of its log."""
        name = self._names[process.pid]
        lines = (self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()
        text = "\n".join([line for line in lines if line.startswith("spyker: ")][-1:] or lines[-LOG_LINES:])
        return f"a process of the deployment ({name}) ended with exit code {process.returncode}:\n{text}"

    def record(self, server: int) -> Path:
        """Return the folder of a server's record."""
        return self.folder / f"server-{server}" / "record"

    def write_models(self, out: Path) -> list[str]:
        """Write the servers' final models into a merged record, and return warnings about missing ones.

        As in an emulation, a server without clients has no model of its own.
        """
        summary = RunRecord(out).summary  # absent if a server was killed
        t: float = next(read_back(out)).t if summary is None else summary["time"]
        states = {i: self.folder / f"server-{i}" / "state" for i in self.places.learners}
        return write_checkpoint_models(states, self.scenario, t, out)

    def merge(self, out: Path) -> None:
        """Merge the records of all servers that have started into one."""
        merge(self.begun(), out)

    def begun(self) -> list[Path]:
        """Return the records of the servers that have started."""
        records = [self.record(i) for i in range(len(self.addresses))]
        return [record for record in records if first_fact(record) is not None]
