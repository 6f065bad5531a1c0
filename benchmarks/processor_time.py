"""Processor time per update of a deployed server and of its clients' process, beside a bare gRPC echo.

``python -m benchmarks.processor_time`` prints microseconds per update of each process: its main thread, and all its
threads. Unlike rates, these numbers depend little on what else the machine does. Arguments: the number of parameters
and the algorithm, by default 21840 and spyker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.deploy import certified, ended, scratch
from spyker.config.scenario import load
from spyker.net.local_cluster import LocalCluster
from spyker.records import Follower
from spyker.tasks.registry import resolve

PARAMETERS, CLIENTS, WARM_UP, SECONDS = 21_840, 8, 4.0, 12.0
TICKS = os.sysconf("SC_CLK_TCK")


def processor_time(process: int) -> tuple[float, float]:
    """Return the seconds that a process's main thread and all its threads have run."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    main = Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()[0]
    return int(main) / 1e9, (int(fields[11]) + int(fields[12])) / TICKS


def report(name: str, count: float, before: list[tuple[float, float]], after: list[tuple[float, float]]) -> None:
    """Print the microseconds per update."""
    for process, old, new in zip(("server", "clients"), before, after, strict=True):
        main, all_threads = ((b - a) / count * 1e6 for a, b in zip(old, new, strict=True))
        print(f"{name}, {process}: {main:.0f} µs of the main thread, {all_threads:.0f} µs of all threads", flush=True)


def spyker(parameters: int, algorithm: str) -> None:
    """Measure a deployed server."""
    overrides = {
        "algorithm": algorithm,
        "task.name": "benchmarks.idle:make",
        "task.parameters": parameters,
        "task.trivial": True,
        "world.regions": ["Paris"],
        "evaluation.interval": 1e6,
    }
    scenario = resolve(load(None, overrides, clients=CLIENTS))
    with scratch() as folder, LocalCluster(scenario, folder, insecure=False, paced=False, duration=None) as local:
        local.start()
        follower = Follower(local.record(0))

        def updates() -> int:
            return sum(fact.kind == "update" for _, fact, _ in follower.poll())

        while not updates():
            time.sleep(0.1)
        time.sleep(WARM_UP)
        processes = [local.servers[0].pid, local.clients[0].pid]
        updates()
        before = [processor_time(process) for process in processes]
        time.sleep(SECONDS)
        count = updates()
        report(algorithm, count, before, [processor_time(process) for process in processes])


def echo(parameters: int) -> None:
    """Measure the echo."""
    size, program = str(4 * parameters), [sys.executable, "-m", "benchmarks.echo"]
    with scratch() as folder, ended(certified(folder), [*program, "server", folder, size]) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        command = [*program, "clients", str(folder), port, str(CLIENTS), size, str(WARM_UP + SECONDS + 2)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as clients:
            time.sleep(WARM_UP)
            processes = [server.pid, clients.pid]
            before = [processor_time(process) for process in processes]
            time.sleep(SECONDS)
            after = [processor_time(process) for process in processes]
            assert clients.stdout is not None
            report("echo", float(clients.stdout.read()) * SECONDS, before, after)


if __name__ == "__main__":
    given = sys.argv[1:]
    parameters = int(given[0]) if given else PARAMETERS
    spyker(parameters, given[1] if len(given) > 1 else "spyker")
    echo(parameters)
