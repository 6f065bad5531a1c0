"""States and records that a server cannot go on with: each is named with its remedy, and nothing is changed."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from deployment import deployed, table, until
from test_recorder import make_recorder
from test_server_process import WentOnError, begin, state  # noqa: F401

from spyker.config.scenario import from_table
from spyker.errors import CheckpointError, DeploymentError, StateFolderError, UsageError
from spyker.net.checkpoints import Checkpoints, latest
from spyker.net.identity import read_identity, start_incarnation
from spyker.net.recorder import Recorder
from spyker.net.server_config import DeploymentOptions, learning_digest, write_config
from spyker.net.state_folder import RestartAsNewMember
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ModelSpec

SPYKER = [sys.executable, "-m", "spyker.cli.main"]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, match: str, clients: tuple[int, ...] = (1, 1)) -> None:
    before = everything(folder)
    with pytest.raises((DeploymentError, UsageError, StateFolderError), match=match):
        begin(folder, clients)
    assert everything(folder) == before


# --- The newest checkpoint --------------------------------------------------------------------------------------------


def test_a_newest_checkpoint_that_vanished_is_missed(tmp_path: Path, state: Path) -> None:  # noqa: F811
    shutil.rmtree(state / "checkpoint-000003")
    with pytest.raises(RestartAsNewMember, match=r"(?s)000003 is missing, and was the newest.*number 2"):
        begin(tmp_path, (1, 1))
    found = latest(state)
    assert found is not None
    assert (found.number, len(found.damaged)) == (2, 1)
    Checkpoints(state, 3).save({}, {"weights": np.ones(8, np.float32)})
    found = latest(state)
    assert found is not None
    assert (found.number, found.damaged) == (3, ()), "what was accepted once is over with the next save"


def test_checkpoints_that_all_vanished_are_no_new_beginning(tmp_path: Path, state: Path) -> None:  # noqa: F811
    for folder in state.glob("checkpoint-*"):
        shutil.rmtree(folder)
    with pytest.raises(RestartAsNewMember, match="holds no readable checkpoint"):
        begin(tmp_path, (1, 1))


def test_nothing_that_can_be_read_is_no_end_where_others_have_what_it_held(
    tmp_path: Path,
    state: Path,  # noqa: F811
) -> None:
    for weights in state.glob("checkpoint-*/*.safetensors"):
        weights.write_bytes(b"damage")
    with pytest.raises(RestartAsNewMember, match="holds no readable checkpoint"):
        begin(tmp_path, (1, 1))


@pytest.mark.parametrize("note", ["", "2\n", "damage", None])
def test_a_note_that_a_power_cut_took_or_set_back_is_no_reason_to_worry(
    tmp_path: Path,
    state: Path,  # noqa: F811
    note: str | None,
) -> None:
    if note is None:
        (state / "newest").unlink()
    else:
        (state / "newest").write_text(note)
    with pytest.raises(WentOnError):
        begin(tmp_path, (1, 1))


# --- The identity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff", b"[1]", None])
def test_a_damaged_identity_is_named(tmp_path: Path, state: Path, damage: bytes | None) -> None:  # noqa: F811
    file = state / "identity.json"
    if damage is None:
        table = json.loads(file.read_text())
        damage = json.dumps(table | {"incarnation": 7}).encode()
    file.write_bytes(damage)
    refused(tmp_path, "identity.json is damaged.*restore all of")


def test_an_identity_must_be_that_of_the_checkpoint(tmp_path: Path, state: Path) -> None:  # noqa: F811
    (state / "identity.json").unlink()
    refused(tmp_path, "identity.json is missing")
    start_incarnation(state)
    refused(tmp_path, "is of another server than checkpoint 3: lineage")


def test_an_identity_must_not_be_older_than_the_checkpoint(tmp_path: Path, state: Path) -> None:  # noqa: F811
    old = (state / "identity.json").read_bytes()
    later = start_incarnation(state)
    Checkpoints(state, 3).save({"id": 0, "identity": later.numbers}, {"weights": np.ones(8, np.float32)})
    with pytest.raises(WentOnError):
        begin(tmp_path, (1, 1))
    (state / "identity.json").write_bytes(old)
    refused(tmp_path, "is older than checkpoint 4: incarnation 1, and the checkpoint is of incarnation 2")


def test_an_identity_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    first = start_incarnation(tmp_path)
    assert read_identity(tmp_path) == first
    second = start_incarnation(tmp_path)
    assert (second.lineage, second.secret, second.incarnation) == (first.lineage, first.secret, 2)


def test_the_state_of_another_server_is_refused(tmp_path: Path, state: Path) -> None:  # noqa: F811
    identity = read_identity(state)
    assert identity is not None
    numbers = {"id": 1, "identity": identity.numbers}
    Checkpoints(state, 3).save(numbers, {"weights": np.ones(8, np.float32)})
    refused(tmp_path, "holds checkpoints of server 1, and this is server 0")


# --- Folders ----------------------------------------------------------------------------------------------------------


def test_a_state_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    refused(tmp_path, r"deploy\.state: .*state cannot be used \(Not a directory\)")


def test_a_read_only_state_and_record_are_named_without_a_traceback(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        with pytest.raises(CheckpointError, match=r"cannot be used \(Read-only file system\)"):
            Checkpoints(place, 3)
        (tmp_path / "scenario.toml").write_text(
            '[task]\nname = "quadratic"\n[world]\nregions = ["Paris"]\nclients = [1]\n'
        )
        for key in ("state", "record"):
            write_config(tmp_path / "config.toml", "scenario.toml", DeploymentOptions(**{key: str(place / "inside")}))
            command = [*SPYKER, "serve", str(tmp_path / "config.toml"), "--insecure"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=200)
            assert done.returncode == 2
            assert f"deploy.{key}" in done.stderr
            assert "Read-only file system" in done.stderr
            assert "Traceback" not in done.stderr
            shutil.rmtree(tmp_path / "state", ignore_errors=True)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_record_of_another_scenario_is_left_alone(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(1.0)
    recorder.close(None)
    before = everything(tmp_path)
    for changes, named in (
        ({"clients": (4,)}, "clients is 3, not 4"),
        ({"algorithm": "fedbuff"}, "algorithm is fedasync, not fedbuff"),
    ):
        other = resolve(from_table(table(**changes)))
        with pytest.raises(UsageError, match=f"another scenario: its {named}"):
            Recorder(
                other, ModelSpec.of(task_spec(other).make()), 0, tmp_path / "record", resume=True, log=recorder._log
            )
    assert everything(tmp_path) == before


def test_others_can_read_neither_checkpoints_nor_records(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as deployment:
        deployment.up()
        deployment.attend("0")
        state, record = tmp_path / "server-0" / "state", tmp_path / "server-0" / "record"
        until(lambda: list(state.glob("checkpoint-*")) and (record / "facts.jsonl").exists())

        def open_to(path: Path) -> int:
            return stat.S_IMODE(path.stat().st_mode) & 0o077

        assert open_to(state) == 0
        assert open_to(state / "identity.json") == 0
        assert next(open_to(path) for path in state.glob("checkpoint-*") if path.exists()) == 0
        for path in (record, record / "facts.jsonl", record / "scenario.toml"):
            assert open_to(path) & 0o007 == 0


def test_clients_that_answer_with_models_do_not_agree_with_servers_that_take_differences() -> None:
    models, alike, differences = (
        learning_digest(resolve(from_table(table(name, (1,))))) for name in ("spyker", "fedasync", "stride")
    )
    assert models == alike != differences
