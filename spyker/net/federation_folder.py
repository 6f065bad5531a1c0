"""The folder of a federation: what its operator keeps, and one folder for each server and each client.

::

    federation/
      federation.toml  scenario.toml  model.safetensors  revoked.json  ca.pem
      ca.key             private: signs the certificates of servers and clients
      server-paris/      goes to the machine of server "paris", and nowhere else
      client-charite/    goes to the machine of client "charite", and nowhere else
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spyker.config.scenario import Scenario, dump, load
from spyker.config.sections import convert, read, refuse_unknown, show, to_key, to_toml, write
from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.net.certificate_authority import Authority, is_host
from spyker.net.certificate_check import read_certificates
from spyker.net.certificate_issuing import check_days, write_authority, write_client, write_server
from spyker.net.certificates import CA_KEY, CERTIFICATE, REVOKED, client_folder
from spyker.net.channels import is_loopback
from spyker.net.client_folder import SETUP_FILE, ClientSection, write_client_file
from spyker.net.revocations import Revocation, load_revocations, write_revocations
from spyker.net.server_config import SERVER_FILE, DeploymentOptions, write_config
from spyker.node.client_certificate import NAME
from spyker.parameters import Rule, parameter
from spyker.records import write_atomically
from spyker.tasks.served_model import ServedModel, read_served_model, write_served_model
from spyker.untrusted_files import load_settings

FEDERATION_FILE, SCENARIO_FILE, MODEL_FILE = "federation.toml", "scenario.toml", "model.safetensors"
PEERS_OFFSET = 100  # from the port for clients to the port for servers
MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server in ``federation.toml``."""

    number: int = parameter(0, "number of the server", at_least=0)
    clients: str = parameter("", "host:port that clients connect to")
    peers: str = parameter("", "host:port that other servers connect to")
    cloud: bool = parameter(False, "whether no clients connect to it: it is a cloud server or a helper")

    @property
    def host(self) -> str:
        """The host name or address of the server."""
        return self.clients.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """A client in ``federation.toml``."""

    number: int = parameter(0, "number of the client", at_least=0)
    removed: bool = parameter(False, "whether the client was removed; its number is never used again")


@dataclass(frozen=True, slots=True)
class Federation:
    """The folder of a federation and the content of ``federation.toml``."""

    path: Path
    days: float
    """Validity of new certificates."""
    servers: Mapping[str, ServerEntry]
    clients: Mapping[str, ClientEntry]

    @property
    def members(self) -> dict[str, ClientEntry]:
        """The clients that were not removed."""
        return {name: entry for name, entry in self.clients.items() if not entry.removed}

    def server_folder(self, name: str) -> Path:
        """Return the folder of a server."""
        return self.path / f"server-{name}"

    def client_folder(self, name: str) -> Path:
        """Return the folder of a client."""
        return self.path / client_folder(name)

    @property
    def peers(self) -> tuple[str, ...]:
        """The addresses for servers, in the order of their numbers."""
        return tuple(entry.peers for entry in sorted(self.servers.values(), key=lambda entry: entry.number))

    # --- Writing ---------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write ``federation.toml`` atomically."""
        parts = [f"# Written by spyker federation. No secrets.\ndays = {to_toml(self.days)}\n"]
        for kind, entries in (("servers", self.servers), ("clients", self.clients)):
            parts += [f"[{kind}.{to_key(name)}]\n{write(entry, comments=False)}" for name, entry in entries.items()]
        write_atomically(self.path / FEDERATION_FILE, "\n".join(parts))

    def write_server(self, name: str, deploy: DeploymentOptions) -> None:
        """Write all that a server needs into its folder."""
        entry, folder = self.servers[name], self.server_folder(name)
        write_server(folder, entry.number, Authority.load(self.path), [entry.host], self.days)
        for file in (MODEL_FILE, REVOKED):
            shutil.copyfile(self.path / file, folder / file)
        self._share_scenario(folder)
        section = replace(
            deploy,
            server=entry.number,
            listen_clients=listening(entry.clients),
            client_address=None if entry.cloud else entry.clients,
            listen_peers=listening(entry.peers),
            peers=self.peers,
            model=MODEL_FILE,
        )
        write_config(folder / SERVER_FILE, SCENARIO_FILE, section)

    def write_client(self, name: str) -> None:
        """Write all that a client needs into its folder."""
        folder, number = self.client_folder(name), self.clients[name].number
        write_client(folder, number, name, Authority.load(self.path), self.days)
        self._share_scenario(folder)
        spec = read_served_model(self.path / MODEL_FILE, MODEL_FILE).spec
        servers = [entry for entry in self.servers.values() if not entry.cloud]
        addresses, numbers = tuple(entry.clients for entry in servers), tuple(entry.number for entry in servers)
        if (self.path / SETUP_FILE).exists():
            shutil.copyfile(self.path / SETUP_FILE, folder / SETUP_FILE)
        section = ClientSection(name, number, addresses, numbers, spec.digest.hex(), spec.code)
        write_client_file(folder, section)

    def _share_scenario(self, folder: Path) -> None:
        """Write the scenario for a server or client. It does not tell them the names of all clients."""
        scenario = load(self.path / SCENARIO_FILE)
        shared = replace(scenario, world=replace(scenario.world, client_names=None))
        write_atomically(folder / SCENARIO_FILE, dump(shared))

    # --- Changes ---------------------------------------------------------------------------------------------------

    def add_client(self, name: str) -> Federation:
        """Create the folder of a new client. No server needs to know of it: its certificate is enough."""
        check_names(clients=[*self.clients, name])
        number = max((entry.number for entry in self.clients.values()), default=-1) + 1
        changed = replace(self, clients={**self.clients, name: ClientEntry(number)})
        changed.write_client(name)
        changed.write()
        return changed

    def remove_client(self, name: str) -> Federation:
        """Revoke all certificates of a client, and delete its folder."""
        entry = self.member(name)
        changed = replace(self, clients={**self.clients, name: replace(entry, removed=True)})
        self._revoke(Revocation(entry.number, name))
        changed.write()
        shutil.rmtree(self.client_folder(name), ignore_errors=True)
        return changed

    def add_server(self, name: str, entry: ServerEntry) -> Federation:
        """Create the folder of a server that is to join running servers."""
        if name in self.servers:
            raise UsageError("NAME", f"{show(name)} is not allowed: there is such a server", "Choose another name")
        check_names(servers=[*self.servers, name])
        entry = replace(entry, number=max(each.number for each in self.servers.values()) + 1)
        changed = replace(self, servers={**self.servers, name: entry})
        check_addresses(changed.servers)
        changed.write_server(name, DeploymentOptions(region=name))
        changed.write()
        return changed

    def renew_client(self, name: str, *, revoke: bool) -> None:
        """Create a new certificate and key for a client; ``revoke``: the old key was exposed."""
        entry, folder = self.member(name), self.client_folder(name)
        if revoke:
            (old,) = read_certificates(folder / CERTIFICATE, str(folder / CERTIFICATE))
            self._revoke(Revocation(entry.number, name, f"{old.serial_number:x}"))
        write_client(folder, entry.number, name, Authority.load(self.path), self.days)

    def renew_server(self, name: str) -> None:
        """Create a new certificate and key for a server."""
        entry = self.servers[name]
        write_server(self.server_folder(name), entry.number, Authority.load(self.path), [entry.host], self.days)

    def member(self, name: str) -> ClientEntry:
        """Return a client that was not removed."""
        entry = self.members.get(name)
        if entry is None:
            gone = "it was removed" if name in self.clients else "there is no such client"
            raise UsageError("NAME", f"{show(name)} is not allowed: {gone}", suggest(name, self.members))
        return entry

    def _revoke(self, revocation: Revocation) -> None:
        """Add an entry to ``revoked.json``, here and in the folders of all servers."""
        entries = [*load_revocations(self.path / REVOKED), revocation]
        for folder in (self.path, *map(self.server_folder, self.servers)):
            if folder.is_dir():
                write_revocations(folder / REVOKED, entries)


def create_federation(
    path: Path,
    scenario: Scenario,
    model: ServedModel,
    servers: Mapping[str, ServerEntry],
    clients: Sequence[str],
    *,
    days: float = 365.0,
    deploy: DeploymentOptions | None = None,
    overwrite: bool = False,
    write_setup: Callable[[Path], None] | None = None,
) -> Federation:
    """Write the folder of a federation.

    Args:
        path: the folder to write; it appears as a whole, or not at all.
        scenario: what is learnt; the same for all.
        model: the initial model.
        servers: the servers by name, in the order of their numbers.
        clients: names of the clients, in the order of their numbers.
        days: validity of the certificates.
        deploy: further settings of all servers.
        overwrite: replace a federation that is there.
        write_setup: writes the file of a Flower app with what its clients need of its ServerApp.

    Raises:
        UsageError: a value is not allowed, or the folder exists. Nothing was changed.

    """
    check_days(days)
    check_names(servers, clients)
    check_addresses(servers)
    check_place(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as temporary:
        new = Path(temporary) / path.name
        write_authority(new, days)
        named = replace(scenario, world=replace(scenario.world, client_names=tuple(clients)))
        (new / SCENARIO_FILE).write_text(dump(named), "utf-8")
        write_served_model(new / MODEL_FILE, model)
        if write_setup is not None:
            write_setup(new / SETUP_FILE)
        write_revocations(new / REVOKED, [])
        members = {name: ClientEntry(number) for number, name in enumerate(clients)}
        federation = Federation(new, days, servers, members)
        for name in servers:
            federation.write_server(name, deploy or DeploymentOptions())
        for name in clients:
            federation.write_client(name)
        federation.write()
        new.chmod(0o700)
        if path.exists():
            path.rename(Path(temporary) / "old")
        new.rename(path)
    return replace(federation, path=path)


def load_federation(path: Path) -> Federation:
    """Read the folder of a federation."""
    file = path / FEDERATION_FILE
    table = load_settings(file, "Name a folder that spyker federation create wrote")
    refuse_unknown(table, ("days", "servers", "clients"), "")
    days = convert(table.get("days", 365.0), float, Rule(""), "days")
    found = {
        kind: convert(table.get(kind, {}), Mapping[str, object], Rule(""), kind) for kind in ("servers", "clients")
    }
    return Federation(
        path,
        days,
        {name: read(ServerEntry, entry, f"servers.{name}") for name, entry in found["servers"].items()},
        {name: read(ClientEntry, entry, f"clients.{name}") for name, entry in found["clients"].items()},
    )


# --- Checks -----------------------------------------------------------------------------------------------------------


def check_place(path: Path, *, overwrite: bool) -> None:
    """Raise a ``UsageError`` unless a federation may be written to a folder."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise UsageError(str(path), "exists", "Choose another --out, or add --overwrite to replace the federation")
    if not all((path / name).is_file() for name in (FEDERATION_FILE, CA_KEY)):
        raise UsageError(
            str(path), "is not the folder of a federation, so --overwrite keeps it", "Choose another --out"
        )


def check_names(servers: Iterable[str] = (), clients: Iterable[str] = ()) -> None:
    """Raise a ``UsageError`` if a name is not allowed, or two would have the same folder."""
    for option, names, folder in (("--server", servers, "server-{}".format), ("--client", clients, client_folder)):
        folders: set[str] = set()
        for name in names:
            if not NAME.fullmatch(name):
                remedy = "Use letters, digits and dashes, at most 63, and a letter first"
                raise UsageError(option, f"{show(name)} is not allowed", remedy)
            if (place := folder(name).lower()) in folders:
                raise UsageError(option, f"{show(name)} is not allowed: the name is used", "Choose another name")
            folders.add(place)


def check_addresses(servers: Mapping[str, ServerEntry]) -> None:
    """Raise a ``UsageError`` if two servers have the same address. The two ports of one server may be equal."""
    owners: dict[str, str] = {}
    for name, entry in servers.items():
        for address in dict.fromkeys((entry.clients, entry.peers)):
            if address in owners:
                problem = f"{address} is not allowed: it is an address of {owners[address]} as well"
                raise UsageError("--server", problem, "Give each server ports of its own: host:port/peerport")
            owners[address] = name


def parse_server(text: str) -> tuple[str, ServerEntry]:
    """Parse ``paris=paris.example.org:7000`` or ``paris=paris.example.org:7000/7100``."""
    name, equals, place = text.partition("=")
    address, slash, peer_port = place.partition("/")
    form = "Write NAME=HOST:PORT or NAME=HOST:PORT/PEERPORT, such as paris=paris.example.org:7000"
    if not equals:
        raise UsageError("--server", f"{show(text)} is not allowed", form)
    host, _, port = address.rpartition(":")
    wanted = peer_port if slash else str(int(port) + PEERS_OFFSET) if port.isdigit() else ""
    if not is_host(host.strip("[]")) or not all(p.isdigit() and 0 < int(p) <= MOST_PORT for p in (port, wanted)):
        raise UsageError("--server", f"{show(text)} is not allowed", form)
    return name, ServerEntry(0, address, f"{host}:{wanted}")


def listening(address: str) -> str:
    """Return where a server listens that others reach at this address: on all interfaces, or only on this machine."""
    host, _, port = address.rpartition(":")
    if is_loopback(address):
        return address
    return f"[::]:{port}" if ":" in host else f"0.0.0.0:{port}"
