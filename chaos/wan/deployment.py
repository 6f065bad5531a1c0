"""Deployment of a scenario in network namespaces: one process per server, and one per region for its clients.

Each server and the clients of each region have a place of their own, so that the latency within a region applies too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.wan.network import Network
from spyker.config.scenario import Scenario, dump
from spyker.config.world import latency_seconds
from spyker.net.certificate_issuing import make_deployment
from spyker.net.server_config import DeploymentOptions, write_config

ROOT = Path(__file__).parents[2]
SPYKER = (sys.executable, "-m", "spyker.cli.main")
CLIENT_PORT, PEER_PORT = 7000, 7100
MARGIN = 3.0  # seconds that servers run beyond the compared time, so that the first one to end affects nothing
PATIENCE = 90.0  # seconds for all processes to start, and again to end


class WanRunError(RuntimeError):
    """A process of the deployment failed; the message names the process and its log."""


def server_place(server: int) -> str:
    """Return the place of a server."""
    return f"server-{server}"


def clients_place(region: int) -> str:
    """Return the place of a region's clients."""
    return f"clients-{region}"


def places(scenario: Scenario) -> dict[str, int]:
    """Return all places that a scenario needs, and the region of each."""
    regions, of_servers = range(len(scenario.world.regions)), scenario.placement().server_regions
    return {server_place(i): r for i, r in enumerate(of_servers)} | {clients_place(r): r for r in regions}


def shape(network: Network, scenario: Scenario) -> None:
    """Set the scenario's latency and bandwidth on every link.

    In an emulation each client has a link of its own; here the clients of a region share one with the bandwidth of all.
    """
    latency, regions = latency_seconds(scenario.world), places(scenario)
    counts = scenario.world.clients
    assert counts is not None
    for a, from_region in regions.items():
        for b, to_region in regions.items():
            if a == b or (a.startswith("clients") and b.startswith("clients")):
                continue
            shared = max((counts[regions[place]] for place in (a, b) if place.startswith("clients")), default=1)
            network.set(
                a,
                b,
                delay_ms=1000 * latency[from_region][to_region],
                rate_mbit=shared * scenario.world.bandwidth_mbit,
            )


def deploy(scenario: Scenario, folder: Path) -> tuple[list[Path], int]:
    """Run a scenario for its duration.

    Returns:
        The records of the servers, each with times since its server started, and the bytes that crossed the network,
        including those of TCP and TLS.

    """
    with Network(list(places(scenario))) as network, ExitStack() as stack:
        shape(network, scenario)
        records = prepare(scenario, folder, network)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

        def start(place: str, command: list[str], name: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            options = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
            return network.run(place, [*SPYKER, *command], cwd=folder, env=environment, **options)

        def attend(region: int, clients: range, place: str, log: str) -> subprocess.Popen[bytes]:
            server = scenario.placement().homes[clients[0]]
            assert server is not None
            address = f"{network.address(server_place(server))}:{CLIENT_PORT}"
            ids = f"{clients[0]}-{clients[-1]}"
            command = ["join", "scenario.toml", "--server", address, "--clients", ids, "--certs", "certs", "--paced"]
            return start(place, command, log)

        regions = range(len(scenario.world.regions))
        # A server starts when its last client has connected. So the last client of each region is started before the
        # servers, paused once it has tried to connect, and resumed, all at once, when all others are connected.
        last = {f"last-{r}": attend(r, clients_of(scenario, r)[-1:], clients_place(r), f"last-{r}") for r in regions}
        wait_for_event("disconnected", last, folder, then=signal.SIGSTOP)
        names = [server_place(i) for i in scenario.placement().servers]
        servers = {name: start(name, ["serve", f"{name}.toml"], name) for name in names}
        wait_for_event("listening", servers, folder)
        clients = {}
        for r in regions:
            others = clients_of(scenario, r)[:-1]
            if others:
                clients[clients_place(r)] = attend(r, others, clients_place(r), clients_place(r))
                wait_for_event("attending", {clients_place(r): clients[clients_place(r)]}, folder, len(others))
        for process in last.values():
            process.send_signal(signal.SIGCONT)
        clients |= last
        ending = {name: servers[name] for name in list(servers)[: len(scenario.placement().learners)]} | clients
        wait_for_end(ending, folder, 2 * PATIENCE + scenario.duration + MARGIN)
        for process in servers.values():  # HierFAVG's cloud does not end by itself
            process.terminate()
        wait_for_end(servers, folder, PATIENCE)
        carried = sum(link["bytes"] for link in network.links().values())
        return records, carried


def clients_of(scenario: Scenario, region: int) -> range:
    """Return the clients of a region."""
    counts = scenario.world.clients
    assert counts is not None
    return range(sum(counts[:region]), sum(counts[: region + 1]))


def prepare(scenario: Scenario, folder: Path, network: Network, **deploy: Any) -> list[Path]:
    """Write scenario, certificates and configurations; return the folders of the servers' records.

    ``deploy`` overrides keys in every server's section.
    """
    folder.mkdir(parents=True)
    places = scenario.placement()
    count = len(places.servers)
    addresses = [network.address(server_place(i)) for i in range(count)]
    (folder / "scenario.toml").write_text(dump(scenario), "utf-8")
    make_deployment(folder / "certs", count, scenario.client_count, addresses)
    for i, address in enumerate(addresses):
        mine = len(places.clients_of(i))
        section = DeploymentOptions(
            server=i,
            listen_clients=f"{address}:{CLIENT_PORT}",
            listen_peers=f"{address}:{PEER_PORT}",
            peers=tuple(f"{a}:{PEER_PORT}" for a in addresses),
            ca="certs/ca.pem",
            certificate=f"certs/server-{i}/cert.pem",
            key=f"certs/server-{i}/key.pem",
            revoked="certs/revoked.json",
            state=f"state-{i}",
            record=f"record-{i}",
            min_clients=mine,
            join_timeout=PATIENCE,
            duration=scenario.duration + MARGIN if mine else None,
        )
        write_config(folder / f"server-{i}.toml", "scenario.toml", replace(section, **deploy))
    return [folder / f"record-{i}" for i in range(count)]


def wait_for_event(
    event: str,
    processes: dict[str, subprocess.Popen[bytes]],
    folder: Path,
    times: int = 1,
    then: signal.Signals | None = None,
) -> None:
    """Wait until the log of every process has an event this many times; then send each process a signal, if given."""
    deadline, word = time.monotonic() + PATIENCE, f'"event": "{event}"'.encode()
    waiting = dict(processes)
    while waiting:
        for name, process in list(waiting.items()):
            if (folder / f"{name}.log").read_bytes().count(word) >= times:
                del waiting[name]
                if then is not None:
                    process.send_signal(then)
            elif process.poll() is not None or time.monotonic() > deadline:
                raise failure(name, folder, f"has not logged {event!r}")
        time.sleep(0.02)


def wait_for_end(processes: dict[str, subprocess.Popen[bytes]], folder: Path, seconds: float) -> None:
    """Wait until every process has ended with exit code 0."""
    deadline = time.monotonic() + seconds
    waiting = dict(processes)
    while waiting:
        for name, process in list(waiting.items()):
            if process.poll() is not None:
                del waiting[name]
                if process.returncode:
                    raise failure(name, folder, f"ended with exit code {process.returncode}")
        if time.monotonic() > deadline:
            raise failure(next(iter(waiting)), folder, "does not end")
        time.sleep(0.1)


def failure(name: str, folder: Path, what: str) -> WanRunError:
    """Return an error with the last lines of a process's log."""
    log = folder / f"{name}.log"
    last = log.read_text("utf-8", "replace").splitlines()[-5:]
    return WanRunError("\n".join([f"{name} {what}; its log is {log} and ends with:", *last]))
