"""A client needs nothing that only POSIX has. Windows and macOS themselves are not tested."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import until
from test_federation import TASK, create, processes

from spyker.net.server_config import load_config

HELPER = Path(__file__).parents[1] / "helpers" / "without_posix.py"


def run_without_posix(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", "import asyncio, signal, without_posix\n" + program]
    environment = os.environ | {"PYTHONPATH": str(HELPER.parent)}
    return subprocess.run(words, capture_output=True, text=True, timeout=200, check=False, env=environment)


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


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc", "websocket"])
def test_a_client_trains_saves_its_state_and_continues(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_task.py").write_text(TASK, "utf-8")
    (tmp_path / "records.txt").write_text("1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert create(tmp_path / "f", task="my_task:Task", servers=1) == 0
    server = tmp_path / "f" / "server-paris" / "server.toml"
    address = load_config(server).deploy.listen_clients
    server.write_text(f'{server.read_text("utf-8")}\nlisten-websocket = "{address}"\n', "utf-8")
    folder, environment = tmp_path / "f" / "client-charite", os.environ | {"PYTHONPATH": "."}
    monkeypatch.setenv("PYTHONPATH", ".")
    words = [sys.executable, str(HELPER), "join", str(folder), "--data", "records.txt", "--transport", transport]

    def trainings() -> int:
        try:
            clients = json.loads((folder / "state" / "status.json").read_text("utf-8"))["clients"]
        except (FileNotFoundError, ValueError):
            return 0
        return int(clients[0]["trainings"])

    def trained_more(than: int, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None
        return trainings() > than

    with processes(tmp_path / "f") as started:
        started.start("serve", "server-paris")
        started.await_line("server-paris", "listening")
        first = subprocess.Popen(words, env=environment)
        started.running["first"] = first
        until(lambda: trained_more(2, first))
        second = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)
        assert second.returncode == 2, second.stderr
        assert "is in use by another process" in second.stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait(200) == 0
        before = trainings()
        third = subprocess.Popen(words, env=environment)
        started.running["third"] = third
        until(lambda: trained_more(before, third))
        assert started.updates("server-paris", 0) > 2
