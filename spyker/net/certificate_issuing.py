"""Writing of certificates and keys: the entries of a federation's folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.net.certificate_authority import AUTHORITY_DAYS, Authority
from spyker.net.certificates import CA, CA_KEY, CERTIFICATE, KEY, REVOKED
from spyker.net.revocations import write_revocations

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_DAYS = 36500.0


def make_deployment(
    folder: Path, servers: int, clients: int, hosts: Sequence[str] = LOOPBACK, days: float = 365.0
) -> None:
    """Write an authority, certificates and keys for numbered servers and clients that all run on the same hosts.

    ``server-I/`` and ``client-K/`` hold certificate, key and authority; ``revoked.json`` revokes nothing.
    """
    authority = write_authority(folder, days)
    for server in range(servers):
        write_server(folder / f"server-{server}", server, authority, hosts, days)
    for client in range(clients):
        write_client(folder / f"client-{client}", client, f"client-{client}", authority, days)
    write_revocations(folder / REVOKED, [])


def write_authority(folder: Path, days: float) -> Authority:
    """Create an authority that outlives the certificates that it issues."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(max(AUTHORITY_DAYS, days))
    certificate, key = authority.pem()
    (folder / CA).write_bytes(certificate)
    write_private(folder / CA_KEY, key)
    return authority


def write_server(folder: Path, server: int, authority: Authority, hosts: Sequence[str], days: float) -> None:
    """Write a server's certificate and key."""
    write_identity(folder, authority, *authority.issue(server, hosts, days))


def write_client(folder: Path, client: int, name: str, authority: Authority, days: float) -> None:
    """Write a client's certificate and key."""
    write_identity(folder, authority, *authority.issue_client(client, name, days))


def write_identity(folder: Path, authority: Authority, certificate: bytes, key: bytes) -> None:
    """Write a certificate, its key and the authority's certificate, readable by the owner alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / CERTIFICATE).write_bytes(certificate)
    write_private(folder / KEY, key)
    (folder / CA).write_bytes(authority.pem()[0])


def check_days(days: float) -> None:
    """Raise a ``UsageError`` unless a certificate can be valid for so many days."""
    if not 0 < days <= MOST_DAYS:
        raise UsageError("--days", f"{show(days)} is not allowed", f"Give more than 0, and at most {MOST_DAYS:g}")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that was never readable by others, not even for a moment."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    new.replace(path)
