"""The scripts, in the shells that they are for."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from spyker.cli.main import main

CASES = [
    ("spyker co", {"compare", "completion"}),
    ("spyker run --algo", {"--algorithm"}),
    ("spyker run --algorithm fedas", {"fedasync", "fedasyncm"}),
    ("spyker run --json --task mn", {"mnist"}),
    ("spyker run --set training.ra", {"training.rate="}),
    ("spyker reproduce lat", {"latency"}),
    ("spyker data fetch cif", {"cifar10"}),
    ("spyker run --quiet my-w", {"my-world.toml"}),
    ("spyker run --out run", {"runs"}),
    ("spyker run --clients 1", set()),
]
COMMAS = ("spyker compare --algorithms stride,fedb", {"stride,fedbuff"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my-world.toml").write_text("")
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(shell: str, here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    (here / "script").write_text(capsys.readouterr().out)
    return here / "script"


def test_bash_completes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    file = script("bash", here, capsys)
    lines = [f"source {file}"]
    for line, _ in [*CASES, COMMAS]:
        words = line.split(" ")
        lines.append(f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _spyker 2>&1")
        lines.append('echo "${COMPREPLY[*]}"')
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=200)
    assert [set(found.split()) for found in done.stdout.splitlines()] == [found for _, found in [*CASES, COMMAS]]


def test_fish_completes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish")
    file = script("fish", here, capsys)
    for line, wanted in CASES:
        code = f"source {file}; complete -C {shlex.quote(line)}"
        done = subprocess.run(["fish", "-c", code], capture_output=True, text=True, timeout=200)
        assert done.stderr == ""
        assert {found.partition("\t")[0].rstrip("/") for found in done.stdout.splitlines()} == wanted, line


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_has_no_mistake(here: Path, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([shell, "-n", str(script(shell, here, capsys))], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_shell_gets_every_command_and_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spyker.cli.main import parser

    texts = {shell: script(shell, here, capsys).read_text() for shell in ("bash", "zsh", "fish")}
    for name, command in parser().commands.items():
        for option in command.options:
            for shell, text in texts.items():
                form = f"-l {option[2:]} " if shell == "fish" else option
                assert any(name in line and form in line + " " for line in text.splitlines()), (shell, name, option)
