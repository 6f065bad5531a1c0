"""A run that goes on has its folder to itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import spyker
from spyker.api.output_folders import place_for_record
from spyker.cli.main import main
from spyker.records import RecordError
from spyker.records.lock import locked

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 3.0, "clients": 8, "progress": False}
RUN = ["run", "--task", "quadratic", "--duration", "1", "--clients", "8", "--out"]

LIVE = """
import sys, spyker
def wait(t, fact):
    if t > 1.5:
        print("waiting", flush=True)
        sys.stdin.readline()
spyker.run(task="quadratic", duration=3.0, clients=8, progress=False, out="a", callbacks=[wait])
"""
COMPARED = """
import sys, spyker
def wait(t, fact):
    print("waiting", flush=True)
    sys.stdin.readline()
spyker.compare(["spyker"], task="quadratic", duration=3.0, clients=8, progress=False, out="all", callbacks=[wait])
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: str) -> dict[str, bytes]:
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@contextmanager
def going_on(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs something and waits in the midst of it for its standard input to end."""
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_nobody_else_writes_to_a_run_that_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with going_on(LIVE) as process:
        before = files("a")
        for command in ([*RUN, "a"], [*RUN, "a", "--overwrite"]):
            assert main(command) == 2
            refusal = f"spyker: a: the run is in progress (process {process.pid}). Wait for it, or stop it\n"
            assert capsys.readouterr().err == refusal
            assert files("a") == before
        process.communicate(timeout=200)
        assert process.returncode == 0
    spyker.run(out="whole", **QUICK)
    assert files("a") == files("whole"), "nobody was in its way, and nothing is left of the lock"


def test_nothing_goes_on_after_a_kill() -> None:
    with going_on(LIVE) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(200)
    assert ".lock" in files("a"), "a file without a lock"
    spyker.run(out="a", overwrite=True, **QUICK)
    spyker.run(out="whole", **QUICK)
    assert files("a") == files("whole")
    Path("b").mkdir()
    Path("b/.lock").write_text("1\n")
    assert main([*RUN, "b"]) == 0, "a kill before anything was written leaves a place where nothing stands"


def test_a_comparison_has_its_folder_and_its_records_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with going_on(COMPARED) as process:
        before = files("all")
        for out in ("all", "all/spyker"):
            assert main([*RUN, out, "--overwrite"]) == 2
            assert f"{out}: the run is in progress (process {process.pid})" in capsys.readouterr().err
        assert files("all") == before
        process.communicate(timeout=200)
    assert not [name for name in files("all") if ".lock" in name]


def test_a_folder_of_records_does_not_go_while_one_of_them_is_written() -> None:
    spyker.run(out="all/done", **QUICK)
    with locked(Path("all/live")), pytest.raises(RecordError, match=f"all/live: the run .* {os.getpid()}"):
        place_for_record(Path("all"), overwrite=True)


def test_of_two_that_begin_at_once_one_is_refused() -> None:
    with locked(Path("a")), pytest.raises(RecordError, match="in progress"), locked(Path("a")):
        pass
    assert not list(Path("a").iterdir())


def test_who_ends_takes_nobody_elses_mark_away() -> None:
    with locked(Path("a")):
        Path("a/.lock").unlink()
        with locked(Path("a")):
            pass
        Path("a/.lock").write_text("2\n")
    assert Path("a/.lock").read_text() == "2\n"


def test_a_deployment_writes_to_nobody_elses_folder(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("grpc", reason="needs the extra [server]")
    with locked(Path("a")):
        assert main(["up", "--task", "quadratic", "--out", "a", "--overwrite", "--keep", "kept"]) == 2
        assert f"a: the run is in progress (process {os.getpid()})" in capsys.readouterr().err
    assert not Path("kept").exists()
