"""One record of many."""

from pathlib import Path

import pytest
from deployment import table

from spyker.config.scenario import dump, from_table
from spyker.deploy.merge import merge_records
from spyker.deploy.tally import BEGAN
from spyker.learn.registry import resolve
from spyker.protocol.facts import UpdateApplied
from spyker.records import Evaluated, RecordError, RecordWriter, Resumed, Run
from spyker.show.curves import curve


def record(folder: Path, server: int, began: float, facts: list) -> Path:
    scenario = resolve(from_table(table("spyker", (2, 2)) | {"evaluation": {"interval": 1.0}}))
    writer = RecordWriter(folder, dump(scenario), at_once=True)
    for t, fact in facts:
        writer.write(t, fact, 1 if isinstance(fact, UpdateApplied) else None)
    writer.close(None)
    (folder / BEGAN).write_text(f"{began}\n")
    return folder


def update(server: int, version: int) -> UpdateApplied:
    return UpdateApplied(server, 2 * server, 0.0, 1.0, float(version), version, 0.1)


def judged(updates: int, score: float) -> Evaluated:
    return Evaluated(updates, 100, score, score, score, score, [score])


def test_records_are_aligned_by_the_time_at_which_they_began(tmp_path: Path) -> None:
    one = record(tmp_path / "0", 0, 1000.0, [(0.0, judged(0, 0.0)), (1.0, update(0, 1)), (2.0, judged(1, 0.5))])
    two = record(tmp_path / "1", 1, 1000.5, [(0.0, judged(0, 0.0)), (1.0, update(1, 1)), (1.5, judged(1, 0.7))])
    merge_records([one, two], tmp_path / "all")
    run = Run(tmp_path / "all")
    assert [(fact["t"], fact["server"]) for fact in run.facts("update")] == [(1.0, 0), (1.5, 1)]
    last = list(run.facts("evaluation"))[-1]
    assert (last["t"], last["updates"], last["bytes"]) == (2.0, 2, 200)
    assert (last["worst"], last["best"]) == (0.5, 0.7)
    assert last["mean"] == pytest.approx(0.6)
    assert curve(run, "merged").time == [0.5, 1.0, 2.0]


def test_what_a_restart_made_void_is_left_out(tmp_path: Path) -> None:
    facts = [
        (0.0, judged(0, 0.0)),
        (1.0, update(0, 1)),
        (2.0, update(0, 2)),
        (3.0, update(0, 3)),
        (4.0, Resumed(0, 1, 2)),
        (5.0, update(0, 2)),
        (6.0, judged(2, 0.5)),
    ]
    merge_records([record(tmp_path / "0", 0, 1000.0, facts)], tmp_path / "all")
    run = Run(tmp_path / "all")
    assert [(fact["t"], fact["version"]) for fact in run.facts("update")] == [(1.0, 1), (5.0, 2)]
    assert [fact["lost"] for fact in run.facts("resumed")] == [2]
    assert list(run.facts("evaluation"))[-1]["updates"] == 2


def test_a_record_that_never_began_is_named(tmp_path: Path) -> None:
    folder = record(tmp_path / "0", 0, 1000.0, [])
    (folder / BEGAN).unlink()
    with pytest.raises(RecordError, match="began"):
        merge_records([folder], tmp_path / "all")
