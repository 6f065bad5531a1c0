"""Commands that other packages add, as entry points."""

from pathlib import Path

import pytest

from spyker.cli.main import main

OWN = """
def add_greet(commands):
    parser = commands.add_parser("greet", help="greet somebody")
    parser.add_argument("--name", choices=["you", "them"], default="you")
    parser.set_defaults(command=greet)

def greet(args):
    print(f"hello, {args.name}")
    return 0

def add_run(commands):
    raise AssertionError("a built-in command cannot be replaced")
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that announces commands."""
    (tmp_path / "own_commands.py").write_text(OWN)
    about = tmp_path / "greet_fl-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greet-fl\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[spyker.commands]\ngreet = own_commands:add_greet\nrun = own_commands:add_run\nlost = own_commands:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_installed_command_runs_and_has_what_every_command_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "--name", "them"]) == 0
    assert capsys.readouterr().out == "hello, them\n"
    assert main(["greet", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["greet", "--name", "thm"]) == 2
    assert "Did you mean 'them'?" in capsys.readouterr().err


def test_a_misspelt_one_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gret"]) == 2
    assert "Did you mean 'greet'?" in capsys.readouterr().err


def test_a_built_in_command_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "--algorithm" in capsys.readouterr().out


def test_one_that_cannot_be_imported_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lost"]) == 2
    assert 'COMMAND: "lost" cannot be imported' in capsys.readouterr().err
