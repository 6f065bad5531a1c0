"""The processes of a drill: four servers with a few clients each, and the faults that can be injected."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.drill.server_records import ServerRecords
from chaos.wan.deployment import (
    CLIENT_PORT,
    PEER_PORT,
    ROOT,
    SPYKER,
    clients_of,
    clients_place,
    failure,
    prepare,
    server_place,
    shape,
    wait_for_event,
)
from chaos.wan.network import Network
from spyker.config.scenario import Scenario
from spyker.errors import DeploymentError
from spyker.net.admin_socket import send_command
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_issuing import write_client, write_server
from spyker.net.parent_death import die_with_parent
from spyker.net.server_config import load_config, write_config

POLL_SECONDS = 0.1
ADDED_DELAY_MS = 100.0
"""One-way latency between the added server and all others except its own client."""


class Deployed:
    """A deployment with default timeouts. Its network has places for one more server."""

    def __init__(self, scenario: Scenario, folder: Path, network: Network, stack: ExitStack) -> None:
        self.scenario, self.folder, self.network, self._stack = scenario, folder, network, stack
        self.records = ServerRecords()
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: list[str] = []
        """Processes that ended unexpectedly."""
        shape(network, scenario)
        prepare(scenario, folder, network, min_clients=None, join_timeout=60.0, duration=None)
        (folder / "lost").mkdir()

    # --- Processes ---------------------------------------------------------------------------------------------------

    def _start(self, place: str, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self.folder / f"{name}.log").open("ab"))
        return self.network.run(
            place,
            [*SPYKER, *command],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # this process handles Ctrl-C, and stops the others
            preexec_fn=die_with_parent(),
        )

    def serve(self, server: int, *more: str) -> None:
        """Start a server, with a new record unless it resumes."""
        name = server_place(server)
        if "--resume" not in more:
            self.records.begin(server, self.folder / f"record-{server}")
        self.running[server] = self._start(name, name, "serve", f"{name}.toml", *more)

    def attend(self, region: int, clients: str, servers: Iterable[int], *more: str) -> None:
        """Start the clients of a region. They know all servers and choose the nearest."""
        place = clients_place(region)
        addresses = [w for i in servers for w in ("--server", f"{self.network.address(server_place(i))}:{CLIENT_PORT}")]
        command = ["join", "scenario.toml", *addresses, "--clients", clients, "--certs", "certs", "--paced", *more]
        self.clients[place] = self._start(place, place, *command)

    def begin(self) -> None:
        """Start all processes, and wait until all servers have merged each other's models."""
        began = time.time()
        servers = range(len(self.scenario.world.regions))
        for i in servers:
            self.serve(i)
        names = {server_place(i): process for i, process in self.running.items()}
        wait_for_event("listening", names, self.folder)  # a client that finds its server absent would choose another
        for i in servers:
            ids = self.home_clients(i)
            self.attend(i, f"{ids[0]}-{ids[-1]}", servers)
        if self.until(lambda: self.records.all_merged(servers, began), 90) is None:
            raise failure("server-0", self.folder, "and the others have not synchronised")

    def home_clients(self, server: int) -> range:
        """Return the clients that are nearest to a server."""
        return clients_of(self.scenario, server)

    def signal(self, server: int, number: signal.Signals) -> float:
        """Send a signal to a server; return the time."""
        process, at = self.running[server], time.time()
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            del self.running[server]
        return at

    def destroy(self, server: int) -> float:
        """Kill a server and delete its state; return the time. The record is moved away, for the checks."""
        at = self.signal(server, signal.SIGKILL)
        record = self.records.of(server)
        record.poll()
        record.destroyed = at
        shutil.rmtree(self.folder / f"state-{server}")
        (self.folder / f"record-{server}").rename(self.folder / "lost" / f"record-{server}-{record.number}")
        return at

    def end(self) -> dict[int, int]:
        """Stop all servers; return their exit codes."""
        for process in self.running.values():
            process.terminate()
        codes = {}
        for i, process in self.running.items():
            try:
                codes[i] = process.wait(60)
            except subprocess.TimeoutExpired:
                codes[i] = -1
        self.records.read()
        return codes

    # --- Members -----------------------------------------------------------------------------------------------------

    def config(self, server: int) -> Path:
        """Return the path of a server's configuration."""
        return self.folder / f"server-{server}.toml"

    def command(self, *words: str | Path) -> str:
        """Run a command of Spyker; return its output."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run([*SPYKER, *words], cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise failure("server-0", self.folder, f"and others: spyker {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def has_token(self, server: int) -> bool:
        """Return whether a server holds the token now."""
        try:
            return bool(send_command(self.folder / f"state-{server}", {"order": "members"})["token"])
        except DeploymentError:
            return False

    def holder(self) -> int:
        """Return the holder of the token; wait while the token is in flight."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for i in self.running:
                if self.has_token(i):
                    return i
            time.sleep(0.02)
        raise failure("server-0", self.folder, "and the others have had no token for a minute")

    def prepare_one_more(self, server: int, region: str) -> str:
        """Write certificates and configuration for one more server and one more client; return the server's address."""
        place = server_place(server)
        host = self.network.address(place)
        certs = self.folder / "certs"
        authority, client = Authority.load(certs), self.scenario.client_count
        write_server(certs / place, server, authority, [host], 30)
        write_client(certs / f"client-{client}", client, f"client-{client}", authority, 30)
        known = load_config(self.config(0)).deploy
        section = replace(
            known,
            server=server,
            region=region,
            listen_clients=f"{host}:{CLIENT_PORT}",
            listen_peers=f"{host}:{PEER_PORT}",
            peers=(*known.peers, f"{host}:{PEER_PORT}"),
            certificate=f"certs/{place}/cert.pem",
            key=f"certs/{place}/key.pem",
            state=f"state-{server}",
            record=f"record-{server}",
        )
        write_config(self.config(server), "scenario.toml", section)
        added = (place, clients_place(server))
        for other in self.network.places:
            for each in added:
                if other not in added:
                    self.network.set(each, other, delay_ms=ADDED_DELAY_MS)
                    self.network.set(other, each, delay_ms=ADDED_DELAY_MS)
        return f"{host}:{PEER_PORT}"

    # --- Links -------------------------------------------------------------------------------------------------------

    def links_between(self, some: Collection[str], others: Collection[str], *, cut: bool) -> float:
        """Cut all links between two groups of places, or heal them; return the time."""
        do = self.network.cut if cut else self.network.heal
        for a in some:
            for b in others:
                do(a, b)
                do(b, a)
        return time.time()

    # --- Waiting -----------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], seconds: float) -> Any:
        """Wait until ``condition`` returns a value, and return it; ``None`` after ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            self.records.read()
            self._note_ended()
            found = condition()
            if found is not None and found is not False:
                return found
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)

    def wait(self, seconds: float) -> None:
        """Let the deployment run for some time."""
        self.until(lambda: None, seconds)

    def wait_until(self, at: float) -> None:
        """Let the deployment run until a time."""
        self.wait(max(0.0, at - time.time()))

    def _note_ended(self) -> None:
        """Note processes that ended unexpectedly; nothing waits for them any longer."""
        for i, process in list(self.running.items()):
            if process.poll() is not None:
                self.ended.append(f"server {i} ended with exit code {process.returncode}")
                del self.running[i]
        for name, process in list(self.clients.items()):
            if process.poll() is not None:
                self.ended.append(f"{name} ended with exit code {process.returncode}")
                del self.clients[name]

    def log(self, name: str, event: str) -> list[dict[str, Any]]:
        """Return the lines of a log with this event."""
        word = f'"event": "{event}"'
        lines = (self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()
        return [json.loads(line) for line in lines if word in line and line.startswith("{") and line.endswith("}")]
