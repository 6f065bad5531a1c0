"""Reading while somebody writes."""

import tracemalloc
from pathlib import Path

from recording import applied, judged, started, write

from spyker.protocol.facts import UpdateApplied
from spyker.records import FACTS, Follower, RecordWriter, RunRecord, follow, line


def versions(follower: Follower) -> list[int]:
    return [recorded.fact.version for recorded in follower.poll() if isinstance(recorded.fact, UpdateApplied)]


def test_a_follower_tells_everything_once(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "run")
    assert list(follower.poll()) == [], "there is no folder yet"
    writer = RecordWriter(tmp_path / "run", "", at_once=True)
    assert list(follower.poll()) == [], "and no fact"
    writer.write(0.0, started())
    writer.write(1.0, applied(0, 1), 3)
    assert [(t, fact.kind, queue) for t, fact, queue in follower.poll()] == [(0.0, "run", None), (1.0, "update", 3)]
    assert list(follower.poll()) == []
    writer.write(2.0, applied(0, 2))
    assert versions(follower) == [2]
    writer.close(None)


def test_a_follower_waits_for_the_end_of_a_line_that_a_restart_may_cut_off(tmp_path: Path) -> None:
    write(tmp_path / "run", started(), [(1.0, applied(0, 1))])
    follower = Follower(tmp_path / "run", UpdateApplied)
    assert versions(follower) == [1]
    text = line(2.0, applied(0, 2))
    with (tmp_path / "run" / FACTS).open("a") as file:
        file.write(text[:20])
    assert versions(follower) == []
    writer = RecordWriter(tmp_path / "run", "", at_once=True, append=True)
    assert versions(follower) == []
    writer.write(3.0, applied(0, 3))
    assert versions(follower) == [3]
    writer.close(None)
    with (tmp_path / "run" / FACTS).open("a") as file:
        file.write(text[:20])
        file.flush()
        assert versions(follower) == []
        file.write(text[20:])
    assert versions(follower) == [2]


def test_a_follower_goes_on_where_another_had_come_to(tmp_path: Path) -> None:
    write(tmp_path / "run", started(), [(float(v), applied(0, v)) for v in range(1, 6)])
    first = Follower(tmp_path / "run", UpdateApplied)
    news = first.poll()
    assert [next(news).t, next(news).t] == [1.0, 2.0]
    assert versions(Follower(tmp_path / "run", offset=first.offset)) == [3, 4, 5]


def test_lines_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    long = judged(1, 0.5).__class__(1, 2, 0.5, 0.5, 0.5, 0.5, [0.125] * 30_000)
    write(tmp_path / "run", started(), [(1.0, applied(0, 1)), (2.0, long), (3.0, applied(0, 2))])
    assert [recorded.fact for recorded in RunRecord(tmp_path / "run").facts()][1:] == [
        applied(0, 1),
        long,
        applied(0, 2),
    ]


def test_memory_does_not_grow_with_the_record(tmp_path: Path) -> None:
    write(tmp_path / "run", started(), [])
    with (tmp_path / "run" / FACTS).open("a") as file:
        file.writelines(line(1.0, applied(0, version), 3) for version in range(1, 30_001))
    tracemalloc.start()
    try:
        assert sum(1 for _ in Follower(tmp_path / "run").poll()) == 30_001
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000, "the file has four million bytes"


def test_following_ends_with_the_summary_and_tells_all_before_it(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", "", at_once=True)
    writer.write(0.0, started())
    told = follow(tmp_path / "run", UpdateApplied, pause=0.0)
    for version in range(1, 4):
        writer.write(1.0, applied(0, version))
        assert next(told).fact == applied(0, version)
    writer.write(1.0, applied(0, 4))
    writer.close({})
    assert [recorded.fact for recorded in told] == [applied(0, 4)]


def test_following_ends_when_told_to(tmp_path: Path) -> None:
    write(tmp_path / "run", started(), [(1.0, applied(0, 1))])
    asked = iter([False, True])
    told = follow(tmp_path / "run", UpdateApplied, stop=lambda: next(asked), pause=0.0)
    assert [recorded.t for recorded in told] == [1.0]
