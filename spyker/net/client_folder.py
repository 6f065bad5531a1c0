"""The folder of a client of a federation: scenario, servers, certificate and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from spyker.config.scenario import Scenario, load
from spyker.config.sections import convert, read, refuse_unknown, to_toml, write
from spyker.errors import UsageError
from spyker.net.server_config import check_address
from spyker.net.transports import AUTO, TRANSPORTS, check_proxy
from spyker.parameters import Rule, parameter
from spyker.tasks.registry import code_of, resolve
from spyker.untrusted_files import load_settings

CLIENT_FILE, SETUP_FILE = "client.toml", "flower-setup"


@dataclass(frozen=True, slots=True)
class ClientSection:
    """The keys of ``[client]`` in ``client.toml``."""

    name: str = parameter("", "name of the client")
    number: int = parameter(0, "number of the client, which its certificate names as well", at_least=0)
    servers: tuple[str, ...] = parameter((), "host:port of the servers; the nearest one is used")
    numbers: tuple[int, ...] = parameter((), "numbers of these servers: no other server is greeted at their addresses")
    layout: str = parameter("", "digest of the model's layout")
    code: str = parameter("", "digest of the task's code on the operator's machine; empty for a built-in task")
    transport: str = parameter(
        AUTO, "grpc, websocket, or auto: gRPC, or WebSocket where HTTP/2 is blocked", choices=TRANSPORTS
    )
    proxy: str | None = parameter(None, "URL of an HTTP proxy, http://user:password@host:port; unset: https_proxy")
    allow_other_code: bool = parameter(False, "true: train with the code on this machine even if its digest differs")


@dataclass(frozen=True, slots=True)
class ClientFolder:
    """The content of a client's folder."""

    path: Path
    scenario: Scenario
    client: ClientSection
    options: Mapping[str, str] = field(default_factory=dict)
    """Local options of the task, from ``[options]``. They never leave the client."""

    def check_code(self, *, allow: bool = False) -> None:
        """Raise a ``UsageError`` if the task's code on this machine is not the federation's.

        Args:
            allow: accept other code.

        """
        here, there, task = code_of(self.scenario.task), self.client.code, self.scenario.task.name
        if here == there or allow or self.client.allow_other_code:
            return
        if not here:
            remedy = "Copy the operator's file to this folder, or run the command in the folder that has it"
            raise UsageError("task.name", f"the code of {task} was not found on this machine", remedy)
        remedy = "Use the operator's version of the code in this folder, or add --allow-other-code to use your own"
        digests = f"{short(here)} on this machine, and {short(there)} in the federation"
        raise UsageError("task.name", f"the code of {task} has the digest {digests}", remedy)


def short(digest: str) -> str:
    """Return the first digits of a digest of code."""
    return digest[:16] or "none"


def load_client(path: Path) -> ClientFolder:
    """Read and check the folder of a client.

    Args:
        path: the folder, or the ``client.toml`` in it.

    Raises:
        UsageError: names the file or key, what is wrong with it and the remedy.

    """
    file = path / CLIENT_FILE if path.is_dir() else path
    if path.is_dir() and not file.exists() and (path / "server.toml").exists():
        raise UsageError("FOLDER", f"{path} is the folder of a server", f"Run spyker serve {path}, or name a client's")
    table = load_settings(file, "Name a client's folder that spyker federation create wrote")
    refuse_unknown(table, ("scenario", "client", "options"), "")
    name = convert(table.get("scenario", "scenario.toml"), str, Rule(""), "scenario")
    client = read(ClientSection, table.get("client", {}), "client")
    if not client.servers:
        raise UsageError("client.servers", "is missing", "Give the address of at least one server")
    if client.numbers and len(client.numbers) != len(client.servers):
        problem = f"has {len(client.numbers)} entries for {len(client.servers)} servers"
        raise UsageError("client.numbers", problem, "Give one number per server, or none")
    for address in client.servers:
        check_address(address, "client.servers")
    if client.proxy is not None:
        check_proxy(client.proxy, "client.proxy")
    given = convert(table.get("options", {}), Mapping[str, object], Rule(""), "options")
    options = {key: convert(value, str, Rule(""), f"options.{key}") for key, value in given.items()}
    scenario, setup = resolve(load(file.parent / name)), file.parent / SETUP_FILE
    if setup.exists():  # the app's clients do not run its ServerApp
        task = replace(scenario.task, options=replace(scenario.task.options, setup=str(setup)))
        scenario = replace(scenario, task=task)
    return ClientFolder(file.parent, scenario, client, options)


def write_client_file(folder: Path, client: ClientSection) -> None:
    """Write ``client.toml``, with a comment for every key."""
    text = f"scenario = {to_toml('scenario.toml')}\n\n[client]\n{write(client, comments=True)}"
    options = "\n# Local options of the task; --data PATH sets data. They never leave this machine.\n[options]\n"
    (folder / CLIENT_FILE).write_text(text + options, "utf-8")
