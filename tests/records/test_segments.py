"""Records that take no more disk than they may: files that follow each other, and what stands for those that went."""

from pathlib import Path

from recording import applied, judged, started

from spyker.protocol.facts import UpdateApplied
from spyker.records import (
    FACTS,
    Evaluated,
    FactsDropped,
    Follower,
    RecordWriter,
    RunRecord,
    RunStarted,
    ServerResumed,
    first_fact,
    read_back,
)
from spyker.records.merge import merge
from spyker.records.segments import end, segments

LIMIT = 16_000


def writer(folder: Path, *, append: bool = False, limit: int | None = LIMIT) -> RecordWriter:
    return RecordWriter(folder, "", at_once=True, append=append, server=0, limit=limit)


def begin(folder: Path) -> RecordWriter:
    record = writer(folder)
    record.write(0.0, started(0, 1000.0))
    record.write(0.0, judged(0, 0.0))
    return record


def apply(record: RecordWriter, first: int, last: int, t: float = 0.0) -> int:
    """Write updates, and return how many facts had to go."""
    gone = [record.write(t + 0.01 * v, applied(0, v), 1) for v in range(first, last + 1)]
    return sum(dropped.facts for dropped in gone if dropped is not None)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for _, path in segments(folder))


def versions(run: RunRecord) -> list[int]:
    return [update.version for _, update, _ in run.updates()]


def test_a_record_keeps_its_beginning_and_its_end_and_says_what_is_missing(tmp_path: Path) -> None:
    record, follower = begin(tmp_path), Follower(tmp_path, UpdateApplied)
    told, gone = [], 0
    for v in range(1, 2001):
        gone += apply(record, v, v)
        assert size(tmp_path) <= LIMIT
        if v % 30 == 0:
            told += [recorded.fact.version for recorded in follower.poll()]
    told += [recorded.fact.version for recorded in follower.poll()]
    record.close(None)
    assert told == list(range(1, 2001)), "who keeps up misses nothing"
    run = RunRecord(tmp_path)
    found = versions(run)
    ((t, note, _),) = run.facts(FactsDropped)
    assert first_fact(tmp_path) == started(0, 1000.0)
    gap = next(n for n, v in enumerate(found) if v != n + 1)
    assert found == [*range(1, gap + 1), *range(gap + note.facts + 1, 2001)], "the note counts what is missing"
    assert note.facts == gone
    assert (note.server, note.version) == (0, None)
    assert gap > 5
    assert len(found) - gap > 50
    times = [recorded.t for recorded in run.facts()]
    assert times == sorted(times)
    assert t == 0.01 * (gap + note.facts)
    assert [
        recorded.fact.version for recorded in read_back(tmp_path) if isinstance(recorded.fact, UpdateApplied)
    ] == found[::-1]
    whole = (
        sum(len(path.read_bytes()) for _, path in segments(tmp_path))
        - (tmp_path / segments(tmp_path)[1].path).stat().st_size
    )
    assert end(tmp_path) == whole + note.bytes == follower.offset


def test_a_record_is_gone_on_with_in_its_last_file(tmp_path: Path) -> None:
    record = begin(tmp_path)
    apply(record, 1, 60)
    record.close(None)
    with segments(tmp_path)[-1].path.open("ab") as file:
        file.write(b'{"t": 1.5, "kin')
    record = writer(tmp_path, append=True)
    assert record.size == end(tmp_path)
    apply(record, 61, 70)
    record.close(None)
    assert len(segments(tmp_path)) > 2
    assert versions(RunRecord(tmp_path)) == list(range(1, 71))


def test_without_a_limit_there_is_one_file(tmp_path: Path) -> None:
    record = RecordWriter(tmp_path, "")
    record.write(0.0, started(None, 0.0))
    apply(record, 1, 2000)
    record.close(None)
    assert [path.name for _, path in segments(tmp_path)] == [FACTS]


def test_a_reader_that_fell_behind_goes_on_after_what_is_missing(tmp_path: Path) -> None:
    record, follower = begin(tmp_path), Follower(tmp_path, UpdateApplied)
    apply(record, 1, 60)
    assert len(list(follower.poll())) == 60
    apply(record, 61, 2000)
    found = [recorded.fact.version for recorded in follower.poll()]
    assert found == list(range(found[0], 2001))
    assert found[0] > 1000
    assert list(follower.poll()) == []
    apply(record, 2001, 2001)
    assert [recorded.fact.version for recorded in follower.poll()] == [2001]
    record.close(None)


def test_updates_that_a_restart_made_void_stay_void_when_the_restart_is_missing(tmp_path: Path) -> None:
    record = begin(tmp_path)
    first = next(n for n in range(1, 100) if apply(record, n, n) or len(segments(tmp_path)) > 1)
    record.write(0.01 * first, ServerResumed(0, 3, first - 3))
    apply(record, 4, 2000, t=1.0)
    record.close(None)
    run = RunRecord(tmp_path)
    ((_, note, _),) = run.facts(FactsDropped)
    assert note.version == 3
    assert not list(run.facts(ServerResumed))
    found = versions(run)
    assert found[:3] == [1, 2, 3]
    assert found[3:] == list(range(found[3], 2001))
    assert found[3] > 1000


def test_merging_time_and_again_keeps_what_was_dropped_since(tmp_path: Path) -> None:
    record = begin(tmp_path / "0")
    for n in range(40):
        apply(record, 20 * n + 1, 20 * (n + 1))
        record.write(0.2 * (n + 1), judged(20 * (n + 1), 0.5))
        merge([tmp_path / "0"], tmp_path / "all")
    record.close(None)
    run = RunRecord(tmp_path / "all")
    assert versions(run) == list(range(1, 801))
    assert not list(run.facts(FactsDropped))
    assert [fact.updates for _, fact, _ in run.facts(Evaluated)][-1] == 800
    merge([tmp_path / "0"], tmp_path / "once")
    assert len(list(RunRecord(tmp_path / "once").facts(FactsDropped, RunStarted))) == 2


def test_a_merge_that_fell_behind_begins_anew(tmp_path: Path) -> None:
    record = begin(tmp_path / "0")
    apply(record, 1, 60)
    record.write(0.6, judged(60, 0.5))
    merge([tmp_path / "0"], tmp_path / "all")
    apply(record, 61, 2000)
    record.write(20.0, judged(2000, 0.5))
    merge([tmp_path / "0"], tmp_path / "all")
    record.close(None)
    merge([tmp_path / "0"], tmp_path / "anew")
    assert (tmp_path / "all" / FACTS).read_bytes() == (tmp_path / "anew" / FACTS).read_bytes()
