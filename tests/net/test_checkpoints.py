"""What was reported as saved can be read, whatever happened: to the process, to the files, to the disk."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest

from spyker.errors import CheckpointError
from spyker.net.checkpoints import Checkpoints, latest

SAVE_IN_A_LOOP = """
import sys
from pathlib import Path
import numpy as np
from spyker.net.checkpoints import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
found = checkpoints.latest()
value = found.numbers["value"] if found else 0
print("ready", flush=True)
while True:
    value += 1
    vectors = {name: np.full(1_000_000, value, np.float32) for name in ("weights", "average")}
    checkpoints.save({"value": value}, vectors)
    print(value, flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


def fill(value, size=10):
    return {"weights": np.full(size, value, np.float32)}


def save(checkpoints, values):
    for value in values:
        number = checkpoints.save({"value": value}, fill(value))
    return number


def checkpoint_folders(folder):
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def everything(folder):
    return sorted(path.name for path in folder.iterdir() if path.name not in ("lock", "newest"))


# --- Saved and read back ----------------------------------------------------------------------------------------------


def test_what_was_saved_is_read_back_to_the_bit(folder):
    numbers = {"age": 0.1 + 0.2, "token": None, "updates": [[0, 3], [7, 1]], "random": {"state": 2**127 + 1}}
    vectors = {"weights": np.random.default_rng(0).normal(size=1000).astype(np.float32), "empty": np.zeros(0, "f4")}
    assert Checkpoints(folder, keep=2).save(numbers, vectors) == 1
    found = Checkpoints(folder, keep=2).latest()
    assert (found.number, found.numbers, found.damaged) == (1, numbers, ())
    assert {name: v.tobytes() for name, v in found.vectors.items()} == {n: v.tobytes() for n, v in vectors.items()}
    assert all(v.dtype == np.float32 for v in found.vectors.values())


def test_before_the_first_there_is_none(folder):
    assert Checkpoints(folder, keep=2).latest() is None
    assert latest(folder / "nowhere") is None


def test_the_latest_is_the_last_saved(folder):
    checkpoints = Checkpoints(folder, keep=3)
    assert save(checkpoints, range(12)) == 12
    found = checkpoints.latest()
    assert (found.number, found.numbers["value"], found.vectors["weights"][0]) == (12, 11, 11)


def test_only_the_last_are_kept(folder):
    save(Checkpoints(folder, keep=3), range(7))
    assert everything(folder) == ["checkpoint-000005", "checkpoint-000006", "checkpoint-000007"]


def test_the_first_of_each_hour_is_kept_longer(folder):
    """One checkpoint every ten minutes, for four hours."""
    for value in range(24):
        checkpoints = Checkpoints(folder, keep=2, hourly=3)
        number = save(checkpoints, [value])
        os.utime(folder / f"checkpoint-{number:06}", (value * 600, value * 600))
        del checkpoints
    assert [int(name[-6:]) for name in everything(folder)] == [7, 13, 19, 23, 24]
    save(Checkpoints(folder, keep=1), [0])
    assert [int(name[-6:]) for name in everything(folder)] == [25], "unless nobody wants them any more"


def test_numbers_go_on_after_a_restart(folder):
    save(Checkpoints(folder, keep=2), range(3))
    assert save(Checkpoints(folder, keep=2), [3]) == 4


def test_a_vector_with_several_names_is_written_once(folder):
    vector = np.ones(100_000, np.float32)
    Checkpoints(folder, keep=1).save({}, {"weights": vector, "to-1": vector, "to-2": vector, "own": vector.copy()})
    assert (folder / "checkpoint-000001" / "vectors.safetensors").stat().st_size < 2.1 * vector.nbytes
    assert sorted(latest(folder).vectors) == ["own", "to-1", "to-2", "weights"]


def test_numbers_that_json_cannot_hold_are_refused_and_nothing_is_left_that_could_be_read(folder):
    checkpoints = Checkpoints(folder, keep=2)
    save(checkpoints, [1])
    with pytest.raises(ValueError, match="JSON"):
        checkpoints.save({"age": float("nan")}, fill(2))
    assert checkpoints.latest().numbers["value"] == 1
    assert save(checkpoints, [3]) == 2  # the failed one is not in the way


def test_to_keep_nothing_is_refused(folder):
    with pytest.raises(CheckpointError, match="keep: 0"):
        Checkpoints(folder, keep=0)


def test_others_go_on_while_a_large_model_is_saved(folder):
    checkpoints, done = Checkpoints(folder, keep=1), threading.Event()
    vectors = fill(1, 10_000_000)
    thread = threading.Thread(target=lambda: (checkpoints.save({}, vectors), done.set()))
    thread.start()
    turns = 0
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns >= 5


# --- A killed process -------------------------------------------------------------------------------------------------


def test_a_kill_at_any_moment_loses_nothing_that_was_reported(folder):
    moments = random.Random(5)
    reported = 0
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_IN_A_LOOP, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        killer = threading.Timer(moments.uniform(0, 0.03), process.kill)
        waits_for = moments.randrange(4)  # saves: a clock would not say how many there are on a busy machine
        if waits_for == 0:
            killer.start()
        for saves, line in enumerate(process.stdout, 1):
            if line.endswith("\n"):
                reported = int(line)
            if saves == waits_for:
                killer.start()
        assert process.wait() == -signal.SIGKILL
        found = latest(folder)
        value = found.numbers["value"] if found else 0
        assert reported <= value <= reported + 1  # the last one may be saved and not yet reported
        if found:
            assert found.damaged == ()
            assert all((vector == value).all() for vector in found.vectors.values())
        reported = value
    assert reported > 5


@pytest.mark.parametrize("leftover", [".checkpoint-000003.unfinished", ".checkpoint-000001.unwanted"])
def test_what_a_kill_left_behind_is_removed(folder, leftover):
    save(Checkpoints(folder, keep=2), range(2))
    (folder / leftover).mkdir()
    (folder / leftover / "vectors.safetensors").write_bytes(b"half")
    assert latest(folder).number == 2
    checkpoints = Checkpoints(folder, keep=2)
    assert everything(folder) == ["checkpoint-000001", "checkpoint-000002"]
    assert save(checkpoints, [2]) == 3


def test_reading_does_not_disturb_who_writes(folder):
    save(Checkpoints(folder, keep=2), [1])
    (folder / ".checkpoint-000002.unfinished").mkdir()
    latest(folder)
    assert (folder / ".checkpoint-000002.unfinished").is_dir()


def test_two_processes_cannot_use_one_folder(folder):
    process = subprocess.Popen([sys.executable, "-c", SAVE_IN_A_LOOP, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(CheckpointError, match="in use by another process"):
            Checkpoints(folder, keep=2)
    finally:
        process.kill()
        process.communicate()
    Checkpoints(folder, keep=2)


# --- A damaged file ---------------------------------------------------------------------------------------------------


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "a bit of the vectors": lambda at: flip(at / "vectors.safetensors", -3),
    "a bit of the vectors' header": lambda at: flip(at / "vectors.safetensors", 20),
    "a bit of the numbers": lambda at: flip(at / "numbers.json", 30),
    "half of the vectors": lambda at: os.truncate(at / "vectors.safetensors", 90),
    "half of the numbers": lambda at: os.truncate(at / "numbers.json", 40),
    "no vectors": lambda at: (at / "vectors.safetensors").unlink(),
    "no numbers": lambda at: (at / "numbers.json").unlink(),
    "empty numbers": lambda at: (at / "numbers.json").write_text(""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_instead_of_a_damaged_checkpoint_the_one_before_it_is_used_and_that_is_said(folder, damage, caplog):
    save(Checkpoints(folder, keep=3), range(3))
    DAMAGES[damage](folder / "checkpoint-000003")
    found = Checkpoints(folder, keep=3).latest()
    assert (found.number, found.numbers["value"]) == (2, 1)
    (problem,) = found.damaged
    assert "checkpoint-000003 is damaged" in problem
    assert problem in caplog.text


def test_the_number_of_a_damaged_checkpoint_is_not_used_again(folder):
    save(Checkpoints(folder, keep=2), range(3))
    (folder / "checkpoint-000003" / "numbers.json").unlink()
    assert save(Checkpoints(folder, keep=2), [9]) == 4


def test_if_all_are_damaged_nothing_begins_silently_anew(folder):
    save(Checkpoints(folder, keep=2), range(2))
    for path in folder.glob("checkpoint-*/numbers.json"):
        path.write_text("{}")
    with pytest.raises(CheckpointError, match="holds no readable checkpoint"):
        latest(folder)


def test_a_checkpoint_of_a_later_format_is_named(folder):
    save(Checkpoints(folder, keep=2), [1])
    path = folder / "checkpoint-000001" / "numbers.json"
    table = json.loads(path.read_text().split("\n")[0]) | {"format": 8}
    content = json.dumps(table)
    path.write_text(f"{content}\n{zlib.crc32(content.encode())}\n")
    with pytest.raises(CheckpointError, match="has format 8, and this version of Spyker reads 7"):
        latest(folder)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "u4", "i8", "b1"])
def test_arrays_of_any_type_and_shape_come_back_as_they_were(folder, dtype):
    """Compressed messages wait in outboxes, and a server of one's own may keep whatever it likes."""
    array = np.arange(6).astype(dtype).reshape(2, 3)
    empty = np.zeros(0, dtype)
    Checkpoints(folder, keep=1).save({}, {"array": array, "empty": empty})
    found = latest(folder).vectors
    assert (found["array"].dtype, found["array"].tolist()) == (array.dtype, array.tolist())
    assert (found["empty"].dtype, found["empty"].size) == (array.dtype, 0)
