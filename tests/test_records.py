import json
from pathlib import Path

import pytest

from spyker.protocol.facts import SyncStarted, UpdateApplied
from spyker.records import Evaluated, RecordError, RecordWriter, Run, clear, find_runs, line, write_atomically

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
    run = Run(tmp_path / "run")
    assert run.algorithm == "spyker"
    assert run.summary == {"updates": 9}
    assert [fact["kind"] for fact in run.facts()] == ["sync", "evaluation"]
    assert next(run.facts("evaluation"))["servers"] == [0.4, 0.6]


def test_facts_are_on_disk_at_every_evaluation(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n')
    writer.write(0.5, UPDATE, 1)
    writer.write(1.0, EVALUATED)
    assert [fact["kind"] for fact in Run(tmp_path / "run").facts()] == ["update", "evaluation"]  # not closed yet
    writer.close(None)


def test_a_killed_run_is_readable_without_its_summary_and_its_torn_last_line(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n')
    writer.write(1.0, EVALUATED)
    writer.close(None)
    with (tmp_path / "run" / "facts.jsonl").open("a") as file:
        file.write('{"t": 1.5, "kind": "upd')
    run = Run(tmp_path / "run")
    assert run.summary is None
    assert [fact["kind"] for fact in run.facts()] == ["evaluation"]


def test_damaged_lines_say_nothing_against_the_others(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n', at_once=True)
    writer.write(0.5, SyncStarted(1, 2))
    facts = tmp_path / "run" / "facts.jsonl"
    with facts.open("ab") as file:
        file.write(b'{"t": 0.6, "kind": "evaluation", "mean": nan}\n{"t": \xff}\n\x00\x00\n17\n')
    writer.write(1.0, EVALUATED)
    writer.close(None)
    run = Run(tmp_path / "run")
    assert [fact["kind"] for fact in run.facts()] == ["sync", "evaluation"]
    found = run.last_fact("sync", "update")
    assert found is not None
    assert found["bid"] == 2
    assert run.last_fact("update") is None


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
        clear(tmp_path / "run", overwrite=False)
    assert (tmp_path / "run" / "scenario.toml").read_text() == "seed = 1\n"
    clear(tmp_path / "run", overwrite=True)
    RecordWriter(tmp_path / "run", "seed = 2\n").close({})
    assert (tmp_path / "run" / "scenario.toml").read_text() == "seed = 2\n"


def test_overwriting_spares_what_is_not_a_record(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordError, match="not a run record"):
        clear(tmp_path, overwrite=True)
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
    assert [run.algorithm for run in find_runs(tmp_path)] == ["a", "b"]
    assert [run.algorithm for run in find_runs(tmp_path / "b")] == ["b"]
    with pytest.raises(RecordError, match="holds no run"):
        find_runs(tmp_path / "nowhere")
