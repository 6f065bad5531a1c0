"""A client needs nothing that only POSIX has. Windows and macOS themselves are not tested."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

LACKING = ("fcntl", "grp", "pwd", "resource", "termios")
WITHOUT_POSIX = f"""
import asyncio, signal, sys
sys.modules.update(dict.fromkeys({LACKING!r}))  # an import of one raises ModuleNotFoundError
def refuse(self, number, callback, *args):
    raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = refuse
"""


def run_without_posix(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + program], capture_output=True, text=True, timeout=120, check=False
    )


def without_posix(program: str) -> str:
    done = run_without_posix(program)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["spyker.cli.main", "spyker.net.client_process", "spyker.net.join_check"])
def test_what_a_client_runs_can_be_imported(module: str) -> None:
    assert without_posix(f"import {module}; print('imported')") == "imported\n"


def test_the_command_runs_until_it_finds_no_server(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('[task]\nname = "quadratic"\n', "utf-8")
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        words = ["join", str(scenario), "--server", address, "--clients", "0", "--insecure"]
        program = f"""
from spyker.cli.main import main
print(main({[*words, "--give-up", "0"]!r}))
"""
        done = run_without_posix(program)
    assert done.stdout == "1\n", done.stderr
    assert "no server has answered" in done.stderr


@pytest.mark.parametrize(("number", "finished"), [("SIGTERM", True), ("SIGINT", False)])
def test_a_signal_ends_a_client_process(number: str, finished: bool) -> None:
    """Clients say goodbye, and whoever pressed Ctrl-C learns that it was not the end of the training."""
    program = f"""
from spyker.net.client_process import ClientProcess
from spyker.net.json_log import JsonLog

class Link:
    id = 0
    def look_after(self): pass
    async def run(self):
        signal.raise_signal(signal.{number})
        await asyncio.Event().wait()
    async def leave(self): print("left", flush=True)

print(asyncio.run(ClientProcess([Link()], JsonLog()).run()))
"""
    assert without_posix(program) == f"left\n{finished}\n"
