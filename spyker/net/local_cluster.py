"""A whole deployment on this machine: real server and client processes, for trying it out."""

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
from spyker.records import Evaluated, Fact, Follower, RunRecord, RunStarted, evaluated, first_fact, read_back
from spyker.records.merge import merge

PORTS = range(10_000, 32_768)  # below those that Linux gives to outgoing connections
POLL_SECONDS = 0.1
STOP_SECONDS = 20.0
FAREWELL_SECONDS = 5.0  # between a server's goodbye to its clients and its end
FAILED = 1  # the exit code of a process that was not stopped, but failed
LOG_LINES = 10  # of the log of a process that failed


def free_ports(count: int) -> list[int]:
    """Choose ports of the loopback interface that nobody uses at this moment.

    None is one that the system gives to outgoing connections, which might take it before a server does.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = PORTS[secrets.randbelow(len(PORTS))]
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


def of_all(start: RunStarted, last: Sequence[Evaluated]) -> Evaluated:
    """The servers' last evaluations as one. The mean of their weights was never judged."""
    updates, size = sum(each.updates for each in last), sum(each.bytes for each in last)
    return evaluated(updates, size, [each.mean for each in last], None, higher_is_better=start.higher_is_better)


class LocalCluster:
    """Server and client processes of one scenario, in one folder. As a context manager it leaves none behind."""

    def __init__(
        self, scenario: Scenario, folder: Path, *, insecure: bool, paced: bool, duration: float | None, **deploy: Any
    ) -> None:
        """``deploy`` goes into every server's section."""
        self.scenario, self.folder, self.insecure, self.paced = scenario, folder, insecure, paced
        self.servers: list[subprocess.Popen[bytes]] = []
        self.clients: list[subprocess.Popen[bytes]] = []
        self._names: dict[int, str] = {}  # of processes, by their number
        self._whole = time.monotonic()  # when no client process had failed yet
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
            mine = folder / f"server-{i}"
            mine.mkdir(exist_ok=True)
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
            write_config(mine / "config.toml", "../scenario.toml", replace(section, **deploy))

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- Processes -------------------------------------------------------------------------------------------------

    def start(self, *more: str) -> None:
        """Start everything: servers, with more options if need be, and for each region one process with its clients."""
        for i in range(len(self.addresses)):
            self.servers.append(self.serve(i, *more))
        for i in self.places.learners:
            ids = self.places.clients_of(i)
            self.clients.append(self.join(f"{ids[0]}-{ids[-1]}", [self.addresses[i]]))

    def serve(self, server: int, *more: str) -> subprocess.Popen[bytes]:
        """A server process."""
        insecure = ["--insecure"] if self.insecure else []
        config = str(self.folder / f"server-{server}" / "config.toml")
        return self._spawn(f"server-{server}", "serve", config, *insecure, *more)

    def join(self, clients: str, servers: list[str], *more: str) -> subprocess.Popen[bytes]:
        """A client process."""
        identity = ["--insecure"] if self.insecure else ["--certs", str(self.folder / "certs")]
        where = [word for address in servers for word in ("--server", address)]
        paced = ["--paced"] if self.paced else []
        scenario = str(self.folder / "scenario.toml")
        return self._spawn(
            f"clients-{clients}", "join", scenario, *where, "--clients", clients, *identity, *paced, *more
        )

    def _spawn(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start one process, deaf to our Ctrl-C: it is we who end it."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "spyker.cli.main", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # if we are killed, nobody else would end it
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        self._names[process.pid] = name
        return process

    def stop(self) -> None:
        """Let the servers save and say goodbye, then end the clients, and kill what does not listen."""
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
        """Tell ``sink`` the facts of all servers as they are written, until all have ended. False if stopped early.

        There is one first fact, and an evaluation is that of all servers, once each has been judged.
        """
        followers = [Follower(self.record(i)) for i in range(len(self.servers))]
        start: RunStarted | None = None
        last: dict[int, Evaluated] = {}
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
                        fact = of_all(start, [last[j] for j in sorted(last)])
                    sink(t, fact)
            self._check()
            if ended:
                return True
            if stop():
                return False
            time.sleep(POLL_SECONDS)

    def _check(self) -> None:
        """A process that failed takes the others with it. Clients may end a little before the server that is done."""
        failed = [process for process in self.clients if process.poll()]
        self._whole = time.monotonic() if not failed else self._whole
        if time.monotonic() < self._whole + FAREWELL_SECONDS:
            failed = []
        for process in (*self.servers, *failed):
            if process.poll():
                raise LocalProcessError(self._report(process))

    def check_clients(self) -> None:
        """Complain of client processes that have ended, some of whose clients failed while the others went on."""
        for process in self.clients:
            if process.poll() == FAILED:
                raise LocalProcessError(self._report(process))

    def _report(self, process: subprocess.Popen[bytes]) -> str:
        """What a process said last, to people if it did."""
        name = self._names[process.pid]
        lines = (self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()
        said = [line for line in lines if line.startswith("spyker: ")][-1:] or lines[-LOG_LINES:]
        words = "\n".join(said)
        return f"a process of the deployment ({name}) ended with exit code {process.returncode}; it said:\n{words}"

    def record(self, server: int) -> Path:
        """The folder of a server's record."""
        return self.folder / f"server-{server}" / "record"

    def write_models(self, out: Path) -> list[str]:
        """Write the models that the servers ended with into a merged record; what is to be said of missing ones.

        A server without clients has none of its own, as in the emulated world.
        """
        summary = RunRecord(out).summary  # there is none if a server did not end in good order
        t: float = next(read_back(out)).t if summary is None else summary["time"]
        states = {i: self.folder / f"server-{i}" / "state" for i in self.places.learners}
        return write_checkpoint_models(states, self.scenario, t, out)

    def merge(self, out: Path) -> None:
        """One record of the whole run, of the servers that began before it was stopped."""
        merge(self.begun(), out)

    def begun(self) -> list[Path]:
        """The records of the servers that have begun."""
        records = [self.record(i) for i in range(len(self.addresses))]
        return [record for record in records if first_fact(record) is not None]
