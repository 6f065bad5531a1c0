"""The state files of clients: complete, private, and refused where they do not fit."""

from __future__ import annotations

import asyncio
import resource
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remembering_task import Remembering

from spyker.api.export import find_model
from spyker.config.scenario import Scenario, from_table
from spyker.errors import ClientStateError, UsageError
from spyker.net.client_state import ClientStates, read_client
from spyker.net.client_status import ClientStatus, StatusFile
from spyker.net.training_thread import TrainingThread
from spyker.protocol.messages import Train
from spyker.records import RecordError
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.task import Task


def scenario(**training: Any) -> Scenario:
    table = {"task": {"name": "digits"}, "world": {"clients": [2, 2, 2, 2]}, "training": training}
    return resolve(from_table(table))


@pytest.fixture(scope="module")
def personal() -> tuple[Scenario, Task]:
    chosen = scenario(personal=["4.*"], optimiser="adam", **{"keep-optimiser": True})
    return chosen, task_spec(chosen).make()


@pytest.fixture
def states(tmp_path: Path, personal: tuple[Scenario, Task]) -> Iterator[ClientStates]:
    opened = ClientStates(tmp_path / "state", personal[1], personal[0])
    yield opened
    opened.close()


def order(task: Task, step: int) -> Train:
    return Train(task.initial(), 0.01, step)


def test_a_training_is_over_when_the_clients_state_is_on_the_disk(
    states: ClientStates, personal: tuple[Scenario, Task]
) -> None:
    task = personal[1]

    async def scene() -> None:
        training = TrainingThread(task, states=states)
        for step in range(2):
            job = await training.train(3, order(task, step))
            assert job.new_state is not None
            saved = read_client(states.path(3))
            assert saved.trainings == step + 1
            assert np.array_equal(saved.model["0.weight"], task.client_model(job.weights, None)["0.weight"])
        assert saved.state.keys() == {"personal", "optimiser"}

    asyncio.run(scene())


def test_a_new_process_continues_exactly_where_the_last_one_ended(
    tmp_path: Path, personal: tuple[Scenario, Task]
) -> None:
    chosen, task = personal

    async def scene() -> None:
        whole, first = (ClientStates(tmp_path / name, task, chosen) for name in ("whole", "parts"))
        training, before = TrainingThread(task, states=whole), TrainingThread(task, states=first)
        for step in range(3):
            expected = (await training.train(0, order(task, step))).result
        for step in range(2):
            await before.train(0, order(task, step))
        before.close()
        after = TrainingThread(task, states=ClientStates(tmp_path / "parts", task, chosen))
        assert after.restore(0) == 2
        found = (await after.train(0, order(task, 2))).result
        assert expected is not None
        assert found is not None
        assert np.array_equal(found, expected)
        assert after.restore(1) == 0

    asyncio.run(scene())


def test_a_training_that_was_dropped_while_its_state_was_saved_counts(
    states: ClientStates, personal: tuple[Scenario, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory and disk agree: the next training starts from the state that is on the disk."""
    task = personal[1]

    async def scene() -> None:
        training = TrainingThread(task, states=states)
        began, go_on = asyncio.Event(), asyncio.Event()
        loop, save = asyncio.get_running_loop(), states.save

        def slowly(*arguments: Any) -> None:
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            save(*arguments)

        monkeypatch.setattr(states, "save", slowly)
        dropped = asyncio.create_task(training.train(0, order(task, 0)))
        await began.wait()
        dropped.cancel()
        await asyncio.wait([dropped])
        following = asyncio.create_task(training.train(0, order(task, 1)))
        monkeypatch.setattr(states, "save", save)
        go_on.set()
        job = await following
        assert job.state is not None, "it starts from the saved state"
        assert read_client(states.path(0)).trainings == 2

    asyncio.run(scene())


def test_a_task_without_state_saves_its_training_count(tmp_path: Path) -> None:
    chosen = resolve(from_table({"task": {"name": "quadratic", "dimension": 3}, "world": {"clients": [1, 1, 1, 1]}}))
    task = task_spec(chosen).make()
    states = ClientStates(tmp_path, task, chosen)
    asyncio.run(TrainingThread(task, states=states).train(0, order(task, 6)))
    saved = read_client(states.path(0))
    assert (saved.trainings, saved.state, saved.model) == (7, None, {})
    with pytest.raises(ClientStateError, match="no personal parameters"):
        find_model([tmp_path])


def test_folder_and_files_are_private_and_have_one_user(
    states: ClientStates, personal: tuple[Scenario, Task], tmp_path: Path
) -> None:
    states.save(0, 1, {"x": 1})
    assert stat.S_IMODE(states.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(states.path(0).stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="in use by another process"):
        ClientStates(states.folder, personal[1], personal[0])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--state: .*cannot be used"):
        ClientStates(tmp_path / "file", personal[1], personal[0])


def test_what_a_killed_process_left_is_removed(tmp_path: Path, personal: tuple[Scenario, Task]) -> None:
    leftover = tmp_path / ".client-0.safetensors.77"
    leftover.write_bytes(b"half")
    ClientStates(tmp_path, personal[1], personal[0]).close()
    assert not leftover.exists()


@pytest.mark.parametrize(
    "changed",
    [{"personal": ["0.*"]}, {"optimiser": "momentum"}, {"optimiser-options": {"weight-decay": 0.1}}],
)
def test_a_state_of_another_model_or_optimiser_is_refused(
    states: ClientStates, personal: tuple[Scenario, Task], changed: dict[str, Any]
) -> None:
    states.save(0, 1, None)
    states.close()
    other = scenario(**{"personal": ["4.*"], "optimiser": "adam", "keep-optimiser": True} | changed)
    with pytest.raises(UsageError, match=r"another model or optimiser\. .*--discard-state"):
        ClientStates(states.folder, task_spec(other).make(), other).load(0)


def test_a_state_of_other_code_is_refused_and_can_be_discarded(states: ClientStates) -> None:
    states.save(0, 5, None)
    states._code = "other"
    with pytest.raises(UsageError, match=r"other code of the task\. .*--discard-state"):
        states.load(0)
    states.discard(0)
    assert states.load(0) is None
    assert states.path(0).with_suffix(".discarded").exists(), "nothing is deleted"


def test_a_damaged_state_is_refused_wherever_a_byte_changed(states: ClientStates) -> None:
    states.save(0, 5, {"x": np.arange(8)}, {"w": np.ones(3, np.float32)})
    path = states.path(0)
    good = path.read_bytes()
    assert read_client(path).trainings == 5
    text = len(good) - 8 * 8 - 3 * 4
    for place in (3, 40, text - 200, text + 5, len(good) - 1):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(UsageError, match=r"is damaged.*--discard-state"):
            states.load(0)
    path.write_bytes(good[:-1])
    with pytest.raises(UsageError, match="is damaged"):
        states.load(0)


def test_a_file_of_another_client_is_refused(states: ClientStates) -> None:
    states.save(0, 5, None)
    states.path(0).rename(states.path(1))
    with pytest.raises(UsageError, match="is the state of client 0"):
        states.load(1)


def test_an_unsupported_state_is_an_error_of_the_training(tmp_path: Path) -> None:
    class Odd(Remembering):
        def train(self, client: int, weights: Any, rate: float, step: int, state: Any = None) -> Any:
            return replace(super().train(client, weights, rate, step, state), state={"x": object()})

    states = ClientStates(tmp_path, Odd(0), resolve(from_table({"task": {"name": "quadratic"}})))
    with pytest.raises(UsageError, match=r"cannot be stored: state\['x'\] is a object"):
        asyncio.run(TrainingThread(Odd(0), states=states).train(0, Train(np.zeros(3, np.float32), 0.1, 0)))


def test_a_write_that_fails_leaves_the_last_version_and_no_other_file(states: ClientStates) -> None:
    states.save(0, 1, {"x": 1})
    before = sorted(path.name for path in states.folder.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        with pytest.raises(ClientStateError, match=r"cannot be written to .*client-0\.safetensors \(File too large\)"):
            states.save(0, 2, {"x": np.zeros(1 << 14)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_client(states.path(0)).trainings == 1
    assert sorted(path.name for path in states.folder.iterdir()) == before


def test_the_complete_model_of_a_client_can_be_exported(states: ClientStates, personal: tuple[Scenario, Task]) -> None:
    task = personal[1]
    state = {"personal": np.full(1290, 7, np.float32)}
    states.save(2, 9, state, task.client_model(task.initial(), state))
    for place in (states.folder, states.folder.parent, states.path(2)):
        model, (line,) = find_model([place])
        assert list(model.parts) == ["0.weight", "0.bias", "4.weight", "4.bias"]
        assert (model.parts["4.weight"] == 7).all()
        assert line == "client 2: 9 trainings"
    states.save(3, 9, None)
    with pytest.raises(RecordError, match=r"several clients.*client-3\.safetensors"):
        find_model([states.folder])


def test_the_status_is_replaced_when_it_changes(tmp_path: Path) -> None:
    client = ClientStatus(4)
    file = StatusFile(tmp_path, [client])
    file.write()
    first = file.path.stat().st_ino
    file.write()
    assert file.path.stat().st_ino == first, "nothing has changed"
    client.trainings = 1
    file.write()
    assert file.path.stat().st_ino != first
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_status_that_has_no_space_for_a_copy_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientStatus(4)
    file = StatusFile(tmp_path, [client])
    file.write()

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    client.failed("No space left on device")
    file.write(ended=True)
    assert "No space left on device" in file.path.read_text("utf-8")
    assert len(file.path.read_bytes()) == 4096
