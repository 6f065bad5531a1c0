"""``spyker serve --check``: checks whether a server could start, without changes and without connections."""

from __future__ import annotations

import socket
import stat
import tempfile
from pathlib import Path

from spyker.errors import UsageError
from spyker.net.certificate_check import check_certificate
from spyker.net.channels import listen_error
from spyker.net.revocations import load_revocations
from spyker.net.server_config import ServerConfig, check_insecure, shares_port
from spyker.tasks.registry import check_code
from spyker.tasks.served_model import read_served_model


def check_start(config: ServerConfig, *, insecure: bool) -> None:
    """Check the certificates, the model or task, the addresses and the folders of a server.

    Args:
        config: the server's configuration.
        insecure: whether the server will use plaintext; certificates are then ignored.

    Raises:
        UsageError: the server could not start.

    """
    deploy = config.deploy
    if insecure:
        check_insecure(config)
    else:
        check_certificate(config)
        key = config.path(deploy.key)
        if stat.S_IMODE(key.stat().st_mode) & 0o007:
            raise UsageError("deploy.key", f"{key} can be read by all users", f"Run chmod o= {key}")
        load_revocations(config.path(deploy.revoked))
    if deploy.model is not None:
        read_served_model(config.path(deploy.model))
    if config.needs_task:
        check_code(config.scenario)
    check_writable(config.path(deploy.state), "deploy.state")
    check_writable(config.path(deploy.record), "deploy.record")
    check_free(deploy.listen_clients, "deploy.listen-clients")
    if deploy.listen_websocket is not None and not shares_port(deploy, "websocket"):
        check_free(deploy.listen_websocket, "deploy.listen-websocket")
    if len(deploy.peers) > 1 and not shares_port(deploy, "peers"):
        check_free(deploy.listen_peers, "deploy.listen-peers")
    if deploy.metrics is not None:
        check_free(deploy.metrics, "deploy.metrics")


def check_writable(folder: Path, key: str) -> None:
    """Raise a ``UsageError`` if no file can be created in a folder or, if it does not exist, in its nearest parent."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        problem = f"cannot write to {existing} ({error.strerror})"
        raise UsageError(key, problem, "Give a folder that this user may write to") from None


def check_free(address: str, key: str) -> None:
    """Raise a ``UsageError`` if this process cannot listen at an address."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        socket.create_server(place[:2], family=family).close()
    except OSError as error:
        raise listen_error(address, key, error) from None
