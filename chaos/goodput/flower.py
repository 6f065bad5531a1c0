"""Flower's processes under the same schedule: one SuperLink and a SuperNode for each client, with TLS.

Flower is not installed beside Spyker: its commands are started by their paths. The SuperLink starts the ServerApp, and
each SuperNode a process per training, so both are ended with all their processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.goodput import digits
from chaos.goodput.federation import LOOK_SECONDS, OPERATOR, RESTART
from chaos.goodput.figures import Figures, floor_seconds, longest_gap, reached
from chaos.goodput.schedule import SERVER, Fault
from chaos.waiting import waiting
from spyker.net.certificate_issuing import make_deployment
from spyker.net.certificates import CA, CERTIFICATE, KEY
from spyker.net.local_cluster import free_ports
from spyker.net.parent_death import die_with_parent

CLIENTS_KILLED = "clients killed"
RESTARTED = "SuperLink killed and restarted with its disk, clients killed"
DESTROYED = "SuperLink destroyed with its disk, clients killed"
RATE, TARGET = 0.3, 0.85
"""Learning rate, and the accuracy whose time is measured: few rounds fit in, because a training starts a process."""
ROUND_TIMEOUT = 30.0
"""Seconds for which a round waits for a reply. Flower's default is an hour, for which a killed client would be waited
for."""
PROJECT = """[project]
name = "goodput"
version = "1.0.0"
description = "Digits"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "local"

[tool.flwr.app.components]
serverapp = "goodput.flower_app:server_app"
clientapp = "goodput.flower_app:client_app"

[tool.flwr.app.config]
"""


class Flower:
    """The processes of one run. ``state`` is the SuperLink's disk."""

    def __init__(self, commands: Path, folder: Path, clients: int, config: dict[str, Any]) -> None:
        self.commands, self.folder, self.count = commands.absolute(), folder, clients
        self.state, self.log = folder / "state", folder / "rounds.jsonl"
        self.ports = free_ports(1 + clients)
        self.link: subprocess.Popen[bytes] | None = None
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.trouble: list[str] = []
        self._due: list[tuple[float, str, int]] = []
        self._submitting: subprocess.Popen[bytes] | None = None
        home = folder / "home"
        home.mkdir(parents=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.ports[0]}"\n'
            f'root-certificates = "{folder}/certs/{CA}"\n',
            "utf-8",
        )
        make_deployment(folder / "certs", 1, 0, ["localhost", "127.0.0.1"], 30)
        self._env = os.environ | {
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.commands}:{os.environ['PATH']}",
        }
        app = folder / "app" / "goodput"
        app.mkdir(parents=True)
        (app / "__init__.py").touch()
        for name in ("digits.py", "flower_app.py"):
            shutil.copyfile(Path(__file__).parent / name, app / name)
        config = {"state": str(self.state), "log": str(self.log), **config}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in config.items()]
        (folder / "app" / "pyproject.toml").write_text(PROJECT + "".join(lines), "utf-8")

    def _start(self, name: str, command: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(self.commands / command), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def start_link(self) -> None:
        """Start the SuperLink with what its disk has."""
        self.state.mkdir(exist_ok=True)
        own = self.folder / "certs" / "server-0"
        files = ("--ssl-ca-certfile", own / CA, "--ssl-certfile", own / CERTIFICATE, "--ssl-keyfile", own / KEY)
        database = ("--database", self.state / "state.db", "--disable-runtime-dependency-installation")
        words = [*map(str, files), *map(str, database), "--port", str(self.ports[0])]
        self.link = self._start("superlink", "flower-superlink", *words)

    def start_node(self, k: int) -> subprocess.Popen[bytes]:
        """Start a client's SuperNode."""
        where = ("--superlink", f"127.0.0.1:{self.ports[0]}", "--port", str(self.ports[1 + k]))
        trust = ("--root-certificates", str(self.folder / "certs" / CA))
        return self._start(f"node-{k}", "flower-supernode", *trust, *where, "--node-config", f"partition-id={k}")

    def submit(self) -> None:
        """Have the app run."""
        self._submitting = self._start("flwr-run", "flwr", "run", str(self.folder / "app"), "here")

    def begin(self) -> None:
        """Start everything, and wait for the first round."""
        self.start_link()
        self.nodes = [self.start_node(k) for k in range(self.count)]
        self._submit_until_it_runs()

        def trained() -> bool:
            self._look_after()
            return any(entry["updates"] for entry in self.entries())

        waiting(trained, f"no round has ended: see {self.folder}")

    def _submit_until_it_runs(self) -> None:
        self._due.append((time.time(), "submit", 0))

    def entries(self) -> list[dict[str, float]]:
        """Return what the ServerApp has written, one entry per round."""
        lines = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def run(self, faults: Sequence[Fault], kind: str, seconds: float) -> float:
        """Run for some time, with faults. Returns the time of the beginning."""
        began = time.time()
        servers = kind in (RESTARTED, DESTROYED)
        self._due += [(began + at, what, k) for at, what, k in faults if what != SERVER or servers]
        while time.time() < began + seconds:
            self._look_after(kind)
            time.sleep(LOOK_SECONDS)
        return began

    def _look_after(self, kind: str = "") -> None:
        if self._submitting is not None and self._submitting.poll() is not None:
            if self._submitting.returncode:  # the SuperLink is not there yet
                self._due.append((time.time() + 0.5, "submit", 0))
            self._submitting = None
        for each in sorted(self._due):
            if each[0] <= time.time():
                self._due.remove(each)
                self._do(each[1], each[2], kind)

    def _do(self, what: str, number: int, kind: str) -> None:
        if what == SERVER:
            kill(self.link)
            if kind == DESTROYED:
                shutil.rmtree(self.state)
            self._due.append((time.time() + (OPERATOR if kind == DESTROYED else RESTART), "link", 0))
        elif what == "link":
            self.start_link()
            self._submit_until_it_runs()
        elif what == "submit":
            self.submit()
        elif what == "restart":
            self.nodes[number] = self.start_node(number)
        else:
            kill(self.nodes[number])
            self._due.append((time.time() + RESTART, "restart", number))

    def end(self) -> None:
        """End all processes."""
        for process in (self._submitting, self.link, *self.nodes):
            kill(process)


def kill(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process and those that it has started."""
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def measure(
    commands: Path,
    folder: Path,
    faults: Sequence[Fault],
    kind: str,
    *,
    seconds: float,
    clients: int,
    training: float = 1.0,
    target: float = TARGET,
    seed: int = 1,
) -> Figures:
    """Run Flower under faults and count.

    Args:
        commands: folder with Flower's commands.
        folder: where everything is written; it must not exist.
        faults: the schedule.
        kind: what happens to the SuperLink; empty: no faults at all.
        seconds: length of the measurement, which begins after the first round.
        clients: number of SuperNodes.
        training: duration of a training in seconds.
        target: accuracy whose time is measured.
        seed: of the division of the data.

    """
    folder.mkdir(parents=True)
    data = folder / "digits.npz"
    digits.write(data, clients, seed)
    config = {
        "data": str(data),
        "rate": RATE,
        "training": training,
        "timeout": ROUND_TIMEOUT,
        "nodes": max(1, clients - 1),
    }
    flower, load = Flower(commands, folder, clients, config), os.getloadavg()[0]
    try:
        flower.begin()
        before = flower.entries()
        began = flower.run(faults, kind, seconds)
    finally:
        flower.end()
    end = began + seconds
    rounds = [entry for entry in flower.entries()[len(before) :] if entry["at"] <= end]
    applied = int(sum(entry["updates"] for entry in rounds))
    # The total starts again with a lost disk. Otherwise what was there before the measurement is left out.
    last = rounds[-1]["total"] if rounds else 0
    counted = int(last if kind == DESTROYED and faults_before(faults, rounds, began) else last - before[-1]["total"])
    times = [entry["at"] for entry in rounds if entry["updates"]]
    killed = sum(fault.what != SERVER for fault in faults)
    return Figures(
        system="flower",
        faults=kind,
        seconds=seconds,
        clients=clients,
        training_seconds=training,
        counted=max(0, counted),
        lost=applied - max(0, counted),
        to_target=reached([(entry["at"], entry["score"]) for entry in rounds], target, began),
        gap=longest_gap(times, began, end),
        region_gap=longest_gap(times, began, end),
        score=rounds[-1]["score"] if rounds else before[-1]["score"],
        kills=killed,
        losses=sum(fault.what == SERVER for fault in faults) if kind in (RESTARTED, DESTROYED) else 0,
        floor=floor_seconds(killed, RESTART, training),
        load=(load + os.getloadavg()[0]) / 2,
        note="; ".join(flower.trouble),
    )


def faults_before(faults: Sequence[Fault], rounds: Sequence[dict[str, float]], began: float) -> bool:
    """Return whether a server was destroyed before the last round."""
    return any(fault.what == SERVER and rounds and began + fault.at < rounds[-1]["at"] for fault in faults)
