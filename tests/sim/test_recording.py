"""A run and its record."""

import resource
from pathlib import Path
from typing import Any

import pytest

from spyker.config.scenario import from_table
from spyker.engines.engine import InProcessEngine
from spyker.errors import RecordWriteError
from spyker.records import Evaluated, RunRecord
from spyker.sim.recording import record_run
from spyker.tasks.registry import resolve, task_spec

SCENARIO = resolve(from_table({"task": {"name": "quadratic"}, "duration": 5.0}))


def make(folder: Path, *watches: Any) -> dict[str, Any]:
    task = task_spec(SCENARIO).make()
    return record_run(SCENARIO, task, InProcessEngine(task), folder, watches)


def test_who_watches_is_told_what_is_written_and_may_end_the_run(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    summary = make(tmp_path / "a", lambda t, fact: told.append((t, fact.kind)), lambda t, fact: t >= 1)
    assert summary == RunRecord(tmp_path / "a").summary
    assert not summary["finished"]
    assert 1 <= summary["time"] < 1.5
    assert [(round(t, 9), kind) for t, kind in told] == [
        (t, fact.kind) for t, fact, _ in RunRecord(tmp_path / "a").facts()
    ]


def test_only_true_ends_a_run(tmp_path: Path) -> None:
    assert make(tmp_path / "a", lambda t, fact: 1)["finished"]


def test_a_record_that_the_disk_takes_no_more_of_is_an_error_that_names_it(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk(t: float, fact: object) -> None:
        if t >= 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))

    try:
        with pytest.raises(RecordWriteError, match=r"a: cannot write run record \(File too large\)"):
            make(tmp_path / "a", fill_the_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [stated.t for stated in RunRecord(tmp_path / "a").facts(Evaluated)] == [0.0, 1.0, 2.0]
