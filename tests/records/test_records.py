import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from recording import applied, started, write

from spyker.protocol.facts import ClientReported, CloudRoundEnded, EarlySyncStarted, Fact, SyncStarted, UpdateApplied
from spyker.protocol.server import first_bid
from spyker.records import (
    Evaluated,
    RecordedFact,
    RecordError,
    RecordWriter,
    RunRecord,
    ServerResumed,
    UnknownFact,
    check_new,
    evaluated,
    find_runs,
    line,
    read_back,
    write_atomically,
)
from spyker.records.lines import parse
from spyker.records.summary import SyncCount

UPDATE = UpdateApplied(server=0, client=3, staleness=1.5, weight=0.25, age=7.0, version=7, rate=0.05)
EVALUATED = Evaluated(updates=9, bytes=100, mean=0.5, worst=0.4, best=0.6, averaged=0.7, servers=[0.4, 0.6])


def test_an_update_stands_on_one_line_with_the_time_and_the_queue() -> None:
    text = line(0.1 + 0.2, UPDATE, 4)
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "t": 0.3,
        "kind": "update",
        "server": 0,
        "client": 3,
        "staleness": 1.5,
        "weight": 0.25,
        "age": 7.0,
        "version": 7,
        "rate": 0.05,
        "queue": 4,
    }


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n')
    writer.write(0.5, SyncStarted(1, 2))
    writer.write(1.0, EVALUATED)
    writer.close({"updates": 9})
    run = RunRecord(tmp_path / "run")
    assert run.scenario == {"algorithm": "spyker"}
    assert run.summary == {"updates": 9}
    assert list(run.facts()) == [RecordedFact(0.5, SyncStarted(1, 2)), RecordedFact(1.0, EVALUATED)]
    assert list(run.facts(Evaluated)) == [RecordedFact(1.0, EVALUATED)]


def test_facts_are_on_disk_at_every_evaluation(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n')
    writer.write(0.5, UPDATE, 1)
    writer.write(1.0, EVALUATED)
    assert [recorded.fact for recorded in RunRecord(tmp_path / "run").facts()] == [UPDATE, EVALUATED]  # not closed yet
    writer.close(None)


def test_a_killed_run_is_readable_without_its_summary_and_its_torn_last_line(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n')
    writer.write(1.0, EVALUATED)
    writer.close(None)
    with (tmp_path / "run" / "facts.jsonl").open("a") as file:
        file.write('{"t": 1.5, "kind": "upd')
    run = RunRecord(tmp_path / "run")
    assert run.summary is None
    assert [recorded.fact for recorded in run.facts()] == [EVALUATED]


def test_damaged_lines_say_nothing_against_the_others(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n', at_once=True)
    writer.write(0.5, SyncStarted(1, 2))
    facts = tmp_path / "run" / "facts.jsonl"
    with facts.open("ab") as file:
        file.write(b'{"t": 0.6, "kind": "evaluation", "mean": nan}\n{"t": \xff}\n\x00\x00\n17\n')
    writer.write(1.0, EVALUATED)
    writer.close(None)
    run = RunRecord(tmp_path / "run")
    assert [recorded.fact for recorded in run.facts()] == [SyncStarted(1, 2), EVALUATED]
    assert [recorded.fact for recorded in read_back(tmp_path / "run")] == [EVALUATED, SyncStarted(1, 2)]


@pytest.mark.parametrize("length", [0, 1, 100, 65_535, 65_536, 65_537, 200_000])
def test_a_record_goes_on_behind_its_last_whole_line(tmp_path: Path, length: int) -> None:
    RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n').close(None)
    facts = tmp_path / "run" / "facts.jsonl"
    for whole in (b"", b"{}\n" * 10):
        facts.write_bytes(whole + b"x" * length)
        RecordWriter(tmp_path / "run", "", append=True).close(None)
        assert facts.read_bytes() == whole


def test_an_existing_folder_is_never_overwritten_silently(tmp_path: Path) -> None:
    RecordWriter(tmp_path / "run", "seed = 1\n").close({})
    with pytest.raises(RecordError, match="--overwrite"):
        RecordWriter(tmp_path / "run", "seed = 2\n")
    with pytest.raises(RecordError, match="--overwrite"):
        check_new(tmp_path / "run", overwrite=False)
    check_new(tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "scenario.toml").read_text() == "seed = 1\n"


def test_overwriting_spares_what_is_not_a_record(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordError, match="not a run record"):
        check_new(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"


def test_runs_are_found_in_a_folder_of_runs(tmp_path: Path) -> None:
    for name in ("b", "a"):
        RecordWriter(tmp_path / name, f'algorithm = "{name}"\n').close({})
    assert [run.folder.name for run in find_runs(tmp_path)] == ["a", "b"]
    assert [run.folder.name for run in find_runs(tmp_path / "b")] == ["b"]
    with pytest.raises(RecordError, match=r"nowhere does not exist\. The runs in .* are a, b"):
        find_runs(tmp_path / "nowhere")


# --- What can be written ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clipped(Fact):
    """A fact of an algorithm that is not ours."""

    kind: ClassVar[str] = "clipped"
    server: int
    norm: float
    by_layer: dict[str, float]
    limits: tuple[float, ...]
    why: str
    again: bool
    bound: float | None


def read_line(text: str) -> Fact:
    """A line, read as strictly as JSON is."""
    json.loads(text, parse_constant=pytest.fail)
    recorded = parse(text)
    assert recorded is not None
    return recorded.fact


@pytest.mark.parametrize(
    "fact",
    [
        UPDATE,
        EVALUATED,
        CloudRoundEnded(3),
        started(0, 1000.25),
        ClientReported(0, 3, 7, None, {"loss": 0.5, "accuracy": 1.0}),
        Clipped(0, 2.5, {"conv": 1.0}, (0.5, 1.0), 'it\'s "too" long', True, None),
        UnknownFact("of another house", {"a": [1, {"b": None}], "c": "d"}),
    ],
)
def test_every_fact_reads_back_as_it_was(fact: Fact) -> None:
    assert read_line(line(1.5, fact)) == fact


@pytest.mark.parametrize("number", [np.float64(0.5), np.float32(0.5), np.array(0.5), np.array([0.5])[0]])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    fact = UpdateApplied(np.int64(0), 3, number, number, 7.0, np.int32(7), 0.05)
    assert read_line(line(np.float64(1.5), fact, np.int64(4))) == UpdateApplied(0, 3, 0.5, 0.5, 7.0, 7, 0.05)
    scores = Evaluated(9, 100, number, 0.4, 0.6, 0.7, [number, 0.6])
    assert read_line(line(1.0, scores)) == Evaluated(9, 100, 0.5, 0.4, 0.6, 0.7, [0.5, 0.6])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")])
def test_what_is_no_number_is_null_and_reads_back_as_nan(number: float) -> None:
    update = read_line(line(1.0, UpdateApplied(0, 3, number, 0.25, 7.0, 7, 0.05), 4))
    assert isinstance(update, UpdateApplied)
    assert math.isnan(update.staleness)
    scores = read_line(line(1.0, Evaluated(9, 100, number, 0.4, 0.6, 0.7, [number, 0.6])))
    assert isinstance(scores, Evaluated)
    assert math.isnan(scores.mean)
    assert math.isnan(scores.servers[0])
    report = read_line(line(1.0, ClientReported(0, 3, 7, None, {"loss": number})))
    assert isinstance(report, ClientReported)
    assert math.isnan(report.metrics["loss"])


def test_a_truth_in_the_place_of_a_number_is_still_json() -> None:
    json.loads(line(1.0, SyncStarted(True, 2)))


def test_facts_of_an_unknown_kind_or_with_other_fields_are_kept() -> None:
    newer = '{"t": 1.0, "kind": "sync", "server": 1, "bid": 2, "mood": "good"}\n'
    for text in (newer, '{"t": 1.0, "kind": "of a plugin", "x": [1, 2]}\n', '{"t": 1.0, "kind": "sync", "bid": "b"}\n'):
        fact = read_line(text)
        assert isinstance(fact, UnknownFact)
        assert line(1.0, fact) == text


def test_a_kind_belongs_to_one_class_and_what_hosts_add_to_nobody() -> None:
    with pytest.raises(TypeError, match="UpdateApplied"):

        class Mine(Fact):
            kind: ClassVar[str] = "update"

    with pytest.raises(TypeError, match="kind is missing"):

        class Shy(Fact):
            pass

    with pytest.raises(TypeError, match="queue"):

        class Long(Fact):
            kind: ClassVar[str] = "long"
            queue: int


def test_a_score_that_is_not_a_number_is_the_worst() -> None:
    for higher, best in ((True, 0.7), (False, 0.5)):
        for scores in ([0.5, math.nan, 0.7], [math.nan, 0.5, 0.7]):
            fact = evaluated(1, 2, scores, None, higher_is_better=higher)
            assert math.isnan(fact.mean)
            assert math.isnan(fact.worst)
            assert fact.best == best


# --- What cannot be read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scenario.toml", "summary.json"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"17"])
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path / "run", started(), [], {})
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(RecordError, match=rf"{name} cannot be read \(.+\)\. Restore it"):
        RunRecord(tmp_path / "run")


def test_facts_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write(tmp_path / "run", started(), [])
    (tmp_path / "run" / "facts.jsonl").unlink()
    (tmp_path / "run" / "facts.jsonl").mkdir()
    run = RunRecord(tmp_path / "run")
    for read in (run.facts, run.updates, lambda: read_back(run.folder)):
        with pytest.raises(RecordError, match=r"facts\.jsonl cannot be read"):
            list(read())


@pytest.mark.parametrize("first", [[(0.0, EVALUATED)], [(0.0, started(format=7))]])
def test_a_record_of_another_format_is_named_with_what_to_do(tmp_path: Path, first: list[tuple[float, Fact]]) -> None:
    run = RunRecord(write(tmp_path / "run", None, first))
    with pytest.raises(RecordError, match=r"run/facts\.jsonl has .*format.*run/scenario\.toml again"):
        run.start.title  # noqa: B018


# --- Updates that hold -----------------------------------------------------------------------------------------------


def test_updates_that_a_restart_made_void_do_not_count(tmp_path: Path) -> None:
    facts = [
        (1.0, applied(0, 1)),
        (1.1, applied(1, 1)),
        (2.0, applied(0, 2)),
        (3.0, applied(0, 3)),
        (4.0, ServerResumed(0, 2, 1)),
        (5.0, applied(0, 3)),
        (5.5, applied(1, 2)),
        (6.0, ServerResumed(0, 1, 2)),
        (7.0, applied(0, 2)),
        (8.0, ServerResumed(1, 2, 0)),
    ]
    run = RunRecord(write(tmp_path / "run", started(), facts))
    held = [(t, update.server, update.version) for t, update, _ in run.updates()]
    assert held == [(1.0, 0, 1), (1.1, 1, 1), (5.5, 1, 2), (7.0, 0, 2)]


def test_synchronisations_are_counted_over_epochs_that_number_them_anew() -> None:
    count = SyncCount()
    for bid in (1, 2, 2, 3):
        count.fact(SyncStarted(0, bid))
    assert count.count == 3
    for bid in (first_bid(1), first_bid(1) + 1):
        count.fact(EarlySyncStarted(1, bid))
    assert count.count == 5
    count.fact(SyncStarted(0, 3))
    again = SyncCount(count.count, count.latest)
    again.fact(SyncStarted(0, first_bid(1) + 2))
    assert again.count == 6
