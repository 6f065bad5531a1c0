"""Client processes that are killed, stopped and started again, and one whose disk is full."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment import Deployed, deployed, table, until
from safetensors.numpy import load_file

from spyker.cli.main import main
from spyker.errors import ClientStateError
from spyker.net.client_state import read_client

# The personal array counts the client's trainings, so that state and count can be compared. It is large enough for a
# kill to happen while it is written.
TASK = """
import numpy as np
import spyker

class Counting(spyker.FederatedTask):
    metric = spyker.Metric("level")
    personal = ["own"]

    def model(self):
        return {"own": np.zeros(SIZE), "shared": np.zeros(4)}

    def data(self, client):
        return [1, 2, 3]

    def client_test(self, client):
        return [1]

    def train(self, model, data, *, rate, seed, training):
        model["own"] += 1
        model["shared"] += 1

    def evaluate(self, model, data):
        return float(model["own"][0])
"""


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of the task, which processes import, too."""
    path = tmp_path / "code" / "counting_task.py"
    path.parent.mkdir()
    path.write_text(TASK.replace("SIZE", "200_000"), "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{path.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.delitem(__import__("sys").modules, "counting_task", raising=False)
    return path


def scenario() -> dict[str, Any]:
    return table(task={"name": "counting_task:Counting"})


def trainings(folder: Path, client: int = 0) -> int:
    """The count in a client's file, whose state must agree with it; 0 if there is none yet."""
    path = folder / f"client-{client}.safetensors"
    if not path.exists():
        return 0
    saved = read_client(path)
    assert (saved.state["own"] == saved.trainings).all()
    assert (saved.model["own"] == saved.trainings).all()
    return saved.trainings


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "status.json").read_text("utf-8"))
    return found


def updates_of(deployment: Deployed, client: int) -> int:
    return sum(fact["client"] == client for fact in deployment.facts("update"))


def test_a_client_that_is_killed_again_and_again_continues_from_its_last_state(tmp_path: Path, counting: Path) -> None:
    state = tmp_path / "state"
    with deployed(scenario(), tmp_path / "all") as deployment:
        deployment.up()
        count = 0
        for _ in range(2):
            process = deployment.attend("0", more=("--state", str(state)))
            until(lambda count=count: trainings(state) > count + 1)  # type: ignore[misc]
            process.kill()
            process.wait()
            before, count = count, trainings(state)
            assert count > before + 1
        process = deployment.attend("0", more=("--state", str(state)))
        until(lambda: trainings(state) > count and status(state)["clients"][0]["last_update"])
        process.terminate()
        assert process.wait(200) == 0, "SIGTERM ends it in good order"
        ended = status(state)
        assert ended["ended"]
        unsent = trainings(state) - ended["clients"][0]["trainings"]
        assert unsent in (0, 1), "SIGTERM may have come between a save and its update"
        assert ended["clients"][0]["scores"].keys() == {"level", "shared level"}
        until(lambda: deployment.facts("client-evaluation"))
        assert updates_of(deployment, 0) <= trainings(state), "each update was saved before it was sent"
    assert main(["export", str(state), "--out", str(tmp_path / "model")]) == 0
    assert (load_file(tmp_path / "model.safetensors")["own"] == trainings(state)).all()


def test_a_state_of_other_code_is_refused_until_it_is_discarded(tmp_path: Path, counting: Path) -> None:
    state = tmp_path / "state"
    with deployed(scenario(), tmp_path / "all") as deployment:
        deployment.up()
        process = deployment.attend("0", more=("--state", str(state)))
        until(lambda: trainings(state) > 0)
        process.terminate()
        process.wait()
        counting.write_text(counting.read_text("utf-8") + "\nCHANGED = True\n", "utf-8")
        refused = deployment.attend("0", more=("--state", str(state)))
        assert refused.wait(200) == 2
        text = (deployment.folder / "clients-0.log").read_text("utf-8")
        assert "was saved with other code of the task" in text
        assert "--discard-state" in text
        deployment.attend("0", more=("--state", str(state), "--discard-state"))
        until((state / "client-0.discarded").exists)
        until(lambda: trainings(state) > 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with space for two versions of a state."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_ends_that_client_and_no_other(tmp_path: Path, counting: Path, small_disk: Path) -> None:
    state = small_disk / "state"
    with deployed(scenario(), tmp_path / "all") as deployment:
        deployment.up()
        deployment.attend("1-2")
        process = deployment.attend("0", more=("--state", str(state)))
        until(lambda: trainings(state) > 0 and (state / "status.json").exists())

        def filled() -> bool:
            with (small_disk / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            return process.poll() is not None

        until(filled)
        assert process.returncode == 1
        (line,) = deployment.log("clients-0", "state-not-saved")
        assert "No space left on device" in line["error"]
        assert "No space left on device" in status(state)["clients"][0]["last_error"]
        count = trainings(state)
        assert updates_of(deployment, 0) <= count, "no update without its state"
        others = updates_of(deployment, 1)
        until(lambda: updates_of(deployment, 1) > others + 5)
        (small_disk / "ballast").unlink()
        deployment.attend("0", more=("--state", str(state)))
        until(lambda: trainings(state) > count)


def test_a_truncated_file_is_never_taken_for_a_state(tmp_path: Path) -> None:
    (tmp_path / "client-0.safetensors").write_bytes(b"\x08\x00\x00")
    with pytest.raises(ClientStateError, match="is damaged"):
        read_client(tmp_path / "client-0.safetensors")
