"""What a server process refuses before it begins."""

from pathlib import Path

import numpy as np
import pytest
from deployment import table

from spyker.config.scenario import from_table
from spyker.net import server_process
from spyker.net.checkpoints import Checkpoints
from spyker.net.identity import reset_identity, start_incarnation
from spyker.net.server_config import DeploymentOptions, ServerConfig
from spyker.net.state_folder import RestartAsNewMember, open_state
from spyker.tasks.registry import resolve


class WentOnError(Exception):
    """The process would begin now."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with three checkpoints, and a process that stops before it takes over the interpreter."""

    def stop() -> None:
        raise WentOnError

    monkeypatch.setattr(server_process, "keep_memory", stop)
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
