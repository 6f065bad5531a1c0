"""The configuration of one server process: a scenario, and a section ``[deploy]`` about this machine.

Paths are relative to the folder of the file. ``spyker up --keep DIR`` leaves such files as examples.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spyker.compression.block_codec import NONE
from spyker.config.scenario import CLIENTS, Scenario, load
from spyker.config.sections import convert, read, refuse_unknown, to_toml, write
from spyker.errors import UsageError
from spyker.net.channels import is_loopback, refuse_remote
from spyker.parameters import Rule, parameter
from spyker.tasks.registry import resolve
from spyker.tasks.served_model import ModelSpec
from spyker.untrusted_files import load_settings

SERVER_FILE = "server.toml"


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """The keys of ``[deploy]``."""

    server: int = parameter(
        0, "number of this server; HierFAVG's cloud has the number after the last region's server", at_least=0
    )
    listen_clients: str = parameter("127.0.0.1:7000", "host:port that clients connect to")
    listen_peers: str = parameter(
        "127.0.0.1:7100", "host:port that other servers connect to; equal to listen-clients: both share one port"
    )
    client_address: str | None = parameter(
        None, "host:port at which clients reach this server; servers tell it to clients; unset: as in their folders"
    )
    listen_websocket: str | None = parameter(
        None, "host:port for clients over WebSocket; equal to listen-clients: both share one port; unset: none"
    )
    plaintext_clients: bool = parameter(
        False, "clients connect in plaintext: a reverse proxy on this machine terminates TLS; loopback addresses only"
    )
    peers: tuple[str, ...] = parameter(
        (), "host:port of every server, in the order of their numbers; the same list on all servers"
    )
    model: str | None = parameter(
        None,
        "file with the initial model, as spyker federation create writes it; the server then needs neither the task "
        "nor PyTorch; unset: the server makes the task",
    )
    ca: str = parameter("ca.pem", "file with the certificate of the deployment's certificate authority")
    certificate: str = parameter("cert.pem", "file with this server's certificate")
    key: str = parameter("key.pem", "file with this server's private key")
    revoked: str = parameter("revoked.json", "file with the revoked certificates of clients; reloaded when it changes")
    state: str = parameter("state", "folder for checkpoints and the server's secret")
    record: str = parameter("record", "folder for the run record")
    record_mb: float = parameter(
        2048.0, "maximum size of the run record in MB; older facts are deleted, except the first", at_least=1
    )
    event_log: str | None = parameter(
        None, "folder for logs of all events, from which spyker replay rebuilds the state; unset: none"
    )
    event_log_mb: float = parameter(256.0, "maximum size of an event log in MB", at_least=1)
    checkpoint_updates: int = parameter(
        100,
        "write a checkpoint after this number of updates, or half the number of clients if that is more",
        at_least=1,
    )
    checkpoint_seconds: float = parameter(
        30.0, "write a checkpoint after this number of seconds if the state changed", above=0
    )
    checkpoints: int = parameter(3, "number of latest checkpoints to keep", at_least=1)
    hourly_checkpoints: int = parameter(24, "number of older checkpoints to keep, one per hour", at_least=0)
    min_clients: int | None = parameter(
        None,
        "start when this number of clients is connected; unset: 1, or all of the region if the algorithm needs them",
        at_least=0,
    )
    join_timeout: float = parameter(
        60.0, "start after this number of seconds with the clients that are connected", at_least=0
    )
    client_timeout: float = parameter(
        60.0, "treat a client as departed after it was disconnected for this number of seconds", above=0
    )
    stall_timeout: float = parameter(
        30.0, "disconnect a client that reads or writes nothing for this number of seconds", above=0
    )
    min_mbit: float = parameter(
        0.5, "disconnect a client that transfers a model more slowly than this rate in Mbit/s", above=0
    )
    heartbeat: float = parameter(1.0, "seconds between heartbeats to other servers", above=0)
    suspect_after: float = parameter(
        5.0, "suspect a server that acknowledged nothing for this number of seconds", above=0
    )
    renew_token_after: float = parameter(
        10.0, "vote for a new token when no server has held it for this number of seconds", above=0
    )
    remove_after: float | None = parameter(
        None, "vote to remove a server that was silent for this number of seconds; unset: never", above=0
    )
    region: str | None = parameter(None, "region of a server that is not in the scenario")
    keepalive: float = parameter(
        10.0, "seconds between pings; a connection ends after half of it without an answer", above=0
    )
    receive_memory_mb: float = parameter(2048.0, "memory limit for incoming models, in MB", above=0)
    max_connections: int | None = parameter(
        None, "maximum number of simultaneous client connections; unset: 512 plus 4 per client", at_least=1
    )
    client_window_kb: int = parameter(
        1024,
        "flow-control window of a client's stream in KiB; a larger window is faster over long distances",
        at_least=64,
    )
    max_norm: float | None = parameter(None, "reject updates whose norm exceeds this; unset: no limit", above=0)
    metrics: str | None = parameter(None, "host:port of the Prometheus endpoint; unset: none")
    duration: float | None = parameter(None, "stop after this number of seconds; unset: never", above=0)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of a server process."""

    scenario: Scenario
    deploy: DeploymentOptions
    folder: Path

    @property
    def needs_task(self) -> bool:
        """Whether the server creates the task: it has no model file, or it evaluates."""
        return self.deploy.model is None or self.scenario.evaluation.by not in (None, CLIENTS)

    def path(self, name: str) -> Path:
        """Resolve a file or folder name relative to the configuration file."""
        return self.folder / name


def load_config(path: Path) -> ServerConfig:
    """Read and check a server's configuration: a TOML file, or a folder with ``server.toml``."""
    if path.is_dir() and not (path / SERVER_FILE).exists() and (path / "client.toml").exists():
        raise UsageError("FOLDER", f"{path} is the folder of a client", f"Run spyker join {path}, or name a server's")
    remedy = "Name a server's folder that spyker federation create wrote"
    if not path.exists():
        raise UsageError("FOLDER", f"{path} not found", remedy)
    path = path / SERVER_FILE if path.is_dir() else path
    table = load_settings(path, remedy)
    refuse_unknown(table, ("scenario", "deploy"), "")
    name = table.get("scenario")
    file = None if name is None else path.parent / convert(name, str, Rule(""), "scenario")
    return check(
        ServerConfig(resolve(load(file)), read(DeploymentOptions, table.get("deploy", {}), "deploy"), path.parent)
    )


def check(config: ServerConfig) -> ServerConfig:
    """Check that the values fit together; raise a ``UsageError`` if they do not."""
    scenario, deploy = config.scenario, config.deploy
    servers = len(scenario.placement().servers)
    if deploy.server >= servers and deploy.region is None:
        raise UsageError(
            "deploy.server",
            f"{deploy.server} is not allowed",
            f"{scenario.chosen.title} has servers 0 to {servers - 1} here; for one more, name its deploy.region",
        )
    if servers > 1 and len(deploy.peers) < servers:
        raise UsageError(
            "deploy.peers", f"has {len(deploy.peers)} entries for {servers} servers", "Give one host:port per server"
        )
    if deploy.suspect_after < 2 * deploy.heartbeat:
        raise UsageError(
            "deploy.suspect-after",
            f"{deploy.suspect_after} is not allowed",
            f"Give at least twice deploy.heartbeat: {2 * deploy.heartbeat}",
        )
    for j, address in enumerate(deploy.peers):
        if address in deploy.peers[:j]:
            other = deploy.peers.index(address)
            raise UsageError("deploy.peers", f"gives servers {other} and {j} one address, {address}", "Fix one of them")
    if deploy.listen_websocket is not None and deploy.listen_websocket == deploy.listen_peers != deploy.listen_clients:
        raise UsageError(
            "deploy.listen-websocket",
            f"{deploy.listen_websocket} is not allowed: it is the address for other servers",
            "Give it an address of its own, or that of deploy.listen-clients",
        )
    for key in ("listen_clients", "client_address", "listen_peers", "listen_websocket", "peers", "metrics"):
        value = getattr(deploy, key)
        for address in (value,) if isinstance(value, str) else value or ():
            check_address(address, f"deploy.{key.replace('_', '-')}")
    if deploy.plaintext_clients:
        for key in ("listen_clients", "listen_websocket"):
            if (address := getattr(deploy, key)) is not None and not is_loopback(address):
                raise UsageError(
                    "deploy.plaintext-clients",
                    f"would take plaintext at {address}",
                    f"Use a loopback address in deploy.{key.replace('_', '-')}, or let the proxy connect with TLS",
                )
    return config


def shares_port(deploy: DeploymentOptions, service: str) -> bool:
    """Return whether a service (``clients``, ``peers`` or ``websocket``) is at the clients' port."""
    address = deploy.listen_clients
    return not address.endswith(":0") and getattr(deploy, f"listen_{service}") == address


def check_address(address: str, where: str) -> str:
    """Check that ``address`` is ``host:port`` and return it."""
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(where, f"{to_toml(address)} is not allowed", 'Write "host:port", such as "127.0.0.1:7000"')
    return address


def check_insecure(config: ServerConfig) -> None:
    """Raise a ``UsageError`` unless all addresses are local: plaintext is never sent to other machines."""
    check_insecure_masking(config.scenario)
    deploy = config.deploy
    websocket = () if deploy.listen_websocket is None else (deploy.listen_websocket,)
    refuse_remote([deploy.listen_clients, deploy.listen_peers, *websocket, *deploy.peers])


def check_insecure_masking(scenario: Scenario) -> None:
    """Raise a ``UsageError`` if clients are to mask their updates without certificates."""
    if scenario.privacy.masking:
        problem = "is not allowed: with privacy.masking clients and helpers need certificates"
        raise UsageError("--insecure", problem, "Leave it out")


def min_clients(config: ServerConfig) -> int:
    """Return the number of connected clients that this server waits for before it starts."""
    deploy, scenario = config.deploy, config.scenario
    placed = scenario.placement()
    if deploy.server >= len(placed.servers):
        return 0  # a server that was added starts from another server's state
    everybody = len(placed.clients_of(deploy.server))
    if deploy.min_clients is not None:
        return deploy.min_clients if everybody else 0
    return everybody if scenario.chosen.waits_for_all_clients else min(1, everybody)


def write_config(path: Path, scenario_file: str, deploy: DeploymentOptions) -> None:
    """Write a configuration file, with a comment for every key."""
    path.write_text(f"scenario = {to_toml(scenario_file)}\n\n[deploy]\n{write(deploy, comments=True)}", "utf-8")


def layout_numbers(model: ModelSpec) -> dict[str, Any]:
    """Return the names and shapes in a weight vector and their digest, as stored in a checkpoint."""
    layout = model.layout
    parts = {"names": list(layout.names), "shapes": [list(shape) for shape in layout.shapes]}
    return parts | {"digest": model.digest.hex()}


def learning_digest(scenario: Scenario) -> bytes:
    """Return a digest of the settings that a client and its server must share; speed and hardware are excluded."""
    training = asdict(replace(scenario.training, delay_ms=(), device="cpu"))
    training = {key: value for key, value in training.items() if key != "kernel" and value is not None}
    options = scenario.task.options
    options = options if isinstance(options, dict) else asdict(options)
    options = {key: value for key, value in options.items() if key not in ("node_config", "setup")}  # of a Flower app
    answers = scenario.chosen.client.__qualname__  # with models, or with differences
    agreed = [scenario.task.name, options, scenario.seed, training, answers]
    privacy, codes = scenario.privacy, scenario.compression.with_clients
    if privacy.has_budget or privacy.masking:
        agreed.append(asdict(privacy))
    return digest([*agreed, codes] if codes else agreed)


def deployment_digest(scenario: Scenario) -> bytes:
    """Return a digest of the settings that all servers must share."""
    agreed = [learning_digest(scenario).hex(), scenario.algorithm, asdict(scenario.parameters)]
    code = scenario.compression.exchanges
    return digest(agreed if code == NONE else [*agreed, code])


def digest(value: object) -> bytes:
    """Return the digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
