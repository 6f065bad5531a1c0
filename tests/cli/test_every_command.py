"""What holds for all commands, those of tomorrow included: examples that can be typed, ``--json``, ``--quiet``."""

import argparse
import ast
import inspect
import json
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from recording import applied, started, write

from spyker.cli.help import HEADING, Parser, parse
from spyker.cli.main import COMMANDS, INSTALLED, WITHOUT_QUIET, main, parser
from spyker.records import Evaluated, RunRecord

WITHOUT_A_TABLE = {
    "scenario",
    "merge",
    "serve",
    "join",
    "export",
    "replay",
    "race",
    "dash",
    "report",
    "federation add-client",
    "federation remove-client",
    "federation add-server",
    "federation renew",
}
"""Commands that print words, files or logs alone. Any other must have ``--json``."""
EVERY = COMMANDS | {entry.name: entry.value for entry in entry_points(group=INSTALLED)}
ACTIONS = {"federation": ("create", "add-client", "remove-client", "add-server", "list", "renew")}
"""Commands with subcommands."""
LEAVES = [(name, *action) for name in EVERY for action in ([(each,) for each in ACTIONS.get(name, ())] or [()])]
"""All commands, and all subcommands of those that have some."""
QUICK = ["--task", "quadratic", "--duration", "3"]


@pytest.fixture(scope="module")
def root() -> Parser:
    return parser()


def test_they_are_all_there(root: Parser) -> None:
    assert set(root.commands) == set(EVERY)
    assert {name: tuple(found.commands) for name, found in root.commands.items() if found.commands} == ACTIONS


def leaf(root: Parser, words: tuple[str, ...]) -> Parser:
    """The parser of a command or a subcommand."""
    for word in words:
        root = root.commands[word]
    return root


def examples_of(parser: Parser) -> list[str]:
    text = parser.epilog or ""
    return [line.strip() for line in text.removeprefix(HEADING).splitlines()] if text.startswith(HEADING) else []


@pytest.mark.parametrize("words", [*LEAVES, *((name,) for name in ACTIONS)], ids=" ".join)
def test_its_help_has_examples_that_it_understands(
    root: Parser, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = examples_of(leaf(root, words))
    assert lines, f"spyker {' '.join(words)}: call spyker.cli.help.examples where its options are declared"
    for line in lines:
        typed = shlex.split(line.partition("  # ")[0].partition(" > ")[0])
        assert typed[: 1 + len(words)] == ["spyker", *words], line
        if "--help" not in typed:
            assert parse(root, typed[1:]).command is not None
    with pytest.raises(SystemExit):
        leaf(root, words).parse_args(["--help"])
    assert all(line in capsys.readouterr().out for line in lines[:1])


def test_the_program_itself_has_some(root: Parser) -> None:
    assert all(line.startswith("spyker ") for line in examples_of(root))
    assert examples_of(root)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_who_prints_a_table_has_json_and_all_can_be_quiet(root: Parser, words: tuple[str, ...]) -> None:
    found, name = leaf(root, words), " ".join(words)
    options = found.options
    assert ("--json" in options) == (name not in WITHOUT_A_TABLE), "call spyker.cli.output.add_json"
    assert ("--quiet" in options) == (name not in WITHOUT_QUIET)
    (quiet,) = [each for each in found._actions if "--quiet" in each.option_strings] or [None]
    assert quiet is None or ("--json" in str(quiet.help)) == ("--json" in options)
    if "--json" in options:
        command = found.get_default("command")
        assert "args.answer =" in inspect.getsource(sys.modules[command.__module__]), "leave the numbers in args.answer"


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_option_is_explained(root: Parser, words: tuple[str, ...]) -> None:
    for action in leaf(root, words)._actions:
        assert action.help, f"spyker {' '.join(words)} {action.option_strings or action.metavar}"
        assert action.help is not argparse.SUPPRESS


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_nobody_prints_a_table_without_json() -> None:
    for place in (*COMMANDS.values(), "spyker.cli.federation_create"):
        module = sys.modules[place.partition(":")[0]]
        assert module.__file__ is not None
        found = set(calls(Path(module.__file__)))
        if found & {"print_table", "show_table", "show_run"}:
            assert "add_json" in found, module.__name__
        assert "Table" not in found, f"{module.__name__}: print_table makes tables"


def test_run_and_plot_and_compare_speak_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--out", "a", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert (run["folder"], run["algorithm"], run["metric"], run["finished"]) == ("a", "stride", "covered", True)
    assert run["updates"] > 100
    assert [hit["target"] for hit in run["reached"]] == [0.9, 0.95]
    assert run["final"] == list(RunRecord(tmp_path / "a").facts(Evaluated))[-1].fact.mean
    assert main(["plot", "a", "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert drawn["runs"] == [run]
    assert all(Path(picture).exists() for picture in drawn["pictures"])
    assert main(["compare", *QUICK, "--algorithms", "stride,fedavg", "--out", "b", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert [run["algorithm"] for run in json.loads(out)["runs"]] == ["stride", "fedavg"]
    assert err == ""


def test_sweeps_and_lists_speak_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *QUICK, "--vary", "training.rate=0.1,0.2", "--jobs", "1", "--out", "s", "--json"]) == 0
    swept = json.loads(capsys.readouterr().out)
    assert [row["training.rate"] for row in swept["runs"]] == [0.1, 0.2]
    assert all(0 < row["final covered"] <= 1 for row in swept["runs"])
    assert main(["data", "--json"]) == 0
    assert {entry["dataset"]: entry["available"] for entry in json.loads(capsys.readouterr().out)} == {
        "mnist": False,
        "cifar10": False,
        "wikitext2": False,
    }


def test_what_is_no_number_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    from spyker.cli.output import print_json

    print_json(argparse.Namespace(json=True, answer={"a": float("nan"), "b": Path("c")}))
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": "c"}


def test_quiet_says_nothing_unless_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--out", "a", "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["run", *QUICK, "--out", "a", "--quiet"]) == 2
    assert "a exists already" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["comapre"], "compare"),
        (["run", "--algoritm", "stride"], "--algorithm"),
        (["run", "--clinets=3"], "--clients"),
        (["data", "--partitoin", "iid"], "--partition"),
        (["run", "--task", "digit"], "digits"),
        (["run", "--set", "trainig.rate=1"], "training"),
        (["run", "--set", "training.ratte=1"], "rate"),
        (["run", "--set", "task.partitoin=iid"], "partition"),
    ],
)
def test_a_misspelt_word_is_guessed(capsys: pytest.CaptureFixture[str], args: list[str], meant: str) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert f"Did you mean {meant!r}?" in err
    assert (out, err.count("\n")) == ("", 1)


def test_merge_leaves_out_a_server_that_has_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "0", started(0, 1000.0), [(1.0, applied(0, 1))])
    (tmp_path / "1").mkdir()
    assert main(["merge", str(tmp_path / "0"), str(tmp_path / "1"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / '1'} is left out: its server has not started yet" in said
    assert "only 1 of 2 servers" in said
