"""Files that somebody else wrote end in a result or in a message with an exit code, whatever is in them."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import SCENARIO as SCENARIO_TEXT
from recording import applied, judged, started, write

from spyker.cli.codes import BAD_INPUT
from spyker.cli.main import main
from spyker.dashboard.report import report
from spyker.errors import CheckpointError, RecordError, UsageError
from spyker.net.checkpoints import Checkpoints
from spyker.net.model_export import read_saved
from spyker.protocol.facts import ClientReported
from spyker.records import (
    FACTS,
    SCENARIO,
    SUMMARY,
    InitialModelLoaded,
    MetricEvaluated,
    UnknownFact,
    fields,
    read,
    read_back,
)
from spyker.records.lines import jsonable
from spyker.records.model_files import MODEL
from spyker.tasks.initial_model import InitialModelFile
from spyker.tasks.layout import Layout

ESCAPE = "\x1b]0;owned\x07"
SPARSE = 1 << 40  # bytes; no file system here has that many
DEEP = 100_000
HOSTILE_NAMES = ("../../evil", "/etc/evil", "a$b$\\frac{", "[/b]", "", "\x00", ESCAPE, "x" * 250, "..")
COMMANDS = ("report", "plot", "merge", "export")


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(SPARSE)


def deep_json(path: Path) -> None:
    path.write_text('{"t": 0, "kind": "x", "a": ' + "[" * DEEP + "]" * DEEP + "}")


def deep_toml(path: Path) -> None:
    path.write_text("a = " + "[" * DEEP + "]" * DEEP)


def nearly_too_deep_toml(path: Path) -> None:
    path.write_text("a = " + "[" * 300 + "]" * 300)  # tomllib reads it, and copy.deepcopy would not copy it


def many_dots(path: Path) -> None:
    path.write_text(".".join("a" * 50_000) + " = 1")


def not_utf8(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\n")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    facts = [(1.0, applied(0, 1)), (2.0, judged(1, 0.5)), (3.0, judged(2, 0.6))]
    return write(tmp_path / "record", started(), facts, {"finished": True})


def run(command: str, record: Path) -> int:
    return main([command, str(record), "--out", str(record.parent / "out" / command)])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((FACTS, make) for make in (fifo, sparse, deep_json, not_utf8)),
        *((SUMMARY, make) for make in (fifo, sparse, deep_json, not_utf8)),
        *((SCENARIO, make) for make in (fifo, sparse, deep_toml, nearly_too_deep_toml, many_dots, not_utf8)),
        *((MODEL, make) for make in (fifo, sparse, deep_json, not_utf8)),
    ],
)
def test_a_record_with_any_file_ends_in_a_result_or_a_message(
    command: str, name: str, make: Callable[[Path], None], record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record.parent / "out").mkdir()
    make(record / name)
    code = run(command, record)
    assert code in (0, BAD_INPUT)
    if code:
        assert capsys.readouterr().err.startswith("spyker: ")


@pytest.mark.parametrize("make", [fifo, sparse, deep_toml, nearly_too_deep_toml, many_dots, not_utf8])
@pytest.mark.parametrize("command", ["run", "serve", "join"])
def test_a_settings_file_of_any_kind_ends_in_a_message(
    make: Callable[[Path], None], command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / {"run": SCENARIO, "serve": "server.toml", "join": "client.toml"}[command]
    make(file)
    assert main([command, str(file)]) == BAD_INPUT
    assert capsys.readouterr().err.startswith(f"spyker: {file}: ")


def test_an_endless_line_of_facts_is_refused_forwards_and_backwards(record: Path) -> None:
    sparse(record / FACTS)
    assert next(read(record)).fact == started(), "what comes before it can be read"
    for facts in (read, read_back):
        with pytest.raises(RecordError, match="A line is longer than"):
            list(facts(record))


# --- Names ------------------------------------------------------------------------------------------------------------


def with_names(folder: Path, name: str, title: str = "Spyker") -> Path:
    """A record with a metric of this name, a further one and a client's report of another."""
    measured = MetricEvaluated(f"{name}-2", True, 0.5, 0.5, 0.5, 0.5, [0.5])
    facts = [
        (1.0, ClientReported(0, 0, 1, 4, {f"{name}/3": 0.5})),
        (2.0, judged(1, 0.5)),
        (2.0, measured),
        (3.0, judged(2, 0.6)),
    ]
    return write(folder, started(metric=name, title=title), facts, {"finished": True, "metrics": {}, "reported": {}})


@pytest.mark.parametrize("name", ["../../evil", "a$b$\\frac{", "[/b]", "\x00"])
def test_plots_are_written_to_the_output_folder_only(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = tmp_path / "a" / "b" / "out"
    assert main(["plot", str(with_names(tmp_path / "record", name)), "--out", str(inside)]) == 0
    written = [path for path in tmp_path.rglob("*.png") if path.parent != tmp_path / "record"]
    assert len(written) == 5, "one per picture: no name replaces another"
    assert {path.parent for path in written} == {inside}
    assert "\x1b" not in capsys.readouterr().out


def test_no_escape_sequence_of_a_record_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = with_names(tmp_path / f"rec{ESCAPE}", "accuracy", title=f"Spyker{ESCAPE}\u202e")
    for args in (["plot", str(record)], ["plot", str(record), "--json"], ["plot", str(record / ESCAPE)]):
        main(args)
        shown = "".join(capsys.readouterr())
        assert "owned" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
        if "--json" in args:
            assert json.loads(shown)["runs"][0]["folder"] == str(record), "an escape reads as the same character"


def test_a_file_name_that_is_not_utf8_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(tmp_path / "\udcff")]) == BAD_INPUT
    assert "\\udcff" in capsys.readouterr().err


def test_names_in_a_report_are_text_and_add_no_command(tmp_path: Path) -> None:
    attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    record = with_names(tmp_path / "record", attack, title=attack)
    with (record / FACTS).open("a") as file:
        table = jsonable(fields(InitialModelLoaded("model\nrm -rf ~", "0")))
        file.write(json.dumps({"t": 4.0, "kind": InitialModelLoaded.kind, **table}) + "\n")
    page = report([record])
    assert "<script>alert" not in page
    assert "<img" not in page
    commands = page.split("<pre>")[1].split("</pre>")[0].splitlines()
    assert [line for line in commands if line.startswith("rm")] == ["rm -rf ~&#x27;"], "only within quotation marks"
    assert commands[0] == "# initial model: model rm -rf ~, SHA-256 0"


# --- Any value in any place -------------------------------------------------------------------------------------------

VALUES = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        2**40,
        2**62,
        10**30,
        10**400,
        1e300,
        -1e300,
        1e-320,
        [],
        {},
        [[]],
        [None],
        {"a": 1},
        [-5, 1e308],
    ]
) | st.sampled_from(HOSTILE_NAMES)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a table."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def replaced(table: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The table with another value at one place."""
    table = copy.deepcopy(table)
    *parents, last = path
    inner = table
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return table


WORLD = {"clients": [2, 2], "latency-ms": [[1.0, 2.0], [2.0, 1.0]]}
TABLE = {
    "algorithm": "spyker",
    "duration": 9.0,
    "world": WORLD,
    "evaluation": {"by": "both"},
    "spyker": {"h-inter": 3.0},
}


def lines() -> list[dict[str, Any]]:
    """The facts of a short run, of all kinds that are shown."""
    facts = [
        (0.0, started()),
        (1.0, applied(0, 1)),
        (1.0, ClientReported(0, 1, 1, 4, {"training loss": 0.5})),
        (1.5, UnknownFact("quarantine", {"server": 0, "client": 1, "reason": "norm", "seconds": 3.0})),
        (1.6, UnknownFact("token", {"server": 0, "bid": 1})),
        (1.7, UnknownFact("sync", {"server": 0, "bid": 1})),
        (1.8, UnknownFact("server-resumed", {"server": 0, "version": 1, "lost_updates": 1})),
        (2.0, judged(1, 0.5)),
        (2.0, MetricEvaluated("loss", False, 0.5, 0.5, 0.5, 0.5, [0.5])),
        (3.0, judged(2, 0.6)),
    ]
    return [{"t": t, "kind": fact.kind, **jsonable(fields(fact))} for t, fact in facts]


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_place_of_a_record_ends_in_a_report_or_a_message(data: st.DataObject, tmp_path: Path) -> None:
    facts, scenario, summary = lines(), TABLE, {"finished": True, "metrics": {}, "reported": {}, "synchronisations": 3}
    for _ in range(data.draw(st.integers(1, 3))):
        which = data.draw(st.integers(-3, len(facts) - 1))
        value = data.draw(VALUES)
        if which == -1:
            scenario = replaced(
                scenario, data.draw(st.sampled_from([*places(scenario)])), 0 if value is None else value
            )
        elif which == -2:
            summary = replaced(summary, data.draw(st.sampled_from([*places(summary)])), value)
        else:
            which = max(which, 0)  # the first fact is drawn twice as often
            facts[which] = replaced(facts[which], data.draw(st.sampled_from([*places(facts[which])])), value)
    write_tables(tmp_path / "any", facts, scenario, summary)
    with contextlib.suppress(RecordError):
        report([tmp_path / "any"])


@pytest.mark.parametrize(
    ("table", "path", "value"),
    [
        ("scenario", ("world", "clients"), ["x", 2]),
        ("scenario", ("duration",), 1e-320),
        ("first fact", ("clients",), 2**40),
        ("first fact", ("servers", 0, "id"), 7),
        ("first fact", ("server",), -1),
        ("last fact", ("t",), 10**400),
        ("last fact", ("mean",), 10**400),
    ],
    ids=str,
)
def test_values_that_once_ended_a_report_with_a_traceback(
    table: str, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    facts, scenario = lines(), TABLE
    if table == "scenario":
        scenario = replaced(scenario, path, value)
    else:
        which = 0 if table == "first fact" else -1
        facts[which] = replaced(facts[which], path, value)
    write_tables(tmp_path / "any", facts, scenario, {"finished": True})
    with contextlib.suppress(RecordError):
        report([tmp_path / "any"])


def write_tables(folder: Path, facts: list[dict[str, Any]], scenario: dict[str, Any], summary: dict[str, Any]) -> None:
    """Write a record of any content."""
    folder.mkdir(exist_ok=True)
    (folder / FACTS).write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    (folder / SUMMARY).write_text(json.dumps(summary))
    (folder / SCENARIO).write_text("\n".join(f"{key} = {inline(value)}" for key, value in scenario.items()))


def inline(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(each) for each in value if each is not None) + "]"
    return json.dumps(value)


# --- Models and checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}},  # a type that models do not have
        {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 10**18]}},
        {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
        {"__metadata__": {"task": ESCAPE}, ESCAPE: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    ],
    ids=str,
)
def test_a_model_with_any_header_ends_in_a_file_or_a_message(
    header: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    (record / SCENARIO).write_text(SCENARIO_TEXT)
    content = json.dumps(header).encode()
    (record / MODEL).write_bytes(struct.pack("<Q", len(content)) + content + bytes(8))
    assert run("export", record) in (0, BAD_INPUT)
    with pytest.raises(UsageError):
        InitialModelFile(record / MODEL).fit(Layout(("b",), ((2,),)))
    assert "\x1b" not in "".join(capsys.readouterr())


LAYOUT = {"names": ["a"], "shapes": [[4]], "digest": "0"}
NUMBERS = {"id": 0, "server": {"age": 1.0, "version": 2}, "layout": LAYOUT}


@pytest.mark.parametrize("path", [*places(NUMBERS)], ids=str)
@pytest.mark.parametrize("value", [None, "x", -1, 2**70, [], {}, [["x"]]], ids=str)
def test_a_checkpoint_with_any_numbers_ends_in_a_model_or_a_message(
    path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path / "state", keep=1)
    checkpoints.save(replaced(NUMBERS, path, value), {"weights": np.zeros(4, np.float32)})
    checkpoints.close()
    with contextlib.suppress(CheckpointError):
        saved = read_saved(tmp_path / "state")
        assert saved.layout.parts(saved.weights).keys() == set(saved.layout.names)
