"""Hints about failed connections, for which gRPC reports only that a socket was closed."""

from __future__ import annotations

import grpc

PORT = "--server must name the port for clients (deploy.listen-clients) and not the one for servers"
PLAINTEXT = "this client uses plaintext: if the server has certificates, leave out --insecure"
TLS = "this client uses TLS: if the server was started with --insecure, start this client with --insecure, too"
AUTHORITY = (
    "the server's certificate was not issued by this client's authority, or does not contain the host of its address: "
    "compare ca.pem on both sides, and the address that spyker federation create was given"
)


def connection_hint(code: grpc.StatusCode, said: str, *, insecure: bool) -> str | None:
    """Return what to check when a server that has never answered ends a connection with this status, or ``None``."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return PORT
    if code is not grpc.StatusCode.UNAVAILABLE:
        return None
    if "CERTIFICATE_VERIFY_FAILED" in said or "No match found for server name" in said:
        return AUTHORITY
    if "Socket closed" in said or "handshake failed" in said:
        return f"{PLAINTEXT if insecure else TLS}; and {PORT}"
    return None
