"""Kill or stop real server processes or fill their disks, and count updates that were lost or applied twice.

    python -m chaos.server_kills [--algorithm NAME] [--faults kill stop disk] [--kills N | --minutes M] [--updates N]
        [--servers N] [--clients N]

All clients keep running. An update is one training of a client. It counts as applied if it is part of a server's final
state: a killed server's record says which updates its restart undid. Updates that a server dropped because of their
rate are counted on their own. Exit code 1 if an update was lost or applied twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chaos.server_faults import ServerFaults, state_disks
from chaos.waiting import WAIT_SECONDS, applying, listening, waiting
from spyker.config.scenario import from_table
from spyker.net.checkpoints import latest
from spyker.net.local_cluster import LocalCluster
from spyker.protocol.facts import UpdateDropped
from spyker.records import RunRecord, ServerResumed
from spyker.tasks.registry import resolve


class KillReport(NamedTuple):
    """What became of the updates."""

    faults: Mapping[str, int]
    """Number of faults by kind."""
    trained: int
    applied: int
    lost: int
    twice: int
    undone: int
    """Updates that restarts undid, and that had to be offered again."""
    dropped: int
    """Updates that servers dropped because their clients sent too many."""
    seconds: float

    def __str__(self) -> str:
        faults = ", ".join(f"{count} × {name}" for name, count in self.faults.items())
        return (
            f"{faults} in {self.seconds:.0f} s: {self.trained} updates of clients, {self.applied} applied, "
            f"{self.lost} lost, {self.twice} applied twice, {self.dropped} dropped because of their rate; "
            f"{self.undone} were undone by a restart"
        )


def scenario_table(algorithm: str, servers: int, clients: int, delay_ms: float) -> dict[str, Any]:
    """Return a scenario whose clients need this time for a training."""
    return {
        "algorithm": algorithm,
        "duration": 3.0,
        "task": {"name": "quadratic", "dimension": 8},
        "world": {
            "regions": [f"region-{i}" for i in range(servers)],
            "clients": [clients] * servers,
            "latency-ms": [[1.0] * servers] * servers,
        },
        "training": {"rate": 0.5, "delay-ms": [delay_ms] * (servers * clients)},
    }


def kill_servers(
    folder: Path,
    *,
    algorithm: str = "stride",
    servers: int = 2,
    clients: int = 3,
    kills: int = 5,
    minutes: float | None = None,
    faults: Sequence[str] = ("kill",),
    updates: int = 150,
    delay_ms: float = 20.0,
    seed: int = 1,
    **deploy: Any,
) -> KillReport:
    """Run a deployment, and inject a fault into one of its servers after some updates, again and again.

    Args:
        folder: where the deployment is written.
        algorithm: name of the algorithm.
        servers: number of servers.
        clients: number of clients of each server.
        kills: number of faults.
        minutes: inject faults for this long instead of counting them.
        faults: ``kill`` (and restart), ``stop`` for some seconds, ``disk``: a full state disk for some seconds.
        updates: mean number of updates that a server applies before a fault.
        delay_ms: duration of a training in milliseconds.
        seed: of the times of faults, and of their servers.
        deploy: further keys of ``[deploy]``.

    """
    chance = random.Random(seed)
    scenario = resolve(from_table(scenario_table(algorithm, servers, clients, delay_ms)))
    began = time.monotonic()
    with (
        LocalCluster(scenario, folder, insecure=True, paced=True, duration=None, **deploy) as cluster,
        state_disks(cluster) if "disk" in faults else contextlib.nullcontext(),
    ):
        for i in range(servers):
            cluster.servers.append(cluster.serve(i))
        for i in range(servers):
            listening(cluster, i, 1)
            ids = cluster.places.clients_of(i)
            more = ("--state", str(folder / f"clients-{i}"), "--patience", "600")
            cluster.clients.append(cluster.join(f"{ids[0]}-{ids[-1]}", [cluster.addresses[i]], *more))
        injected: Counter[str] = Counter()
        with_faults = ServerFaults(cluster, chance)
        while (time.monotonic() - began < 60 * minutes) if minutes else injected.total() < kills:
            i = chance.randrange(servers)
            applying(cluster, i, int(updates * chance.uniform(0.5, 1.5)))
            name = chance.choice(list(faults))
            with_faults.by_name[name](i)
            injected[name] += 1
        restarted = time.time()
        waiting(lambda: status_time(folder, servers) > restarted, "the clients do not write their status")
        reached = trainings(folder, servers)
        waiting(lambda: all(now > reached[k] + 3 for k, now in trainings(folder, servers).items()), "no client trains")
        for process in cluster.clients:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_SECONDS)
        trained = trainings(folder, servers)
        cluster.stop()
        took = time.monotonic() - began
        cluster.merge(folder / "merged")
        applied, undone = applied_updates(folder, servers)
    dropped = dropped_updates(folder, servers)
    missing = trained - applied - dropped
    lost = sum(count - 1 for count in missing.values())  # the last one may have ended after the goodbye
    twice = sum((applied - trained).values())
    return KillReport(dict(injected), trained.total(), applied.total(), lost, twice, undone, dropped.total(), took)


def dropped_updates(folder: Path, servers: int) -> Counter[int]:
    """Return how many updates of each client were dropped because of their rate."""
    facts = (stated.fact for i in range(servers) for stated in RunRecord(folder / f"server-{i}" / "record").facts())
    return Counter(fact.client for fact in facts if isinstance(fact, UpdateDropped))


def applied_updates(folder: Path, servers: int) -> tuple[Counter[int], int]:
    """Return how many updates of each client are in the servers' final states, and how many restarts have undone."""
    applied: Counter[int] = Counter()
    for _, update, _ in RunRecord(folder / "merged").updates():
        applied[update.client] += 1
    undone = 0
    for i in range(servers):
        for stated in RunRecord(folder / f"server-{i}" / "record").facts():
            undone += stated.fact.lost_updates if isinstance(stated.fact, ServerResumed) else 0
        saved = latest(folder / f"server-{i}" / "state")
        assert saved is not None
        answered = saved.numbers["server"].get("answered", [])  # in the round that has not ended
        for client in answered if isinstance(answered, list) else [k for k, _ in answered["table"]]:
            applied[client] += 1
    return applied, undone


def statuses(folder: Path, servers: int) -> list[dict[str, Any]]:
    """Return what the processes of clients last wrote about themselves, which may be a second ago."""
    return [json.loads((folder / f"clients-{i}" / "status.json").read_text("utf-8")) for i in range(servers)]


def status_time(folder: Path, servers: int) -> float:
    """Return when the process that has not written its status for longest did so."""
    return min(float(status["time"]) for status in statuses(folder, servers))


def trainings(folder: Path, servers: int) -> Counter[int]:
    """Return the number of trainings of each client. One that trains has sent everything that it has kept."""
    entries = [entry for status in statuses(folder, servers) for entry in status["clients"]]
    return Counter({entry["client"]: entry["trainings"] for entry in entries})


def main(argv: list[str]) -> int:
    """Inject faults and print what became of the updates."""
    parser = argparse.ArgumentParser(prog="python -m chaos.server_kills", description=__doc__.split("\n")[0])
    parser.add_argument("--algorithm", default="stride")
    parser.add_argument("--faults", nargs="+", choices=("kill", "stop", "disk"), default=["kill"])
    parser.add_argument("--kills", type=int, default=10, help="number of faults; default: 10")
    parser.add_argument("--minutes", type=float, help="inject faults for this long instead")
    parser.add_argument("--updates", type=int, default=150, help="mean number of updates before a fault")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=3, help="clients of each server")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="spyker-kills-") as folder:
        report = kill_servers(
            Path(folder), algorithm=args.algorithm, servers=args.servers, clients=args.clients, kills=args.kills,
            updates=args.updates, faults=args.faults, minutes=args.minutes,
        )  # fmt: skip
    print(f"{args.algorithm}, {args.servers} servers with {args.clients} clients each: {report}")
    return 1 if report.lost or report.twice else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
