"""Authentication: a server is identified by a name in its certificate, a client by a secret credential.

``spyker certs`` creates this folder for a deployment::

    ca.pem ca.key                  the certificate authority; the key is only needed to issue certificates
    clients.json                   SHA-256 digests of the clients' credentials, for every server
    server-0/{ca,cert,key}.pem     for server 0 only
    client-0/{ca.pem,credential}   for client 0 only

With another certificate authority, each server's certificate must contain the name :func:`server_name`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from spyker.errors import UsageError

CA, CA_KEY, CERTIFICATE, KEY = "ca.pem", "ca.key", "cert.pem", "key.pem"
CREDENTIAL, CLIENTS = "credential", "clients.json"
SERVER = re.compile(r"server-(\d{1,9})\.spyker")


def server_name(server: int) -> str:
    """Return the name in a server's certificate that identifies it to other servers, on any host."""
    return f"server-{server}.spyker"


def server_of(auth_context: Mapping[str, Iterable[bytes]]) -> int | None:
    """Return the server at the other end of a gRPC connection, by its verified certificate, or ``None``."""
    for name in auth_context.get("x509_subject_alternative_name", ()):
        if match := SERVER.fullmatch(name.decode(errors="replace")):
            return int(match[1])
    return None


def credential_digest(secret: str) -> str:
    """Return the digest of a client's credential. Secrets are long and random, so that an unsalted hash is safe."""
    return hashlib.sha256(secret.encode()).hexdigest()


def load_credentials(path: Path) -> dict[str, int]:
    """Read ``clients.json``: the clients of a deployment by the digests of their credentials."""
    remedy = "Give the clients.json that spyker certs created"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        clients = {digest: int(client) for client, digest in table.items()}
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", remedy) from None
    except (ValueError, AttributeError, TypeError):
        raise UsageError(str(path), "is not a JSON object of clients and digests", remedy) from None
    for digest, client in clients.items():
        if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise UsageError(f"{path}: client {client}", "has no SHA-256 digest of 64 hexadecimal digits", remedy)
    if len(clients) < len(table):
        raise UsageError(str(path), "gives the same credential to two clients", "Give each client its own")
    return clients


def load_credential(path: Path) -> str:
    """Read a client's secret."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(str(path), f"cannot be read ({reason})", "Give a file that spyker certs created") from None
    if not secret or not secret.isascii() or not secret.isprintable():
        raise UsageError(str(path), "is not a credential", "Give a file that spyker certs created")
    return secret
