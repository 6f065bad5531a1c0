"""Client updates per second of one deployed server, by transport: gRPC, WebSocket, and one port for both.

As in ``deploy``: a server process and a process with all clients, on loopback, with TLS, and nobody trains.
"""

from __future__ import annotations

from benchmarks.deploy import rate, scratch
from benchmarks.measure import Result, in_turn
from spyker.config.scenario import load
from spyker.net.local_cluster import LocalCluster, free_ports
from spyker.records import RunRecord
from spyker.tasks.registry import resolve

# parameters: (name, clients, seconds, bar of WebSocket over gRPC)
SIZES = {21_840: ("87 kB", 8, 8.0, 0.5), 1_200_000: ("4.8 MB", 4, 8.0, 0.5)}
TIMES = 3


def transport_rate(
    parameters: int, clients: int, seconds: float, transport: str = "grpc", *, one_port: bool = False
) -> float:
    """Of ``spyker serve``, from the update facts in its record."""
    overrides = {
        "algorithm": "spyker",
        "task.name": "benchmarks.idle:make",
        "task.parameters": parameters,
        "task.trivial": True,
        "world.regions": ["Paris"],
        "evaluation.interval": 1e6,
    }
    scenario = resolve(load(None, overrides, clients=clients))
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    deploy = {"listen_clients": first}
    if one_port or transport == "websocket":
        deploy["listen_websocket"] = first if one_port else second
    with (
        scratch() as folder,
        LocalCluster(scenario, folder, insecure=False, paced=False, duration=seconds, **deploy) as local,
    ):
        local.servers.append(local.serve(0))
        address = second if transport == "websocket" and not one_port else first
        local.clients.append(local.join(f"0-{clients - 1}", [address], "--transport", transport))
        local.watch(lambda t, fact: None, lambda: False)
        times = [stated.t for stated in RunRecord(local.record(0)).updates()]
    return rate(times, clients)


def measure() -> list[Result]:
    results = []
    for parameters, (name, clients, seconds, bar) in SIZES.items():

        def direct(parameters: int = parameters, clients: int = clients, seconds: float = seconds) -> float:
            return transport_rate(parameters, clients, seconds)

        def websocket(parameters: int = parameters, clients: int = clients, seconds: float = seconds) -> float:
            return transport_rate(parameters, clients, seconds, "websocket")

        def shared(parameters: int = parameters, clients: int = clients, seconds: float = seconds) -> float:
            return transport_rate(parameters, clients, seconds, one_port=True)

        for title, other, least in (("WebSocket", websocket, bar), ("gRPC at a shared port", shared, None)):
            a, b = in_turn(other, direct, TIMES)
            details = {"clients": float(clients), "updates_per_s": a, "grpc_updates_per_s": b}
            results.append(Result(f"{title} / gRPC, {name}", a / b, least, details=details))
    return results
