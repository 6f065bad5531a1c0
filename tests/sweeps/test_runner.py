"""Many runs: each once, whatever happens in between."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spyker.config.scenario import Scenario, load
from spyker.errors import RunFailedError, UsageError
from spyker.sweeps.runner import RunProgress, folder_of, is_finished, locked_folder, run_all, with_seeds
from spyker.tasks.registry import resolve


def scenario(**changes: object) -> Scenario:
    base = {"algorithm": "spyker", "task.name": "quadratic", "duration": 2.0}
    return resolve(load(None, base | {key.replace("__", "."): v for key, v in changes.items()}, clients=8))


@pytest.mark.parametrize("in_order", [True, False])
def test_the_longest_run_first_unless_the_order_counts(in_order: bool, tmp_path: Path) -> None:
    short, long = scenario(duration=0.5), scenario(duration=1.0)
    news: list[RunProgress] = []
    run_all([short, long], tmp_path, 1, news.append, in_order=in_order)
    done = [report.folder for report in news if report.finished]
    expected = [folder_of(s, tmp_path) for s in (short, long)]
    assert done == (expected if in_order else expected[::-1])


def test_one_run_per_scenario_in_their_order_and_equal_ones_run_once(tmp_path: Path) -> None:
    a, b = scenario(), scenario(algorithm="fedasync")
    news: list[RunProgress] = []
    runs = run_all([a, b, a], tmp_path, jobs=2, report=news.append)
    assert [run and run.start.algorithm for run in runs] == ["spyker", "fedasync", "spyker"]
    assert runs[0] is not None
    assert runs[2] is not None
    assert runs[0].folder == runs[2].folder
    assert sorted(r.folder.name for r in news if r.finished) == sorted(p.name for p in tmp_path.iterdir())


def test_a_run_depends_on_its_own_algorithms_parameters_only() -> None:
    root = Path()
    a = scenario()
    assert folder_of(a, root) == folder_of(scenario(**{"fedasync.client-rate": 0.1}), root)
    assert folder_of(a, root) != folder_of(scenario(**{"spyker.client-rate": 0.1}), root)
    assert len({folder_of(s, root) for s in with_seeds(a, 3)}) == 3


def test_the_number_of_jobs_does_not_change_a_byte(tmp_path: Path) -> None:
    wanted = [*with_seeds(scenario(), 2), scenario(algorithm="fedavg")]
    one, three = (run_all(wanted, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert a is not None
        assert b is not None
        for name in ("facts.jsonl", "summary.json", "scenario.toml"):
            assert (a.folder / name).read_bytes() == (b.folder / name).read_bytes()


def test_what_finished_is_never_run_again_and_what_did_not_starts_afresh(tmp_path: Path) -> None:
    a, b = scenario(), scenario(algorithm="fedavg")
    run_all([a], tmp_path, jobs=1)
    before = (folder_of(a, tmp_path) / "facts.jsonl").stat()
    half = folder_of(b, tmp_path)
    half.mkdir()
    (half / "scenario.toml").write_text("")
    (half / "facts.jsonl").write_text('{"t": 0.5, "kind": "upd')
    run_all([a, b], tmp_path, jobs=1)
    after = (folder_of(a, tmp_path) / "facts.jsonl").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert is_finished(half)


def test_a_run_that_diverges_is_left_out_and_not_tried_again(tmp_path: Path) -> None:
    bad = scenario(training__rate=1e30)
    assert run_all([bad, scenario()], tmp_path, jobs=1)[0] is None
    mark = folder_of(bad, tmp_path) / "diverged.txt"
    before = mark.stat().st_mtime_ns
    assert run_all([bad], tmp_path, jobs=1) == [None]
    assert mark.stat().st_mtime_ns == before


def test_what_goes_wrong_in_a_run_is_told_and_finished_runs_are_kept(tmp_path: Path) -> None:
    broken = replace(scenario(), task=replace(scenario().task, name="nobody:makes_this"))
    with pytest.raises(RunFailedError, match="makes_this"):
        run_all([scenario(), broken], tmp_path, jobs=1)
    assert is_finished(folder_of(scenario(), tmp_path))


SWEEP = [sys.executable, "-m", "spyker.cli.main", "sweep", "--task", "quadratic", "--clients", "40", "--jobs", "2"]
VARY = ["--vary", "algorithm=spyker,fedasync,fedavg", "--vary", "spyker.h-intra=20,40", "--duration", "30"]


def finished(root: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in root.glob("[!.]*/summary.json")}


def test_a_killed_sweep_goes_on_where_it_stopped_and_leaves_no_process_behind(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "sweep")]
    process = subprocess.Popen([*SWEEP, *VARY, *out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not finished(tmp_path / "sweep" / "runs"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = finished(tmp_path / "sweep" / "runs")
    while any(alive(pid) for pid in children):
        assert time.monotonic() < deadline, "a process of the sweep outlives it"
        time.sleep(0.05)
    before |= finished(tmp_path / "sweep" / "runs")
    again = subprocess.run([*SWEEP, *VARY, *out, "--resume"], capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    after = finished(tmp_path / "sweep" / "runs")
    assert before.items() <= after.items()
    assert len(after) == 4  # h-intra makes a difference to Spyker alone
    whole = tmp_path / "whole"
    subprocess.run([*SWEEP, *VARY, "--out", str(whole)], check=True, capture_output=True, timeout=200)
    assert (tmp_path / "sweep" / "sweep.csv").read_bytes() == (whole / "sweep.csv").read_bytes()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_folder_of_runs_serves_one_command_at_a_time(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "out" / "runs"):
        (tmp_path / "out" / "runs" / ".spyker-quadratic-12-34").mkdir()
        with pytest.raises(UsageError, match="in use by another command"), locked_folder(tmp_path / "out" / "runs"):
            pass
        assert (tmp_path / "out" / "runs" / ".spyker-quadratic-12-34").exists(), "what another command works on stays"
    with locked_folder(tmp_path / "out" / "runs"):
        assert not (tmp_path / "out" / "runs" / ".spyker-quadratic-12-34").exists()
