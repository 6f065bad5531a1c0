"""The names and files by which the processes of a federation know each other.

A server is known by the name ``server-I.spyker`` in its certificate, a client by ``client-K.spyker`` and by the common
name in its own. One certificate authority issues both; ``ca.key`` stays with the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

CA, CA_KEY, CERTIFICATE, KEY = "ca.pem", "ca.key", "cert.pem", "key.pem"
REVOKED = "revoked.json"
SERVER = re.compile(r"server-(\d{1,9})\.spyker")


def client_name(client: int) -> str:
    """Return the name in a certificate by which a client is known."""
    return f"client-{client}.spyker"


def client_folder(name: str) -> str:
    """Return the folder of a client in a federation's folder."""
    return name if name.startswith("client-") else f"client-{name}"


def server_of(auth_context: Mapping[str, Iterable[bytes]]) -> int | None:
    """Return the server at the other end of a gRPC connection, according to its verified certificate."""
    for name in auth_context.get("x509_subject_alternative_name", ()):
        if match := SERVER.fullmatch(name.decode(errors="replace")):
            return int(match[1])
    return None
