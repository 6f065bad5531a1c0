"""A disk for records that takes nothing more: the server goes on learning, and the record says what is missing."""

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import deployed, table, until
from test_recorder import applied, make_recorder

from spyker.net.recorder import Recorder
from spyker.records import FACTS, FactsDropped, RunRecord, ServerResumed


class FullDisk:
    """A file that takes a part of a line, and then no more."""

    def __init__(self, file: io.FileIO) -> None:
        self.file = file

    def write(self, text: bytes) -> int:
        if len(text) > 10:
            return self.file.write(text[:10])
        raise OSError(28, "No space left on device")

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def fill(recorder: Recorder) -> None:
    recorder._record._facts = FullDisk(recorder._record._facts)  # type: ignore[assignment, arg-type]


def clear(recorder: Recorder) -> None:
    recorder._record._facts = recorder._record._facts.file  # type: ignore[attr-defined]


def test_what_a_full_disk_does_not_take_is_counted_and_the_rest_is_whole(tmp_path: Path) -> None:
    said, counted = io.StringIO(), []
    recorder = make_recorder(tmp_path / "record", said=said)
    recorder._dropped = counted.append
    recorder.begin(1.0)
    recorder.fact(applied(1), 0)
    fill(recorder)
    for version in range(2, 500):
        recorder.fact(applied(version), 0)
    assert not (tmp_path / "record" / FACTS).read_bytes().rpartition(b"\n")[2], "no half of a line is left"
    clear(recorder)
    recorder.fact(applied(500), 0)
    recorder.close(None)
    facts = [stated.fact for stated in RunRecord(tmp_path / "record").facts()]
    assert [fact.kind for fact in facts] == ["run", "update", "facts-dropped", "update"]
    assert facts[2] == FactsDropped(0, 498, 0, None)
    assert sum(counted) == 498
    assert recorder.updates == 500, "they count all the same"
    events = [json.loads(line)["event"] for line in said.getvalue().splitlines()]
    assert events == ["record-failed", "record-again", "record-failed"], "once, then how often it was not said"


def test_a_record_never_begins_with_anything_but_what_it_is(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    fill(recorder)
    recorder.begin(1.0)
    recorder.fact(applied(1), 0)
    clear(recorder)
    recorder.fact(applied(2), 0)
    recorder.close(None)
    assert [stated.fact.kind for stated in RunRecord(tmp_path / "record").facts()] == ["run", "facts-dropped", "update"]


def test_a_restart_that_could_not_be_written_makes_void_what_it_did(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(1.0)
    for version in (1, 2, 3):
        recorder.fact(applied(version), 0)
    fill(recorder)
    recorder.resume(1)
    recorder.fact(applied(2), 0)
    clear(recorder)
    recorder.fact(applied(3), 0)
    recorder.close(None)
    run = RunRecord(tmp_path / "record")
    assert [update.version for _, update, _ in run.updates()] == [1, 3]
    assert not list(run.facts(ServerResumed))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_server_goes_on_learning_when_the_disk_for_its_record_is_full(tmp_path: Path, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with deployed(table(), tmp_path / "all", record=str(small_disk / "record")) as deployment:
        server = deployment.up()
        deployment.attend("0-2")
        until(lambda: deployment.metric("updates_total") >= 10)
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(512)):
                pass
        until(lambda: deployment.metric("dropped_facts_total") >= 50)
        version = deployment.metric("version")
        until(lambda: deployment.metric("saved_version") > version)
        ballast.unlink()
        until(lambda: deployment.log("server-0", "record-again"))
        server.terminate()
        assert server.wait(200) == 0
        failed = deployment.log("server-0", "record-failed")
        assert failed[0]["reason"] == "No space left on device"
        assert len(failed) <= 2, "once, and how often it was not said"
    facts = [stated.fact for stated in RunRecord(small_disk / "record").facts(FactsDropped)]
    assert sum(fact.facts for fact in facts) >= 50
