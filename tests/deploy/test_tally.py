"""What a server process counts, over a long life and several of them."""

import io
import json
import tracemalloc
from pathlib import Path

import pytest
from deployment import table

from spyker.config.scenario import from_table
from spyker.config.sections import ScenarioError
from spyker.deploy.log import Log
from spyker.deploy.tally import Tally
from spyker.learn.registry import recipe, resolve
from spyker.protocol.facts import UpdateApplied
from spyker.records import FACTS, Run, line


def make_tally(folder: Path, *, resume: bool = False, said: io.StringIO | None = None) -> Tally:
    scenario = resolve(from_table(table(evaluation={"interval": 0.25, "targets": [0.5, 0.1]})))
    return Tally(scenario, recipe(scenario).make(), 0, folder, resume=resume, log=Log(said or io.StringIO(), server=0))


def applied(version: int) -> UpdateApplied:
    return UpdateApplied(0, 0, 0.0, 1.0, float(version), version, 0.1)


def test_lost_updates_are_counted_over_several_lives(tmp_path: Path) -> None:
    tally = make_tally(tmp_path / "record")
    for version in range(1, 11):
        tally.fact(applied(version), 0)
    assert tally.resume(7) == 3
    assert tally.resume(7) == 0, "it was killed at once"
    for version in range(8, 10):
        tally.fact(applied(version), 0)
    assert tally.resume(9) == 0
    assert tally.resume(0) == 9
    assert tally.resume(5) == 0, "a checkpoint that outlived a record"
    tally.close(None)


def test_a_restart_costs_no_more_after_a_long_life(tmp_path: Path) -> None:
    tally = make_tally(tmp_path / "record")
    tally.begin(1.0)
    with (tmp_path / "record" / FACTS).open("a") as file:
        file.writelines(line(1.0, applied(version), 3) for version in range(1, 50_001))
        file.write('{"t": 1.5, "kind": "upd')
    tally.close(None)
    tracemalloc.start()
    try:
        tally = make_tally(tmp_path / "record", resume=True)
        lost = tally.resume(49_990)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lost == 10
    assert peak < 2_000_000, "the file has seven million bytes"
    assert [fact["kind"] for fact in Run(tmp_path / "record").facts()][-2:] == ["update", "resumed"]


def test_evaluations_leave_what_the_summary_needs_and_no_more(tmp_path: Path) -> None:
    tally = make_tally(tmp_path / "record")
    tally.begin(1.0)
    higher = tally.task.metric.higher_is_better
    for t, score in ((1.0, 0.3), (2.0, 0.05), (3.0, 0.7)):
        tally.evaluated(t, int(10 * t), score)
    size = len(json.dumps(tally.numbers()))
    for _ in range(100):
        tally.evaluated(3.0, 30, 0.7)
    assert len(json.dumps(tally.numbers())) == size
    again = make_tally(tmp_path / "again")
    again.restore(json.loads(json.dumps(tally.numbers())))
    assert again.last_score == 0.7
    assert again.reached == ({"0.1": (1.0, 10), "0.5": (3.0, 30)} if higher else {"0.5": (1.0, 10), "0.1": (2.0, 20)})


def test_a_score_that_is_not_a_number_is_left_out_and_reported_once(tmp_path: Path) -> None:
    said = io.StringIO()
    tally = make_tally(tmp_path / "record", said=said)
    for score in (float("nan"), float("inf"), 0.25):
        tally.evaluated(1.0, 1, score)
    json.dumps(tally.numbers(), allow_nan=False)
    assert [fact["mean"] for fact in Run(tmp_path / "record").facts("evaluation")] == [0.25]
    [report] = map(json.loads, said.getvalue().splitlines())
    assert (report["level"], report["event"]) == ("error", "not-finite-score")


@pytest.mark.parametrize("resume", [False, True])
def test_a_start_that_failed_does_not_stand_in_the_way_of_the_next(tmp_path: Path, resume: bool) -> None:
    make_tally(tmp_path / "record").close(None)  # a port was busy, or a certificate missing
    (tmp_path / "record" / "scenario.toml").write_text("what was wrong with it")
    tally = make_tally(tmp_path / "record", resume=resume)
    tally.begin(1.0)
    tally.fact(applied(1), 0)
    tally.close(None)
    assert Run(tmp_path / "record").algorithm == "fedasync"
    assert len(list(Run(tmp_path / "record").facts())) == 1


def test_a_record_that_has_begun_is_gone_on_with_and_never_overwritten(tmp_path: Path) -> None:
    tally = make_tally(tmp_path / "record")
    tally.begin(1.0)
    tally.close(None)
    with pytest.raises(ScenarioError, match="Add --resume"):
        make_tally(tmp_path / "record")
    make_tally(tmp_path / "record", resume=True).close(None)


@pytest.mark.parametrize("resume", [False, True])
def test_the_record_of_another_run_is_left_alone(tmp_path: Path, resume: bool) -> None:
    emulated = make_tally(tmp_path / "record")
    emulated.fact(applied(1), 0)
    emulated.close({})
    before = {path.name: path.read_bytes() for path in (tmp_path / "record").iterdir()}
    with pytest.raises(ScenarioError, match="empty or does not exist"):
        make_tally(tmp_path / "record", resume=resume)
    assert {path.name: path.read_bytes() for path in (tmp_path / "record").iterdir()} == before


def test_a_record_that_was_lost_begins_anew_and_can_be_gone_on_with(tmp_path: Path) -> None:
    tally = make_tally(tmp_path / "lost")
    tally.begin(1.0)
    for _ in range(2):
        again = make_tally(tmp_path / "record", resume=True)
        again.restore(tally.numbers())
        again.resume(5)
        again.close(None)
    assert [fact["kind"] for fact in Run(tmp_path / "record").facts()] == ["resumed"] * 2
