"""Deployments with compressed messages, and peers with other settings."""

from pathlib import Path

from deployment import deployed, table

from spyker.config.scenario import from_table
from spyker.net.server_config import deployment_digest, learning_digest
from spyker.tasks.registry import resolve

ALL = {"updates": "int8", "models": "int8", "exchanges": "int8"}


def test_clients_and_servers_with_other_codes_are_told_apart() -> None:
    plain, digests = resolve(from_table(table("stride", (2, 2)))), set()
    for key in ALL:
        other = resolve(from_table(table("stride", (2, 2), compression={key: "int8"})))
        assert deployment_digest(other) != deployment_digest(plain)
        assert (learning_digest(other) != learning_digest(plain)) == (key != "exchanges")
        digests.add(deployment_digest(other))
    assert len(digests) == len(ALL)


def test_a_client_with_another_code_is_refused(tmp_path: Path) -> None:
    with deployed(table("fedasync", (2,), compression={"updates": "int8"}), tmp_path) as deployment:
        deployment.up(0)
        other = Path(tmp_path / "scenario.toml")
        assert 'updates = "int8"' in other.read_text("utf-8")
        other.write_text(other.read_text("utf-8").replace('updates = "int8"', 'updates = "int4"'), "utf-8")
        client = deployment.attend("0-1")
        assert client.wait(120) != 0
