"""What a server process counts, over a long life and several of them."""

import io
import json
import math
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from deployment import table

from spyker.config.scenario import from_table
from spyker.errors import UsageError
from spyker.net.json_log import JsonLog
from spyker.net.recorder import Recorder
from spyker.protocol.facts import ClientEvaluated, ClientReported, UpdateApplied
from spyker.records import FACTS, Evaluated, MetricEvaluated, RunRecord, line, read
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ModelSpec
from spyker.tasks.task import EvaluationResult, Metric


def make_recorder(folder: Path, *, resume: bool = False, said: io.StringIO | None = None) -> Recorder:
    scenario = resolve(from_table(table(evaluation={"interval": 0.25, "targets": [0.5, 0.1]})))
    model = ModelSpec.of(task_spec(scenario).make())
    return Recorder(scenario, model, 0, folder, resume=resume, log=JsonLog(said or io.StringIO(), server=0))


def applied(version: int) -> UpdateApplied:
    return UpdateApplied(0, 0, 0.0, 1.0, float(version), version, 0.1)


def test_lost_updates_are_counted_over_several_lives(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    for version in range(1, 11):
        recorder.fact(applied(version), 0)
    assert recorder.resume(7) == 3
    assert recorder.resume(7) == 0, "it was killed at once"
    for version in range(8, 10):
        recorder.fact(applied(version), 0)
    assert recorder.resume(9) == 0
    assert recorder.resume(0) == 9
    assert recorder.resume(5) == 0, "a checkpoint that outlived a record"
    recorder.close(None)


def test_a_restart_costs_no_more_after_a_long_life(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(1.0)
    with (tmp_path / "record" / FACTS).open("a") as file:
        file.writelines(line(1.0, applied(version), 3) for version in range(1, 50_001))
        file.write('{"t": 1.5, "kind": "upd')
    recorder.close(None)
    tracemalloc.start()
    try:
        recorder = make_recorder(tmp_path / "record", resume=True)
        lost = recorder.resume(49_990)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lost == 10
    assert peak < 2_000_000, "the file has seven million bytes"
    assert [stated.fact.kind for stated in RunRecord(tmp_path / "record").facts()][-2:] == ["update", "server-resumed"]


def test_evaluations_leave_what_the_summary_needs_and_no_more(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(1.0)
    higher = recorder.model.metric.higher_is_better
    for t, score in ((1.0, 0.3), (2.0, 0.05), (3.0, 0.7)):
        recorder.evaluated(t, int(10 * t), score)
    size = len(json.dumps(recorder.numbers()))
    for _ in range(100):
        recorder.evaluated(3.0, 30, 0.7)
    assert len(json.dumps(recorder.numbers())) < size + 500
    again = make_recorder(tmp_path / "again")
    again.restore(json.loads(json.dumps(recorder.numbers())))
    assert again.last_score == 0.7
    assert again.reached == ({"0.1": (1.0, 10), "0.5": (3.0, 30)} if higher else {"0.5": (1.0, 10), "0.1": (2.0, 20)})


def test_a_score_that_is_not_a_number_is_recorded_as_such_and_reported_once(tmp_path: Path) -> None:
    said = io.StringIO()
    recorder = make_recorder(tmp_path / "record", said=said)
    recorder.begin(1.0)
    for score in (0.25, float("nan"), float("inf")):
        recorder.evaluated(1.0, 1, score)
    json.dumps(recorder.numbers(), allow_nan=False)
    scores = [stated.fact.mean for stated in RunRecord(tmp_path / "record").facts(Evaluated)]
    assert [None if math.isnan(score) else score for score in scores] == [0.25, None, None]
    reports = [json.loads(line, parse_constant=pytest.fail) for line in said.getvalue().splitlines()]
    assert [entry["event"] for entry in reports].count("not-finite-score") == 1
    told = [(entry["score"], entry["updates"], entry["t"]) for entry in reports if entry["event"] == "evaluation"]
    assert told == [(0.25, 1, 1.0), (None, 1, 1.0), (None, 1, 1.0)]


class Clocks:
    """What both clocks show."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1000.0, 5.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_time_does_not_jump_when_the_wall_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(clocks.wall)
    clocks.advance(2.0)
    recorder.fact(applied(1), 0)
    clocks.wall -= 3600  # summer is over
    clocks.advance(1.0)
    recorder.fact(applied(2), 0)
    recorder.close(None)
    assert [stated.t for stated in RunRecord(tmp_path / "record").facts(UpdateApplied)] == [2.0, 3.0]


def test_time_goes_on_in_the_next_life_and_never_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(clocks.wall)
    clocks.advance(10.0)
    recorder.fact(applied(1), 0)
    recorder.close(None)
    for down, expected in ((5.0, 15.0), (-3600.0, 15.0)):
        clocks.wall += down
        clocks.steady = 0.0  # the machine was started anew
        recorder = make_recorder(tmp_path / "record", resume=True)
        recorder.restore(recorder.numbers() | {"began": 1000.0})
        assert recorder.now == expected
        recorder.resume(1)
        recorder.close(None)


def test_a_life_without_a_checkpoint_keeps_the_time_zero_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(clocks.wall)
    recorder.close(None)
    clocks.advance(5.0)
    recorder = make_recorder(tmp_path / "record", resume=True)
    recorder.begin(clocks.wall)
    assert (recorder.now, recorder.numbers()["began"]) == (5.0, 1000.0)
    recorder.close(None)


def test_a_new_life_ends_what_the_summary_of_the_last_one_says(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(1.0)
    recorder.close({"finished": True})
    recorder = make_recorder(tmp_path / "record", resume=True)
    assert RunRecord(tmp_path / "record").summary is not None, "it may fail to start"
    recorder.begin(2.0)
    recorder.resume(0)
    assert RunRecord(tmp_path / "record").summary is None
    recorder.close(None)


@pytest.mark.parametrize("resume", [False, True])
def test_a_start_that_failed_does_not_stand_in_the_way_of_the_next(tmp_path: Path, resume: bool) -> None:
    make_recorder(tmp_path / "record").close(None)  # a port was busy, or a certificate missing
    (tmp_path / "record" / "scenario.toml").write_text("what was wrong with it")
    (tmp_path / "record" / FACTS).write_text('{"t": 0.0, "kind": "ru')  # and it was killed as it began
    recorder = make_recorder(tmp_path / "record", resume=resume)
    recorder.begin(1.0)
    recorder.fact(applied(1), 0)
    recorder.close(None)
    assert RunRecord(tmp_path / "record").start.algorithm == "fedasync"
    assert [stated.fact.kind for stated in RunRecord(tmp_path / "record").facts()] == ["run", "update"]


def test_a_record_that_has_begun_is_gone_on_with_and_never_overwritten(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.begin(1.0)
    recorder.close(None)
    with pytest.raises(UsageError, match="Add --resume"):
        make_recorder(tmp_path / "record")
    make_recorder(tmp_path / "record", resume=True).close(None)


@pytest.mark.parametrize("resume", [False, True])
def test_the_record_of_another_run_is_left_alone(tmp_path: Path, resume: bool) -> None:
    emulated = make_recorder(tmp_path / "record")
    emulated.fact(applied(1), 0)
    emulated.close({})
    before = {path.name: path.read_bytes() for path in (tmp_path / "record").iterdir()}
    with pytest.raises(UsageError, match="empty or does not exist"):
        make_recorder(tmp_path / "record", resume=resume)
    assert {path.name: path.read_bytes() for path in (tmp_path / "record").iterdir()} == before


def test_a_record_that_was_lost_begins_anew_and_can_be_gone_on_with(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "lost")
    recorder.begin(1.0)
    for _ in range(2):
        again = make_recorder(tmp_path / "record", resume=True)
        again.restore(recorder.numbers())
        again.resume(5)
        again.close(None)
    assert [stated.fact.kind for stated in RunRecord(tmp_path / "record").facts()] == [
        "run",
        "server-resumed",
        "server-resumed",
    ]
    assert RunRecord(tmp_path / "record").start.began == 1.0


def test_what_else_is_measured_and_reported_outlives_a_server(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "record")
    recorder.model = replace(recorder.model, also=(Metric("loss", higher_is_better=False),))
    recorder.begin(1.0)
    recorder.fact(ClientReported(0, 2, 1, None, {"training loss": 0.5}), 0)
    recorder.evaluated(1.0, 1, EvaluationResult(0.3, {"loss": 2.0}))
    assert [fact.mean for _, fact, _ in read(tmp_path / "record") if isinstance(fact, MetricEvaluated)] == [2.0]
    kept = json.loads(json.dumps(recorder.numbers()))
    again = make_recorder(tmp_path / "other")
    again.restore(kept)
    assert again.reports == {2: {"training loss": 0.5}}
    for each in (recorder, again):
        each.close(None)


def events(said: io.StringIO, name: str) -> list[dict[str, object]]:
    told = [json.loads(each) for each in said.getvalue().splitlines()]
    return [each for each in told if each["event"] == name]


def test_a_server_without_updates_says_so_once_and_when_they_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks, said = Clocks(monkeypatch), io.StringIO()
    recorder = make_recorder(tmp_path / "record", said=said)
    recorder.begin(clocks.wall)
    for score, seconds, updated, warned in (
        (0.4, 500.0, False, False),  # a first training may be long
        (0.4, 200.0, False, True),
        (0.4, 200.0, False, True),
        (0.3, 100.0, True, False),  # after a thousand seconds
        (0.2, 2900.0, False, False),
        (0.1, 200.0, False, True),
    ):
        clocks.advance(seconds)
        if updated:
            recorder.fact(applied(1), 0)
        recorder.evaluated(recorder.now, recorder.updates, score)
        assert ("no-updates" in recorder.warned) == warned
    assert [each["message"] for each in events(said, "learning-warning")] == [
        "no client update arrived for 700 s",
        "no client update arrived for 3,100 s",
    ]
    assert [each["kind"] for each in events(said, "learning-again")] == ["no-updates"]
    recorder.close(None)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_server_that_makes_no_progress_says_so_when_it_had_time_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    clocks, said = Clocks(monkeypatch), io.StringIO()
    recorder = make_recorder(tmp_path / "record", said=said)
    recorder.begin(clocks.wall)
    for turn in range(12):
        clocks.advance(1.0)
        for _ in range(100):
            recorder.fact(applied(1), 0)
        recorder.evaluated(recorder.now, recorder.updates, 0.05)
        assert recorder.warned == ({"no-progress"} if turn >= 9 else set())
        if restarted and turn == 5:
            numbers = json.loads(json.dumps(recorder.numbers(), allow_nan=False))
            recorder.close(None)
            recorder = make_recorder(tmp_path / "record", resume=True, said=said)
            recorder.restore(numbers)
    assert len(events(said, "learning-warning")) == 1
    recorder.close(None)


def test_clients_evaluations_outlive_a_server(tmp_path: Path) -> None:
    def made(folder: Path) -> Recorder:
        scenario = resolve(from_table(table(evaluation={"interval": 0.25})))
        model = ModelSpec.of(task_spec(scenario).make())
        log = JsonLog(io.StringIO(), server=0)
        return Recorder(scenario, model, 0, folder, resume=False, log=log, evaluated_by="clients")

    recorder = made(tmp_path / "record")
    recorder.begin(time.time())
    assert recorder.evaluated_by_clients(2) is None, "nobody has evaluated"
    for client, value in ((0, 0.25), (1, 0.75)):
        recorder.fact(ClientEvaluated(0, client, 10, {"covered": value}), 0)
    found = recorder.evaluated_by_clients(2)
    assert found is not None
    assert (found.mean, recorder.by_clients[0].clients, recorder.last_score) == (0.5, 2, 0.5)
    again = made(tmp_path / "other")
    again.restore(json.loads(json.dumps(recorder.numbers())))
    found = again.evaluated_by_clients(2)
    assert found is not None
    assert found.mean == 0.5
    for each in (recorder, again):
        each.close(None)
