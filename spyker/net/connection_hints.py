"""What a connection that never came about may mean: gRPC says no more than that a socket was closed."""

from __future__ import annotations

import grpc

PORT = "--server must name the port for clients (deploy.listen-clients) and not the one for servers"
PLAINTEXT = "this client speaks plaintext: if the server has certificates, give --certs in place of --insecure"
TLS = "this client speaks TLS: if the server was started with --insecure, so must this client be"
AUTHORITY = (
    "the server's certificate is not one of this client's authority, or does not name the host that --server gives: "
    "compare ca.pem on both sides, and the names that spyker certs was given with --host"
)
HTTP2 = "whoever answers does not speak HTTP/2: the server needs deploy.listen-websocket, and --transport must allow it"
PROXY_REFUSES = "HTTP proxy returned response code 407"
PROXY_CREDENTIALS = "it wants another user or password (407): compare --proxy, or the variable https_proxy"
PROXY_FORBIDS = (
    "the HTTP proxy does not let this client connect there: ask whoever runs it to allow CONNECT to --server"
)


def connection_hint(code: grpc.StatusCode, said: str, *, insecure: bool) -> str | None:
    """What to check when a server that has never answered ends a connection like this."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return PORT
    if code is not grpc.StatusCode.UNAVAILABLE:
        return None
    if PROXY_REFUSES in said:
        return PROXY_CREDENTIALS
    if "HTTP proxy returned response code" in said:
        return PROXY_FORBIDS
    if "CERTIFICATE_VERIFY_FAILED" in said or "No match found for server name" in said:
        return AUTHORITY
    if "ALPN" in said or "NO_APPLICATION_PROTOCOL" in said:
        return HTTP2
    if "Socket closed" in said or "handshake failed" in said:
        return f"{PLAINTEXT if insecure else TLS}; and {PORT}"
    return None
