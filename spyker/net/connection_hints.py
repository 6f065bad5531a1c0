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
HTTP2 = "no HTTP/2 there: set deploy.listen-websocket on the server, and give --transport auto or websocket"
PROXY_REFUSES = "HTTP proxy returned response code 407"
PROXY_CREDENTIALS = "the HTTP proxy requires a valid user and password (407): check --proxy, or https_proxy"
PROXY_FORBIDS = "the HTTP proxy forbids the connection (403): its configuration must allow CONNECT to --server"


def connection_hint(code: grpc.StatusCode, said: str, *, insecure: bool) -> str | None:
    """Return what to check when a server that has never answered ends a connection with this status, or ``None``."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return PORT
    if code is not grpc.StatusCode.UNAVAILABLE:
        return None
    if PROXY_REFUSES in said:
        return PROXY_CREDENTIALS
    if "HTTP proxy returned response code 403" in said:
        return PROXY_FORBIDS
    if "CERTIFICATE_VERIFY_FAILED" in said or "No match found for server name" in said:
        return AUTHORITY
    if "ALPN" in said or "NO_APPLICATION_PROTOCOL" in said:
        return HTTP2
    if "Socket closed" in said or "handshake failed" in said:
        return f"{PLAINTEXT if insecure else TLS}; and {PORT}"
    return None
