"""Deployments behind real proxies, with the configurations of docs/how-to/proxies.md."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment import Deployed, deployed, table, until
from proxies import configuration, haproxy, nginx, squid

from spyker.net.local_cluster import free_ports
from spyker.net.server_config import load_config

pytestmark = pytest.mark.slow  # three to six seconds each

both_transports = pytest.mark.parametrize("transport", ["grpc", "websocket"])


@contextlib.contextmanager
def serving(folder: Path, **deploy: Any) -> Iterator[Deployed]:
    """A server with ports for both transports."""
    clients, websocket = (f"127.0.0.1:{port}" for port in free_ports(2))
    addresses = {"listen_clients": clients, "listen_websocket": websocket} | deploy
    with deployed(table(), folder / "deployed", **addresses) as deployment:
        deployment.addresses[0] = addresses["listen_clients"]
        deployment.websocket = addresses["listen_websocket"]  # type: ignore[attr-defined]
        deployment.up()
        yield deployment


def trains(deployment: Deployed, address: str, transport: str, *more: str) -> None:
    """A client trains at this address, over this transport."""
    deployment.clients.append(deployment.join("0", [address], *more))
    until(lambda: len(deployment.facts("update")) > 20)
    assert {entry["transport"] for entry in deployment.log("clients-0", "attending")} == {transport}
    assert not deployment.log("clients-0", "disconnected") or transport == "websocket"


def certificate(deployment: Deployed) -> Path:
    return deployment.folder / "certs" / "server-0" / "cert.pem"


def nginx_with(deployment: Deployed, port: int, **changes: str) -> str:
    """The block of the page, for this deployment."""
    return configuration(
        "nginx: TLS ends here",
        {
            "listen 443": f"listen {port}",
            "/etc/spyker/server-paris/cert.pem": str(certificate(deployment)),
            "/etc/spyker/server-paris/key.pem": str(certificate(deployment).with_name("key.pem")),
            "127.0.0.1:7000": deployment.addresses[0],
            "127.0.0.1:7001": deployment.websocket,  # type: ignore[attr-defined]
        }
        | changes,
    )


@both_transports
def test_nginx_terminates_tls(tmp_path: Path, transport: str) -> None:
    (port,) = free_ports(1)
    with (
        serving(tmp_path, plaintext_clients=True) as deployment,
        nginx(tmp_path / "nginx", port, nginx_with(deployment, port)),
    ):
        trains(deployment, f"127.0.0.1:{port}", transport, "--transport", transport)


@both_transports
def test_nginx_terminates_tls_and_connects_with_tls(tmp_path: Path, transport: str) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path) as deployment:
        again = configuration(
            "nginx: TLS ends here and begins again",
            {
                "/etc/spyker/server-paris/ca.pem": str(deployment.folder / "certs" / "ca.pem"),
                "server-1.spyker": "server-0.spyker",
                "10.0.0.5:7000": deployment.addresses[0],
                "10.0.0.5:7001": deployment.websocket,  # type: ignore[attr-defined]
            },
        )
        head, _, _ = nginx_with(deployment, port).partition("    location / {")
        with nginx(tmp_path / "nginx", port, f"{head}{again}}}\n"):
            trains(deployment, f"127.0.0.1:{port}", transport, "--transport", transport)


def test_a_proxy_without_http2_is_passed_over_websocket_and_the_choice_is_remembered(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path, plaintext_clients=True) as deployment:
        text = nginx_with(deployment, port, **{" ssl http2;": " ssl;"})
        with nginx(tmp_path / "nginx", port, text):
            trains(deployment, f"127.0.0.1:{port}", "websocket", "--state", str(tmp_path / "state"))
            assert len(deployment.log("clients-0", "disconnected")) == 1, "gRPC first"
            deployment.clients[0].terminate()  # one process at a time has the folder
            deployment.clients[0].wait(200)
            again = deployment.join("1", [f"127.0.0.1:{port}"], "--state", str(tmp_path / "state"))
            deployment.clients.append(again)
            until(lambda: deployment.log("clients-1", "attending"))
            assert not deployment.log("clients-1", "disconnected"), "it knew"


@both_transports
def test_haproxy_terminates_tls(tmp_path: Path, transport: str) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path, plaintext_clients=True) as deployment:
        pem = tmp_path / "both.pem"
        pem.write_bytes(
            b"".join(certificate(deployment).with_name(name).read_bytes() for name in ("cert.pem", "key.pem"))
        )
        changes = {
            "bind :443": f"bind 127.0.0.1:{port}",
            "/etc/haproxy/paris.pem": str(pem),
            "127.0.0.1:7000": deployment.addresses[0],
            "127.0.0.1:7001": deployment.websocket,  # type: ignore[attr-defined]
        }
        with haproxy(tmp_path / "haproxy", port, configuration("haproxy: TLS ends here", changes)):
            trains(deployment, f"127.0.0.1:{port}", transport, "--transport", transport)


def passing(deployment: Deployed, port: int, peers: str = "127.0.0.1:7100") -> str:
    changes = {
        "bind :443": f"bind 127.0.0.1:{port}",
        "127.0.0.1:7000": deployment.addresses[0],
        "127.0.0.1:7001": getattr(deployment, "websocket", "127.0.0.1:7001"),
        "127.0.0.1:7100": peers,
    }
    return configuration("haproxy: TLS passes through", changes)


@both_transports
def test_haproxy_passes_tls_through(tmp_path: Path, transport: str) -> None:
    (port,) = free_ports(1)
    with (
        serving(tmp_path) as deployment,
        haproxy(tmp_path / "haproxy", port, passing(deployment, port)),
    ):
        trains(deployment, f"127.0.0.1:{port}", transport, "--transport", transport)


def test_other_servers_connect_through_the_same_port(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with deployed(table("spyker", (1, 1)), tmp_path / "deployed") as deployment:
        first, second = (deployment.folder / f"server-{i}" / "config.toml" for i in range(2))
        theirs = load_config(second).deploy.listen_peers
        first.write_text(first.read_text("utf-8").replace(theirs, f"127.0.0.1:{port}"), "utf-8")
        deployment.up(0)
        deployment.up(1)
        assert not deployment.log("server-0", "link-up"), "nothing listens there yet"
        deployment.addresses[0] = deployment.addresses[1]
        with haproxy(tmp_path / "haproxy", port, passing(deployment, port, theirs)):
            (up,) = until(lambda: deployment.log("server-0", "link-up"))
            assert up["address"] == f"127.0.0.1:{port}"


@pytest.fixture
def through_squid(tmp_path: Path) -> Iterator[tuple[Deployed, int, Path]]:
    """A deployment, and the port and the access log of a proxy that knows one user."""
    (port,) = free_ports(1)
    with serving(tmp_path) as deployment:
        ports = [address.rpartition(":")[2] for address in (deployment.addresses[0], deployment.websocket)]  # type: ignore[attr-defined]
        changes = {"dst paris.example.org": "dst 127.0.0.1", "port 443": f"port {' '.join(ports)}"}
        with squid(port, {"charite": "s@cret"}, changes) as log:
            yield deployment, port, log


@both_transports
def test_squid_is_passed_with_credentials(through_squid: tuple[Deployed, int, Path], transport: str) -> None:
    deployment, port, log = through_squid
    address = deployment.addresses[0] if transport == "grpc" else deployment.websocket  # type: ignore[attr-defined]
    url = f"http://charite:s%40cret@127.0.0.1:{port}"
    trains(deployment, address, transport, "--transport", transport, "--proxy", url)
    deployment.stop()  # Squid logs a tunnel when it ends
    tunnel = re.compile(rf"TCP_TUNNEL/200 \d+ CONNECT {address} charite ")
    until(lambda: tunnel.search(log.read_text()))


@both_transports
def test_squid_refuses_a_wrong_password(through_squid: tuple[Deployed, int, Path], transport: str) -> None:
    deployment, port, log = through_squid
    address = deployment.addresses[0] if transport == "grpc" else deployment.websocket  # type: ignore[attr-defined]
    url = f"http://charite:wrong-word@127.0.0.1:{port}"
    process = deployment.join("0", [address], "--transport", transport, "--proxy", url)
    assert process.wait(200) == 1
    said = (deployment.folder / "clients-0.log").read_text("utf-8")
    assert "the HTTP proxy requires a valid user and password (407)" in said
    assert "wrong-word" not in said
    assert deployment.facts("update") == []
    assert "TCP_DENIED/407" in log.read_text()
