"""What a server process refuses before it begins."""

from pathlib import Path

import numpy as np
import pytest
from deployment import table

from spyker.config.scenario import from_table
from spyker.deploy import serve
from spyker.deploy.checkpoints import Checkpoints
from spyker.deploy.config import Config, Deployment
from spyker.deploy.errors import DeploymentError
from spyker.learn.registry import resolve


class WentOnError(Exception):
    """The process would begin now."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with three checkpoints, and a process that stops before it takes over the interpreter."""

    def stop() -> None:
        raise WentOnError

    monkeypatch.setattr(serve, "keep_memory", stop)
    checkpoints = Checkpoints(tmp_path / "state", 3)
    for value in range(3):
        checkpoints.save({"value": value}, {"weights": np.ones(8, np.float32)})
    del checkpoints
    return tmp_path / "state"


def begin(folder: Path, clients: tuple[int, ...], *, accept_rollback: bool = False) -> None:
    config = Config(resolve(from_table(table("spyker", clients))), Deployment(), folder)
    serve.ServerProcess(config, resume=True, insecure=True, accept_rollback=accept_rollback)


def test_a_server_with_peers_does_not_go_back_by_itself(tmp_path: Path, state: Path) -> None:
    with pytest.raises(WentOnError):
        begin(tmp_path, (1, 1))
    (state / "checkpoint-000003" / "numbers.json").write_text("damage")
    with pytest.raises(DeploymentError, match=r"number 2, can be read.*restore all.*--accept-rollback"):
        begin(tmp_path, (1, 1))
    with pytest.raises(WentOnError):
        begin(tmp_path, (1, 1), accept_rollback=True)


def test_a_server_without_peers_does(tmp_path: Path, state: Path) -> None:
    (state / "checkpoint-000003" / "numbers.json").write_text("damage")
    with pytest.raises(WentOnError):
        begin(tmp_path, (1,))
