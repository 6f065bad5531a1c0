"""Who is who in a deployment, as its processes read it: a server by a name in its certificate, a client by a secret.

The folder of a deployment, as ``spyker certs`` makes it::

    ca.pem ca.key                  the authority; the key is needed again only to renew a certificate
    clients.json                   for every client, the SHA-256 digest of its credential: goes to every server
    server-0/{ca,cert,key}.pem     goes to server 0, and to nobody else
    client-0/{ca.pem,credential}   goes to client 0, and to nobody else

Who has an authority of their own needs only certificates that carry the name :func:`server_name` of their server, and a
``clients.json``.
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
    """The name in a certificate by which a server is known to the others, wherever it runs."""
    return f"server-{server}.spyker"


def server_of(auth_context: Mapping[str, Iterable[bytes]]) -> int | None:
    """Which server is at the other end of a gRPC connection, as its verified certificate says."""
    for name in auth_context.get("x509_subject_alternative_name", ()):
        if match := SERVER.fullmatch(name.decode(errors="replace")):
            return int(match[1])
    return None


def credential_digest(secret: str) -> str:
    """What a server keeps of a client's credential. Secrets are random and long, so a plain hash protects them."""
    return hashlib.sha256(secret.encode()).hexdigest()


def load_credentials(path: Path) -> dict[str, int]:
    """The clients of a deployment by the digests of their credentials."""
    remedy = "Name the clients.json that spyker certs made"
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
    """A client's secret."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(str(path), f"cannot be read ({reason})", "Name a file that spyker certs made") from None
    if not secret or not secret.isascii() or not secret.isprintable():
        raise UsageError(str(path), "is not a credential", "Name a file that spyker certs made")
    return secret
