"""Ports and addresses."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from spyker.api.doctor.finding import Finding, fine, note, wrong

ANSWER_SECONDS = 2.0


def loopback() -> Iterator[Finding]:
    """Whether processes of this machine can speak to each other."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS):
                yield fine("ports", f"of this machine can be had, such as 127.0.0.1:{port}")
    except OSError as error:
        remedy = "Deployments and spyker up need the loopback interface: bring it up, or leave the sandbox"
        yield note("ports", f"127.0.0.1 cannot be used ({error.strerror})", remedy)


def listening(what: str, address: str) -> Finding:
    """Whether a server could listen at an address."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.create_server(place[:2], family=family):
            return fine(what, f"{address} is free")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return wrong(what, f"{address} is taken", "Is this server running already? Otherwise choose another port")
        if error.errno == errno.EACCES:
            return wrong(what, f"{address} may not be used", "Choose a port above 1023")
        return wrong(what, f"{address} is no address of this machine ({error.strerror})", "Write 0.0.0.0:PORT for all")


def reachable(what: str, address: str) -> Finding:
    """Whether anybody answers at an address."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS):
            return fine(what, f"{address} answers")
    except socket.gaierror as error:
        return wrong(what, f"{address}: nobody knows this name ({error.strerror})", "Mend deploy.peers, or the DNS")
    except OSError as error:
        remedy = "Start it, or open the port in firewalls between you"
        return note(what, f"{address} does not answer ({error.strerror or error})", remedy)
