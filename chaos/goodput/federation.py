"""Spyker's processes under a schedule of faults: four servers, a process for each client, a supervisor, an operator."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chaos.drill.server_records import ServerRecords
from chaos.failover import Relay
from chaos.goodput import digits
from chaos.goodput.figures import (
    Figures,
    absent,
    applied,
    counted,
    floor_seconds,
    longest_gap,
    mean_scores,
    reached,
)
from chaos.goodput.schedule import SERVER, Fault
from chaos.waiting import listening, waiting
from spyker.config.scenario import from_table
from spyker.net.local_cluster import LocalCluster
from spyker.tasks.registry import resolve

RESTART = 2.0
"""Seconds after which a supervisor restarts a killed client, as ``RestartSec`` of the systemd unit says."""
OPERATOR = 20.0
"""Seconds after which an operator replaces a destroyed server."""
FAULTS = "servers destroyed, clients killed"
AWAY_SECONDS = 0.02
"""One way, between a client and the servers of other regions."""
LOOK_SECONDS = 0.05
RATES = {"stride": 0.01, "spyker": 0.2}
"""Learning rates with which an emulation reaches 0.9 after one to three minutes, so that there are faults before."""


def scenario_table(algorithm: str, data: Path, servers: int, clients: int, training: float) -> dict[str, Any]:
    """Return the scenario; ``clients`` is the number per server."""
    return {
        "algorithm": algorithm,
        "task": {"name": "chaos.goodput.task:Digits", "data": str(data)},
        "world": {
            "regions": [f"region-{i}" for i in range(servers)],
            "clients": [clients] * servers,
            "latency-ms": [[1.0 if i == j else 1000 * AWAY_SECONDS for j in range(servers)] for i in range(servers)],
        },
        "training": {"rate": RATES.get(algorithm, 0.05), "delay-ms": [1000 * training] * (servers * clients)},
    }


class Federation:
    """The processes of one run."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        self.cluster, self.folder = cluster, cluster.folder
        self.records = ServerRecords()
        self.trouble: list[str] = []
        """What went wrong that no fault explains."""
        self._far = [stack.enter_context(Relay(address, AWAY_SECONDS)).address for address in cluster.addresses]
        self._due: list[tuple[float, str, int]] = []
        self._orders: dict[int, subprocess.Popen[bytes]] = {}
        self._lives = 0

    def begin(self) -> None:
        """Start everything, and wait until every client has an applied update."""
        for i in range(len(self.cluster.addresses)):
            self.cluster.servers.append(self.cluster.serve(i))
            self.records.begin(i, self.cluster.record(i))
        for i in range(len(self.cluster.addresses)):
            listening(self.cluster, i, 1)
        everybody = range(self.cluster.scenario.client_count)
        for k in everybody:
            self.cluster.clients.append(self._attend(k))

        def all_train() -> bool:
            self.records.read()
            return all(applied(self.records, [k]) for k in everybody)

        waiting(all_train, f"not all clients train: see {self.folder}")

    def _attend(self, client: int) -> subprocess.Popen[bytes]:
        """Start a client, for which the servers of other regions are further away than its own."""
        home = self.cluster.places.homes[client]
        near, far = self.cluster.addresses, self._far
        servers = [near[i] if i == home else far[i] for i in range(len(near))]
        return self.cluster.join(f"{client}-{client}", servers, "--state", str(self.folder / f"state-{client}"))

    def run(self, faults: Sequence[Fault], seconds: float) -> float:
        """Run for some time, with faults. Returns the time of the beginning."""
        began = time.time()
        self._due = [(began + at, what, number) for at, what, number in faults]
        while (now := time.time()) < began + seconds:
            for each in sorted(self._due):
                if each[0] <= now:
                    self._due.remove(each)
                    self._do(*each)
            self._look_after()
            self.records.read()
            time.sleep(LOOK_SECONDS)
        return began

    def _do(self, at: float, what: str, number: int) -> None:
        if what == SERVER:
            self._destroy(number)
            self._due.append((time.time() + OPERATOR, "replace", number))
        elif what == "replace":
            helper = next(i for i in range(len(self.cluster.servers)) if i != number)
            config = str(self.folder / f"server-{helper}" / "config.toml")
            command = [sys.executable, "-m", "spyker.cli.main", "members", "replace", config, str(number)]
            with (self.folder / "operator.log").open("ab") as log:
                self._orders[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        elif what == "restart":
            self.cluster.clients[number] = self._attend(number)
        else:
            process = self.cluster.clients[number]
            process.kill()
            process.wait()
            self._due.append((time.time() + RESTART, "restart", number))

    def _destroy(self, server: int) -> None:
        """Kill a server and take its disk away. Its record is put aside, for us."""
        process, life = self.cluster.servers[server], self.records.of(server)
        process.kill()
        process.wait()
        life.destroyed = time.time()
        life.poll()
        self._lives += 1
        shutil.rmtree(self.folder / f"server-{server}" / "state")
        self.cluster.record(server).rename(self.folder / f"lost-{self._lives}")

    def _look_after(self) -> None:
        """Start replacements that were voted for, and whatever ended of itself."""
        for number, order in list(self._orders.items()):
            if order.poll() is None:
                continue
            del self._orders[number]
            if order.returncode:  # an operator tries again
                self.trouble.append(f"members replace {number}: exit code {order.returncode}")
                self._due.append((time.time() + 1.0, "replace", number))
            else:
                self.cluster.servers[number] = self.cluster.serve(number, "--join")
                self.records.begin(number, self.cluster.record(number))
        restarting = {number for _, what, number in self._due if what == "restart"}
        for k, process in enumerate(self.cluster.clients):
            if k not in restarting and process.poll() is not None:
                self.trouble.append(f"client {k} ended with exit code {process.returncode}")
                self._due.append((time.time() + RESTART, "restart", k))

    def end(self) -> None:
        """Let all servers save, and read the rest of their records."""
        for order in self._orders.values():
            order.kill()
            order.wait()
        self.cluster.stop()
        self.records.read()

    def arrivals(self) -> dict[int, list[tuple[float, int]]]:
        """Return when each client was welcomed by which server."""
        found: dict[int, list[tuple[float, int]]] = {}
        for k in range(self.cluster.scenario.client_count):
            lines = (self.folder / f"clients-{k}-{k}.log").read_text("utf-8", "replace").splitlines()
            entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
            found[k] = [(e["time"], e["server"]) for e in entries if e["event"] == "attending"]
        return found


def measure(
    algorithm: str,
    folder: Path,
    faults: Sequence[Fault],
    *,
    seconds: float,
    servers: int = 4,
    clients: int = 3,
    training: float = 1.0,
    target: float = 0.9,
    seed: int = 1,
    **deploy: Any,
) -> Figures:
    """Run a deployment under faults and count.

    Args:
        algorithm: name of the algorithm.
        folder: where the deployment is written; it must not exist.
        faults: the schedule; empty for a fault-free run.
        seconds: length of the measurement, which begins when every client has had an update applied.
        servers: number of servers.
        clients: number of clients of each server.
        training: duration of a training in seconds.
        target: accuracy whose time is measured.
        seed: of the division of the data.
        deploy: further keys of ``[deploy]``.

    """
    folder.mkdir(parents=True)
    data = folder.absolute() / "digits.npz"
    digits.write(data, servers * clients, seed)
    table = scenario_table(algorithm, data, servers, clients, training)
    os.environ["OMP_NUM_THREADS"] = "1"
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        scenario = resolve(from_table(table))
        cluster = stack.enter_context(
            LocalCluster(scenario, folder, insecure=False, paced=True, duration=None, **deploy)
        )
        federation = Federation(cluster, stack)
        federation.begin()
        began = federation.run(faults, seconds)
        federation.end()
    end, records = began + seconds, federation.records
    kept, lost = counted(records, began, end)
    arrivals = federation.arrivals()
    welcomed = {k: [at for at, _ in each] for k, each in arrivals.items()}
    killed = [(began + fault.at, fault.number) for fault in faults if fault.what != SERVER]
    destroyed = [(life.destroyed, life.server) for life in records.servers if life.destroyed is not None]
    orphans = [(at, k) for at, i in destroyed for k, each in arrivals.items() if at_server(each, at) == i]
    homes = cluster.places.homes
    regions = [[k for k in welcomed if homes[k] == i] for i in range(servers)]
    scores = [score for score in mean_scores(records) if score[0] <= end]
    return Figures(
        system=algorithm,
        faults=FAULTS if faults else "",
        seconds=seconds,
        clients=servers * clients,
        training_seconds=training,
        counted=kept,
        lost=lost,
        to_target=reached(scores, target, began),
        gap=longest_gap(applied(records), began, end),
        region_gap=max(longest_gap(applied(records, region), began, end) for region in regions),
        score=scores[-1][1],
        kills=len(killed),
        losses=len(destroyed),
        floor=floor_seconds(len(killed), RESTART, training),
        killed_seconds=absent(killed, welcomed, end),
        moved_seconds=absent(orphans, welcomed, end),
        load=(load + os.getloadavg()[0]) / 2,
        note="; ".join(federation.trouble),
    )


def at_server(arrivals: Sequence[tuple[float, int]], at: float) -> int | None:
    """Return the server that had welcomed a client last at a time."""
    return next((server for t, server in reversed(arrivals) if t < at), None)
