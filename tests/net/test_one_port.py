"""Servers that share one port among clients over both transports and other servers."""

import asyncio
import signal
from pathlib import Path

import grpc
import pytest
from deployment import Deployed, deployed, table, until

from spyker.net.channels import PEERS_CONNECT, channel, open_stream
from spyker.net.local_cluster import free_ports
from spyker.net.server_config import load_config
from spyker.node.ed25519_keys import server_name


def share_ports(deployment: Deployed) -> None:
    """Let all listeners of each server listen where other servers look for it."""
    for i in range(len(deployment.addresses)):
        path = deployment.folder / f"server-{i}" / "config.toml"
        deploy = load_config(path).deploy
        text = path.read_text("utf-8").replace(f'"{deploy.listen_clients}"', f'"{deploy.listen_peers}"')
        path.write_text(text + f'\nlisten-websocket = "{deploy.listen_peers}"\n', "utf-8")
        deployment.addresses[i] = deploy.listen_peers


def test_clients_and_servers_share_one_port(tmp_path: Path) -> None:
    with deployed(table("spyker", (1, 1)), tmp_path) as deployment:
        share_ports(deployment)
        for i in range(2):
            deployment.up(i)
            (listening,) = deployment.log(f"server-{i}", "listening")
            port = int(deployment.addresses[i].rpartition(":")[2])
            assert {listening[key] for key in ("clients", "peers", "websocket")} == {port}
        deployment.attend("0", 0, more=("--transport", "grpc"))
        deployment.attend("1", 1, more=("--transport", "websocket"))
        for i in range(2):
            until(lambda i=i: deployment.facts("update", i))
            until(lambda i=i: deployment.log(f"server-{i}", "link-up"))
        assert asyncio.run(as_a_server_without_a_certificate(deployment)) is grpc.StatusCode.UNAVAILABLE


async def as_a_server_without_a_certificate(deployment: Deployed) -> grpc.StatusCode:
    """How far a stranger comes that asks for the servers' listener: not beyond TLS."""
    authority = grpc.ssl_channel_credentials((deployment.folder / "certs" / "ca.pem").read_bytes())
    async with channel(deployment.addresses[0], 10.0, authority, server_name(0)) as connection:
        stream = open_stream(connection, PEERS_CONNECT)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        return refused.value.code()


def test_the_port_is_free_again_after_a_kill(tmp_path: Path) -> None:
    """The front ends with its server, even if nobody tells it to."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with deployed(table(), tmp_path, listen_clients=address, listen_websocket=address) as deployment:
        deployment.addresses[0] = address
        killed = deployment.up()
        deployment.attend("0", more=("--transport", "websocket"))
        until(lambda: deployment.facts("update"))
        killed.send_signal(signal.SIGKILL)
        killed.wait()

        def restarted() -> bool:
            return deployment.up(0, "--resume").poll() is None

        until(restarted)
        del deployment.servers[:-1]
        until(lambda: len(deployment.log("clients-0", "attending")) > 1)
