"""The configuration of one server process: a scenario, and a section ``[deploy]`` about this machine.

Paths are relative to the folder of the file. ``spyker up --keep DIR`` leaves such files as examples.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spyker.config.scenario import Scenario, load
from spyker.config.sections import convert, read, refuse_unknown, to_toml, write
from spyker.errors import UsageError
from spyker.net.channels import refuse_remote
from spyker.parameters import Rule, parameter
from spyker.tasks.layout import layout_digest, layout_of
from spyker.tasks.registry import resolve
from spyker.tasks.task import Task


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """The keys of ``[deploy]``."""

    server: int = parameter(0, "which server this is; HierFAVG's cloud comes after the last region's", at_least=0)
    listen_clients: str = parameter("127.0.0.1:7000", "host:port where clients come in")
    listen_peers: str = parameter("127.0.0.1:7100", "host:port where other servers come in")
    peers: tuple[str, ...] = parameter(
        (), "host:port of every server for the others, by number; the same list everywhere"
    )
    ca: str = parameter("ca.pem", "the certificate authority of this deployment")
    certificate: str = parameter("cert.pem", "this server's certificate")
    key: str = parameter("key.pem", "its private key")
    credentials: str = parameter("clients.json", "digests of the clients' credentials")
    state: str = parameter("state", "folder for checkpoints and the server's secret")
    record: str = parameter("record", "folder for the run record")
    record_mb: float = parameter(
        2048.0, "the record takes no more disk than this; what is older goes, but for its beginning", at_least=1
    )
    event_log: str | None = parameter(
        None, "folder for logs of all events, from which spyker replay rebuilds the state; unset: none"
    )
    event_log_mb: float = parameter(256.0, "an event log ends when it is this large", at_least=1)
    checkpoint_updates: int = parameter(100, "save after so many updates", at_least=1)
    checkpoint_seconds: float = parameter(30.0, "and after so many seconds, if anything happened", above=0)
    keep: int = parameter(3, "how many checkpoints are kept", at_least=1)
    keep_hourly: int = parameter(24, "and one of each of so many hours before them", at_least=0)
    wait_for: int | None = parameter(
        None,
        "begin with so many clients; unset: 1, or all of the region where everybody waits for everybody",
        at_least=0,
    )
    join_timeout: float = parameter(60.0, "begin after so many seconds with those who are there", at_least=0)
    client_timeout: float = parameter(60.0, "a client that stays away for so many seconds has left", above=0)
    stall_timeout: float = parameter(30.0, "who reads or writes nothing for so many seconds is disconnected", above=0)
    slowest_mbit: float = parameter(0.5, "and who takes longer for a model than at this rate, in Mbit/s", above=0)
    beat: float = parameter(1.0, "seconds between two signs of life to the other servers", above=0)
    suspect_after: float = parameter(
        5.0, "go on without a server that has listened to nothing for so many seconds", above=0
    )
    renew_after: float = parameter(10.0, "vote for a new token when nobody has had it for so many seconds", above=0)
    forget_after: float | None = parameter(
        None, "vote to remove a server that was silent for so many seconds; unset: never", above=0
    )
    region: str | None = parameter(None, "the region of a server that the scenario does not have")
    keepalive: float = parameter(10.0, "seconds between pings; half of it without an answer ends a connection", above=0)
    receive_memory_mb: float = parameter(2048.0, "models on their way in may take so much memory together", above=0)
    max_connections: int | None = parameter(
        None, "so many connections at a time at the port for clients; unset: 64, and 4 per client", at_least=1
    )
    client_window_kb: int = parameter(
        1024,
        "what is taken in of a stream before it is read; more is faster from afar, also for strangers",
        at_least=64,
    )
    max_norm: float | None = parameter(None, "refuse models whose norm exceeds this", above=0)
    max_client_data: int | None = parameter(
        None, "refuse clients that claim more data points than this; unset: 2**31", at_least=1
    )
    metrics: str | None = parameter(None, "host:port where Prometheus may ask; unset: nowhere")
    duration: float | None = parameter(None, "stop after so many seconds; unset: never", above=0)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of a server process."""

    scenario: Scenario
    deploy: DeploymentOptions
    folder: Path

    def path(self, name: str) -> Path:
        """Return the path of a file or folder that the configuration names."""
        return self.folder / name


def load_config(path: Path) -> ServerConfig:
    """Read and check a server's configuration."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", "Name an existing TOML file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(str(path), f"is not valid TOML: {error}", "Mend that line") from None
    refuse_unknown(table, ("scenario", "deploy"), "")
    name = table.get("scenario")
    file = None if name is None else path.parent / convert(name, str, Rule(""), "scenario")
    return check(
        ServerConfig(resolve(load(file)), read(DeploymentOptions, table.get("deploy", {}), "deploy"), path.parent)
    )


def check(config: ServerConfig) -> ServerConfig:
    """Raise an error for a configuration that cannot work."""
    scenario, deploy = config.scenario, config.deploy
    servers = len(scenario.placement().servers)
    if deploy.server >= servers and deploy.region is None:
        raise UsageError(
            "deploy.server",
            f"is {deploy.server}",
            f"{scenario.chosen.title} has servers 0 to {servers - 1} here; for one more, name its deploy.region",
        )
    if servers > 1 and len(deploy.peers) < servers:
        raise UsageError(
            "deploy.peers", f"has {len(deploy.peers)} entries for {servers} servers", "Give one host:port per server"
        )
    if deploy.suspect_after < 2 * deploy.beat:
        raise UsageError(
            "deploy.suspect-after", f"is {deploy.suspect_after}", f"Give at least two beats: {2 * deploy.beat}"
        )
    for j, address in enumerate(deploy.peers):
        if address in deploy.peers[:j]:
            other = deploy.peers.index(address)
            raise UsageError("deploy.peers", f"gives servers {other} and {j} one address, {address}", "Mend one")
    for key in ("listen_clients", "listen_peers", "peers", "metrics"):
        value = getattr(deploy, key)
        for address in (value,) if isinstance(value, str) else value or ():
            check_address(address, f"deploy.{key.replace('_', '-')}")
    return config


def check_address(address: str, where: str) -> str:
    """Return ``host:port``, or raise an error."""
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(where, f"is {to_toml(address)}", 'Write "host:port", such as "127.0.0.1:7000"')
    return address


def check_insecure(config: ServerConfig) -> None:
    """Raise an error if plaintext would leave this machine."""
    deploy = config.deploy
    refuse_remote([deploy.listen_clients, deploy.listen_peers, *deploy.peers])


def wait_for(config: ServerConfig) -> int:
    """Return the number of clients that this server starts with."""
    deploy, scenario = config.deploy, config.scenario
    placed = scenario.placement()
    if deploy.server >= len(placed.servers):
        return 0  # it was added, and begins with what it is given
    everybody = len(placed.clients_of(deploy.server))
    if deploy.wait_for is not None:
        return deploy.wait_for if everybody else 0
    return everybody if scenario.chosen.waits_for_all_clients else min(1, everybody)


def connections(config: ServerConfig) -> tuple[int, int]:
    """How many connections each port takes at a time: that for clients, and that for servers. Some are on their way
    out while the same ones come back, and some are only asking how this server is.
    """
    scenario = config.scenario
    return (
        config.deploy.max_connections or 64 + 4 * scenario.client_count,
        64 + 4 * len(scenario.placement().servers),
    )


def write_config(path: Path, scenario_file: str, deploy: DeploymentOptions) -> None:
    """Write a configuration file, with a comment on every key."""
    path.write_text(f"scenario = {to_toml(scenario_file)}\n\n[deploy]\n{write(deploy, comments=True)}", "utf-8")


def layout_numbers(task: Task) -> dict[str, Any]:
    """The names and shapes of the parts of a task's weight vector, and their digest, as a checkpoint holds them."""
    layout = layout_of(task)
    parts = {"names": list(layout.names), "shapes": [list(shape) for shape in layout.shapes]}
    return parts | {"digest": layout_digest(task).hex()}


def learning_digest(scenario: Scenario) -> bytes:
    """What a client and its server must agree on. How fast a client is, and what computes there, is its own affair."""
    training = asdict(replace(scenario.training, delay_ms=(), device="cpu"))
    training = {key: value for key, value in training.items() if key != "kernel" and value is not None}
    options = scenario.task.options
    options = options if isinstance(options, dict) else asdict(options)
    options = {key: value for key, value in options.items() if key != "node_config"}  # of a Flower app
    answers = scenario.chosen.client.__qualname__  # with models, or with differences
    return digest([scenario.task.name, options, scenario.seed, training, answers])


def deployment_digest(scenario: Scenario) -> bytes:
    """Return a digest of what servers must agree on."""
    return digest([learning_digest(scenario).hex(), scenario.algorithm, asdict(scenario.parameters)])


def digest(value: object) -> bytes:
    """Return a digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
