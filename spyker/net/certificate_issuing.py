"""``spyker certs``: creation of a deployment's certificates and credentials, and renewal of single ones."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.net.certificate_authority import AUTHORITY_DAYS, Authority, hosts_in, is_host
from spyker.net.certificates import (
    CA,
    CA_KEY,
    CERTIFICATE,
    CLIENTS,
    CREDENTIAL,
    KEY,
    credential_digest,
    load_credentials,
)
from spyker.records import write_atomically

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_DAYS = 36500.0


def make_deployment(
    folder: Path,
    servers: int,
    clients: int,
    hosts: Sequence[str] = LOOPBACK,
    days: float = 365.0,
    *,
    overwrite: bool = False,
) -> None:
    """Create a certificate authority, certificates and credentials.

    Args:
        folder: folder to create.
        servers: number of servers.
        clients: number of clients.
        hosts: DNS names and addresses of all servers; ``2=paris.example.org`` is a name of server 2 only.
        days: validity of the servers' certificates in days.
        overwrite: whether to replace a folder that ``spyker certs`` created.

    Raises:
        UsageError: an argument is invalid, or the folder exists.

    """
    if servers < 1:
        raise UsageError("--servers", f"{servers} is not allowed", "Give at least 1")
    if clients < 0:
        raise UsageError("--clients", f"{clients} is not allowed", "Give 0 or more")
    check_days(days)
    names = [hosts_of(server, hosts, servers) for server in range(servers)]  # checked before anything is deleted
    clear(folder, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(max(AUTHORITY_DAYS, days))
    certificate, key = authority.pem()
    (folder / CA).write_bytes(certificate)
    write_private(folder / CA_KEY, key)
    for server in range(servers):
        write_server(folder, server, authority, names[server], days)
    digests = {}
    for client in range(clients):
        own = folder / f"client-{client}"
        own.mkdir(mode=0o700)
        secret = secrets.token_urlsafe(32)
        digests[str(client)] = credential_digest(secret)
        write_private(own / CREDENTIAL, f"{secret}\n".encode())
        shutil.copyfile(folder / CA, own / CA)
    (folder / CLIENTS).write_text(as_json(digests), encoding="utf-8")


def renew(folder: Path, names: Sequence[str], hosts: Sequence[str] | None = None, days: float = 365.0) -> None:
    """Issue new certificates and keys for ``server-I``, and new credentials for ``client-K``, with the same authority.

    Args:
        folder: folder that ``spyker certs`` created.
        names: ``server-I`` and ``client-K``.
        hosts: names and addresses of the servers; default: those of the present certificates.
        days: validity of the servers' certificates in days.

    Raises:
        UsageError: an argument is invalid, or the folder cannot be read.

    """
    check_days(days)
    authority = Authority.load(folder)
    digests = {str(client): digest for digest, client in load_credentials(folder / CLIENTS).items()}
    certificates: dict[int, list[str]] = {}
    credentials: dict[str, str] = {}
    for name in names:
        kind, _, number = name.rpartition("-")
        known = (folder / name).is_dir() or (kind == "server" and hosts is not None)
        if kind not in ("server", "client") or not number.isdecimal() or not known:
            remedy = "Name a folder in it, such as server-0 or client-12; for a new server, give its --host as well"
            raise UsageError("--renew", f"{show(name)} is not allowed: {folder} has no such folder", remedy)
        if kind == "client":
            credentials[number] = secrets.token_urlsafe(32)
        else:
            server = int(number)
            certificates[server] = hosts_of(server, hosts or hosts_in(folder / name / CERTIFICATE), server + 1)
    for server, own in certificates.items():
        write_server(folder, server, authority, own, days)
    if credentials:
        new = {client: credential_digest(secret) for client, secret in credentials.items()}
        write_atomically(folder / CLIENTS, as_json(digests | new))
    for client, secret in credentials.items():
        write_private(folder / f"client-{client}" / CREDENTIAL, f"{secret}\n".encode())


def add_client(folder: Path, client: int) -> None:
    """Create a credential for a client that has none."""
    digests = {str(k): digest for digest, k in load_credentials(folder / CLIENTS).items()}
    own = folder / f"client-{client}"
    if client < 0 or str(client) in digests:
        raise UsageError("K", f"{client} is not allowed: it has a credential", "Choose another number, or renew it")
    secret = secrets.token_urlsafe(32)
    own.mkdir(mode=0o700, exist_ok=True)
    write_private(own / CREDENTIAL, f"{secret}\n".encode())
    shutil.copyfile(folder / CA, own / CA)
    write_atomically(folder / CLIENTS, as_json(digests | {str(client): credential_digest(secret)}))


def remove_client(folder: Path, client: int) -> None:
    """Revoke a client's credential."""
    digests = {str(k): digest for digest, k in load_credentials(folder / CLIENTS).items()}
    if digests.pop(str(client), None) is None:
        raise UsageError("K", f"{client} is not allowed: it has no credential", "spyker clients list shows who has one")
    write_atomically(folder / CLIENTS, as_json(digests))
    shutil.rmtree(folder / f"client-{client}", ignore_errors=True)


def write_server(folder: Path, server: int, authority: Authority, hosts: Sequence[str], days: float) -> None:
    """Issue a certificate for a server and write it, with key and authority, into the server's folder."""
    certificate, key = authority.issue(server, hosts, days)
    own = folder / f"server-{server}"
    own.mkdir(mode=0o700, exist_ok=True)
    (own / CERTIFICATE).write_bytes(certificate)
    write_private(own / KEY, key)
    shutil.copyfile(folder / CA, own / CA)


def check_days(days: float) -> None:
    """Raise a ``UsageError`` unless the validity is allowed."""
    if not 0 < days <= MOST_DAYS:
        raise UsageError("--days", f"{show(days)} is not allowed", f"Give more than 0, and at most {MOST_DAYS:g}")


def as_json(digests: Mapping[str, str]) -> str:
    """Return the content of ``clients.json``."""
    return json.dumps(digests, indent=1) + "\n"


def clear(folder: Path, *, overwrite: bool) -> None:
    """Delete a folder that ``spyker certs`` created, if ``overwrite``; raise a ``UsageError`` for any other content."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise UsageError(str(folder), "exists already", "Choose another folder, or add --overwrite to replace it")
    if not (folder / CA_KEY).is_file():
        raise UsageError(
            str(folder), "was not made by spyker certs, so --overwrite leaves it alone", "Choose another folder"
        )
    shutil.rmtree(folder)


def hosts_of(server: int, hosts: Sequence[str], servers: int) -> list[str]:
    """Return the names and addresses of one server."""
    own = []
    for host in hosts:
        number, equals, name = host.rpartition("=")
        if equals and not (number.isdecimal() and int(number) < servers):
            raise UsageError("--host", f"{show(host)} is not allowed", f"Before = stands a server, 0 to {servers - 1}")
        if not is_host(name):
            raise UsageError("--host", f"{show(host)} is not allowed", "Write a DNS name or an address, without a port")
        if not equals or int(number) == server:
            own.append(name)
    return own


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is private from its creation."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    new.replace(path)
