"""How a client chooses the transport, and what it says of proxies."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from deployment import deployed, table, until
from test_federation import create, processes

from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.net.client_folder import load_client
from spyker.net.local_cluster import free_ports
from spyker.net.server_config import load_config
from spyker.net.transports import AUTO, GRPC, WEBSOCKET, TransportChoice, check_proxy, websocket_proxy

HERE = "127.0.0.1:7000"
BLOCKED = (grpc.StatusCode.UNAVAILABLE, "Socket closed")


def test_grpc_comes_first_and_websocket_if_http2_seems_blocked() -> None:
    choice = TransportChoice(AUTO)
    assert choice.of(HERE) == GRPC
    assert choice.failed(HERE, GRPC, *BLOCKED)
    assert (choice.of(HERE), choice.of("127.0.0.1:7001")) == (WEBSOCKET, GRPC)
    assert choice.failed(HERE, GRPC, *BLOCKED), "another client that had begun before"
    assert choice.of(HERE) == WEBSOCKET
    assert choice.failed(HERE, WEBSOCKET, *BLOCKED)
    assert choice.of(HERE) == GRPC


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "credential: no credential of this deployment came with the call"),
        (grpc.StatusCode.FAILED_PRECONDITION, "mismatch: this server speaks version 4 of the protocol, not 3"),
        (grpc.StatusCode.UNAVAILABLE, "connect: Connection refused (111)"),
        (grpc.StatusCode.UNAVAILABLE, "DNS resolution failed for paris.example.org"),
        (grpc.StatusCode.UNAVAILABLE, "SSL_ERROR_SSL: error:1000007d:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED"),
        (grpc.StatusCode.UNAVAILABLE, "HTTP proxy returned response code 407"),
        (grpc.StatusCode.UNAVAILABLE, "Received http2 header with status: 502"),
        (grpc.StatusCode.UNAVAILABLE, "HTTP status 503 in place of a WebSocket"),
    ],
)
def test_another_transport_is_not_tried_where_it_would_not_help(code: grpc.StatusCode, said: str) -> None:
    choice = TransportChoice(AUTO)
    assert not choice.failed(HERE, GRPC, code, said)
    assert choice.of(HERE) == GRPC


@pytest.mark.parametrize(
    "said",
    [
        "Cannot check peer: missing selected ALPN property.",
        "SSL_ERROR_SSL: TLSV1_ALERT_NO_APPLICATION_PROTOCOL: Invalid certificate verification context: OK",
        "Received http2 header with status: 403",
        "connection attempt timed out before receiving SETTINGS frame",
    ],
)
def test_what_speaks_for_a_network_without_http2(said: str) -> None:
    assert TransportChoice(AUTO).failed(HERE, GRPC, grpc.StatusCode.UNAVAILABLE, said)


@pytest.mark.parametrize("setting", [GRPC, WEBSOCKET])
def test_a_transport_that_was_chosen_stays(setting: str, tmp_path: Path) -> None:
    choice = TransportChoice(setting, tmp_path)
    assert not choice.failed(HERE, setting, *BLOCKED)
    choice.worked(HERE, setting)
    assert choice.of(HERE) == setting
    assert list(tmp_path.iterdir()) == []


def test_a_choice_is_remembered_in_the_folder(tmp_path: Path) -> None:
    choice = TransportChoice(AUTO, tmp_path / "state")
    choice.failed(HERE, GRPC, *BLOCKED)
    assert TransportChoice(AUTO, tmp_path / "state").of(HERE) == GRPC, "it has not worked yet"
    choice.worked(HERE, WEBSOCKET)
    assert TransportChoice(AUTO, tmp_path / "state").of(HERE) == WEBSOCKET


@pytest.mark.parametrize("text", ["", "[]", '{"127.0.0.1:7000": "pigeon"}', '{"127.0.0.1:7000": ["websocket"]}'])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "transports.json").write_text(text)
    assert TransportChoice(AUTO, tmp_path).of(HERE) == GRPC


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hidden@proxy:3128",
        "http://user:hidden@proxy",
        "http://user:hidden@proxy:99999",
        "http://user:hidden@proxy:3128/path",
        "user:hidden@proxy:3128",
        "http://hidden:@:3128",
    ],
)
def test_a_wrong_proxy_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_proxy(url, "--proxy")
    assert str(refused.value).startswith("--proxy: ")
    assert "hidden" not in str(refused.value)


def test_no_proxy_counts_for_a_proxy_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert websocket_proxy("http://proxy:3128", HERE) is None
    assert websocket_proxy("http://proxy:3128", "paris.example.org:443") == "http://proxy:3128"


def test_a_client_falls_back_to_websocket_and_trains(tmp_path: Path) -> None:
    """The address takes WebSockets only, as if HTTP/2 were blocked on the way."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with deployed(table(), tmp_path, listen_websocket=address) as deployment:
        deployment.up()
        process = deployment.join("0", [address, deployment.addresses[0]], "--state", str(tmp_path / "state"))
        deployment.clients.append(process)
        until(lambda: deployment.facts("update"))
        process.terminate()  # one process at a time has the folder
        process.wait(200)
        deployment.clients.append(deployment.join("1", [address], "--state", str(tmp_path / "state")))
        until(lambda: deployment.log("clients-1", "attending"))
        assert {entry["transport"] for entry in deployment.log("clients-1", "attending")} == {WEBSOCKET}
        assert json.loads((tmp_path / "state" / "transports.json").read_text())[address] == WEBSOCKET


def test_a_client_with_a_folder_is_checked_over_its_transport_and_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where its folder expects the server, there are WebSockets only."""
    out = tmp_path / "federation"
    assert create(out, "--set", "deploy.min-clients=1", servers=1, clients="charite") == 0
    client, server = out / "client-charite" / "client.toml", out / "server-paris" / "server.toml"
    (address,) = load_client(client).client.servers
    settings = server.read_text("utf-8").replace(f'listen-clients = "{load_config(server).deploy.listen_clients}"', "")
    elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
    server.write_text(f'{settings}\nlisten-clients = "{elsewhere}"\nlisten-websocket = "{address}"\n', "utf-8")
    automatic = client.read_text("utf-8")
    with processes(out) as started:
        started.start("serve", "server-paris")
        started.await_line("server-paris", "listening")
        client.write_text(automatic.replace('transport = "auto"', 'transport = "grpc"'), "utf-8")
        capsys.readouterr()
        assert main(["join", str(client.parent), "--check"]) == 2
        assert "give --transport auto or websocket" in capsys.readouterr().err
        assert main(["join", str(client.parent), "--check", "--transport", "websocket"]) == 0
        client.write_text(automatic, "utf-8")
        assert main(["join", str(client.parent), "--check"]) == 0
        started.start("join", "client-charite")
        assert started.await_line("client-charite", "attending")["transport"] == WEBSOCKET
        until(lambda: started.updates("server-paris", 0))


def test_a_wrong_proxy_in_a_folder_is_refused_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "federation"
    assert create(out, servers=1, clients="charite") == 0
    client = out / "client-charite" / "client.toml"
    url = "ftp://user:hidden@proxy:3128"
    client.write_text(client.read_text("utf-8").replace("transport =", f'proxy = "{url}"\ntransport ='), "utf-8")
    capsys.readouterr()
    assert main(["join", str(client.parent), "--check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("spyker: client.proxy: ftp is not allowed")
    assert "hidden" not in said
