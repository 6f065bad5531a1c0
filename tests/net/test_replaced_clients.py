"""Alerts when one key is used in two places."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from deployment import DEADLINE, Deployed, deployed, speaking, table, until
from relay import relay

from spyker.cli.main import main
from spyker.net.admin_socket import send_command


def elsewhere(deployment: Deployed, address: str) -> Any:
    """The same deployment, whose server has another address."""
    changed = object.__new__(Deployed)
    changed.__dict__ = deployment.__dict__ | {"addresses": [address]}
    return changed


async def steal(deployment: Deployed, source: str) -> None:
    """A second process with the key of client 0 connects from an address, while the first is connected."""
    async with (
        asyncio.timeout(DEADLINE),
        relay(deployment.addresses[0], source) as address,
        speaking(deployment, 0) as owner,
    ):
        await owner.enter()
        async with speaking(elsewhere(deployment, address), 0) as thief:
            await thief.enter()
            await owner.rejection()


def test_a_thief_cannot_replace_the_owner_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with deployed(table(), tmp_path) as deployment:
        deployment.up()
        asyncio.run(steal(deployment, "127.0.0.2"))
        (line,) = deployment.log("server-0", "client-replaced")
        assert (line["level"], line["reason"], line["client"]) == ("warning", "another address", 0)
        assert (line["address"], line["former_address"]) == ("ipv4:127.0.0.2", "ipv4:127.0.0.1")
        assert deployment.metric("client_replacements_total") == 1
        (fact,) = until(lambda: deployment.facts("client-replaced"))
        assert (fact["client"], fact["another_address"]) == (0, True)
        state = deployment.folder / "server-0" / "state"
        (status,) = send_command(state, {"order": "members"})["replaced_clients"]
        assert (status["client"], status["times"], status["address"]) == (0, 1, "ipv4:127.0.0.2")
        assert main(["members", "list", str(deployment.folder / "server-0" / "config.toml")]) == 0
        assert "was replaced from another address 1 times, last from ipv4:127.0.0.2" in capsys.readouterr().out


def test_a_replacement_from_the_same_address_is_logged_and_is_no_alert(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as deployment:
        deployment.up()
        asyncio.run(steal(deployment, "127.0.0.1"))
        (line,) = deployment.log("server-0", "client-replaced")
        assert (line["reason"], line["client"]) == ("same address", 0)
        assert deployment.metric("client_replacements_total") == 0


def test_behind_a_shared_port_the_addresses_are_known(tmp_path: Path) -> None:
    scenario = table()
    probe = Deployed(scenario, tmp_path / "probe")
    shared = probe.addresses[0]
    with deployed(scenario, tmp_path / "run", listen_clients=shared, listen_websocket=shared) as deployment:
        deployment.addresses[0] = shared
        deployment.up()
        asyncio.run(steal(deployment, "127.0.0.2"))
        (line,) = deployment.log("server-0", "client-replaced")
        assert (line["address"], line["former_address"]) == ("ipv4:127.0.0.2", "ipv4:127.0.0.1")
