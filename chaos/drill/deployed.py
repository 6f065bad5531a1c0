"""The processes of a drill: four servers with a few clients each, and what can be done to them."""

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

from chaos.drill.book import Book
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
    wait_for_word,
)
from chaos.wan.network import Network
from spyker.config.scenario import Scenario
from spyker.errors import DeploymentError
from spyker.net.admin_socket import send_command
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_issuing import write_client, write_server
from spyker.net.parent_death import die_with_parent
from spyker.net.server_config import load_config, write_config

LOOK_SECONDS = 0.1
ADDED_DELAY_MS = 100.0
"""One way, between the server that is added and everybody else but its own client."""


class Deployed:
    """A deployment with the timers as they are shipped. Places for one more server are there from the beginning."""

    def __init__(self, scenario: Scenario, folder: Path, network: Network, stack: ExitStack) -> None:
        self.scenario, self.folder, self.network, self._stack = scenario, folder, network, stack
        self.book = Book()
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: list[str] = []
        """What ended or failed although nobody wanted it to."""
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
            start_new_session=True,  # Ctrl-C is for us, and it is we who end it
            preexec_fn=die_with_parent(),
        )

    def serve(self, server: int, *more: str) -> None:
        """Start a server, and have its record read from its beginning unless it is resumed."""
        name = server_place(server)
        if "--resume" not in more:
            self.book.begin(server, self.folder / f"record-{server}")
        self.running[server] = self._start(name, name, "serve", f"{name}.toml", *more)

    def attend(self, region: int, clients: str, servers: Iterable[int], *more: str) -> None:
        """Start the clients of a region, which know all servers and choose the nearest."""
        place = clients_place(region)
        where = [w for i in servers for w in ("--server", f"{self.network.address(server_place(i))}:{CLIENT_PORT}")]
        command = ["join", "scenario.toml", *where, "--clients", clients, "--certs", "certs", "--paced", *more]
        self.clients[place] = self._start(place, place, *command)

    def begin(self) -> None:
        """Start everything, and wait until all servers have merged each other's models."""
        began = time.time()
        servers = range(len(self.scenario.world.regions))
        for i in servers:
            self.serve(i)
        names = {server_place(i): process for i, process in self.running.items()}
        wait_for_word("listening", names, self.folder)  # a client that finds its server absent would choose another
        for i in servers:
            ids = self.home_clients(i)
            self.attend(i, f"{ids[0]}-{ids[-1]}", servers)
        if self.until(lambda: self.book.all_merged(servers, began), 90) is None:
            raise failure("server-0", self.folder, "and the others have not synchronised")

    def home_clients(self, server: int) -> range:
        """The clients that are nearest to a server."""
        return clients_of(self.scenario, server)

    def signal(self, server: int, number: signal.Signals) -> float:
        """Send a signal to a server; when."""
        process, at = self.running[server], time.time()
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            del self.running[server]
        return at

    def destroy(self, server: int) -> float:
        """Kill a server and take its disk away; when. Its record is put aside, for us."""
        at = self.signal(server, signal.SIGKILL)
        life = self.book.of(server)
        life.poll()
        life.destroyed = at
        shutil.rmtree(self.folder / f"state-{server}")
        (self.folder / f"record-{server}").rename(self.folder / "lost" / f"record-{server}-{life.number}")
        return at

    def end(self) -> dict[int, int]:
        """Let all servers save and say goodbye; the exit code of each."""
        for process in self.running.values():
            process.terminate()
        codes = {}
        for i, process in self.running.items():
            try:
                codes[i] = process.wait(60)
            except subprocess.TimeoutExpired:
                codes[i] = -1
        self.book.read()
        return codes

    # --- Members -----------------------------------------------------------------------------------------------------

    def config(self, server: int) -> Path:
        """The configuration of a server."""
        return self.folder / f"server-{server}.toml"

    def command(self, *words: str | Path) -> str:
        """Run a command of Spyker's to its end; what it printed."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run([*SPYKER, *words], cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise failure("server-0", self.folder, f"and others: spyker {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def has_token(self, server: int) -> bool:
        """Whether a server has the token at this moment."""
        try:
            return bool(send_command(self.folder / f"state-{server}", {"order": "members"})["token"])
        except DeploymentError:
            return False

    def holder(self) -> int:
        """Who has the token; waits until somebody has, as it may be on its way."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for i in self.running:
                if self.has_token(i):
                    return i
            time.sleep(0.02)
        raise failure("server-0", self.folder, "and the others have had no token for a minute")

    def prepare_one_more(self, server: int, region: str) -> str:
        """Certificates and configuration for a server that is added, and a client; the server's address."""
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
        mine = (place, clients_place(server))
        for other in self.network.places:
            for each in mine:
                if other not in mine:
                    self.network.set(each, other, delay_ms=ADDED_DELAY_MS)
                    self.network.set(other, each, delay_ms=ADDED_DELAY_MS)
        return f"{host}:{PEER_PORT}"

    # --- Links -------------------------------------------------------------------------------------------------------

    def links_between(self, some: Collection[str], others: Collection[str], *, cut: bool) -> float:
        """Cut all links between two groups of places, or heal them; when."""
        do = self.network.cut if cut else self.network.heal
        for a in some:
            for b in others:
                do(a, b)
                do(b, a)
        return time.time()

    # --- Waiting -----------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], seconds: float) -> Any:
        """Wait until something holds, and return it; after so many seconds, None."""
        deadline = time.monotonic() + seconds
        while True:
            self.book.read()
            self._look_after()
            found = condition()
            if found is not None and found is not False:
                return found
            if time.monotonic() > deadline:
                return None
            time.sleep(LOOK_SECONDS)

    def wait(self, seconds: float) -> None:
        """Let it run."""
        self.until(lambda: None, seconds)

    def wait_until(self, at: float) -> None:
        """Let it run until a moment."""
        self.wait(max(0.0, at - time.time()))

    def _look_after(self) -> None:
        """Notice what has ended of itself. A server is then not waited for any more."""
        for i, process in list(self.running.items()):
            if process.poll() is not None:
                self.ended.append(f"server {i} ended with exit code {process.returncode}")
                del self.running[i]
        for name, process in list(self.clients.items()):
            if process.poll() is not None:
                self.ended.append(f"{name} ended with exit code {process.returncode}")
                del self.clients[name]

    def log(self, name: str, event: str) -> list[dict[str, Any]]:
        """The lines of a log with an event."""
        word = f'"event": "{event}"'
        lines = (self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()
        return [json.loads(line) for line in lines if word in line and line.startswith("{") and line.endswith("}")]
