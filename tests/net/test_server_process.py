"""What a server process refuses before it begins."""

from pathlib import Path

import numpy as np
import pytest
from deployment import table

from spyker.config.scenario import from_table
from spyker.net import server_parts, server_process
from spyker.net.certificate_issuing import make_deployment
from spyker.net.checkpoints import Checkpoints
from spyker.net.identity import Identity, reset_identity, start_incarnation
from spyker.net.member_identity import member_options
from spyker.net.server_config import DeploymentOptions, ServerConfig
from spyker.net.state_folder import RestartAsNewMember, open_state
from spyker.node.ed25519_keys import Ed25519Keys
from spyker.node.node_clock import NodeClock
from spyker.node.views import first_view
from spyker.sim.sim_keys import SimKeys
from spyker.tasks.registry import resolve


class WentOnError(Exception):
    """The process would begin now."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with three checkpoints, and a process that stops before it takes over the interpreter."""

    def stop() -> None:
        raise WentOnError

    monkeypatch.setattr(server_parts, "keep_memory", stop)
    checkpoints = Checkpoints(tmp_path / "state", 3)
    identity = start_incarnation(tmp_path / "state")
    for value in range(3):
        numbers = {"value": value, "id": 0, "identity": identity.numbers}
        checkpoints.save(numbers, {"weights": np.ones(8, np.float32)})
    del checkpoints
    return tmp_path / "state"


def config(folder: Path, clients: tuple[int, ...]) -> ServerConfig:
    return ServerConfig(resolve(from_table(table("spyker", clients))), DeploymentOptions(), folder)


def begin(folder: Path, clients: tuple[int, ...]) -> None:
    server_process.ServerProcess(config(folder, clients), resume=True, insecure=True)


def test_a_server_with_peers_does_not_go_back_but_begins_anew(tmp_path: Path, state: Path) -> None:
    with pytest.raises(WentOnError):
        begin(tmp_path, (1, 1))
    start_incarnation(state)
    (state / "checkpoint-000003" / "numbers.json").write_text("damage")
    with pytest.raises(RestartAsNewMember, match=r"checkpoint-000003 is damaged.*\n.*number 2"):
        begin(tmp_path, (1, 1))
    former = start_incarnation(state).lineage
    reset_identity(state)
    assert start_incarnation(state).former == former
    found = open_state(config(tmp_path, (1, 1)), resume=True, alone=False)
    assert found.checkpoint is None
    assert found.reset, "it asks to be let in also if it is restarted before that"
    found.checkpoints.save({"id": 0, "identity": start_incarnation(state).numbers}, {"weights": np.ones(8, np.float32)})
    found.checkpoints.close()
    assert not open_state(config(tmp_path, (1, 1)), resume=True, alone=False).reset
    assert len(list(state.glob("outdated-*/checkpoint-*"))) == 3, "nothing is thrown away"


def test_a_server_without_peers_does(tmp_path: Path, state: Path) -> None:
    (state / "checkpoint-000003" / "numbers.json").write_text("damage")
    with pytest.raises(WentOnError):
        begin(tmp_path, (1,))


def test_a_deployed_server_signs_with_a_key_of_its_own_and_believes_no_key_of_a_simulation(tmp_path: Path) -> None:
    make_deployment(tmp_path, 2, 0)
    config = ServerConfig(
        resolve(from_table(table("spyker", (1, 1)))),
        DeploymentOptions(
            server=1,
            peers=("127.0.0.1:1", "127.0.0.1:2"),
            ca="ca.pem",
            certificate="server-1/cert.pem",
            key="server-1/key.pem",
        ),
        tmp_path,
    )
    identity, another = Identity.create(), Identity.create()
    made = member_options(config, identity, first_view([0, 1], [0, 1]), new=False, insecure=False)
    keys = made.make(NodeClock(), bytes.fromhex(identity.secret)).keys
    assert isinstance(keys, Ed25519Keys)
    assert (keys.lineage, len(bytes.fromhex(keys.lineage))) == (identity.lineage, 32)
    assert keys.verify(identity.lineage, b"statement", keys.sign(b"statement"))
    assert not keys.verify(another.lineage, b"statement", keys.sign(b"statement"))
    assert not keys.verify(identity.lineage, b"statement", SimKeys(identity.lineage, 1).sign(b"statement"))
    assert keys.endorsed(1, identity.lineage, keys.endorsement)
    assert not keys.endorsed(0, identity.lineage, keys.endorsement)
    assert not keys.endorsed(1, another.lineage, keys.endorsement)
    assert not keys.endorsed(1, identity.lineage, SimKeys(identity.lineage, 1).endorsement)
