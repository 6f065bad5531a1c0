"""Federations whose processes run under user accounts of their own, and in which several things go wrong.

Three servers without PyTorch and nine clients, each with a table that only its account can read. One client is killed
and restarted, one joins late, one has a class that nobody else has, one lacks a column and one has a full disk.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment import until

import spyker
from spyker.cli.main import main
from spyker.net.local_cluster import free_ports
from spyker.tasks.built_in.digits import stored

REPOSITORY = Path(__file__).parents[2]
SERVER = REPOSITORY / ".venv" / "release" / "server" / "bin" / "spyker"
FIRST_ACCOUNT = 61_000
SERVERS = ("paris", "tokyo", "boston")
SIZES = {"charite": 140, "mayo": 240, "ucl": 150, "karolinska": 260, "toronto": 160, "lyon": 100, "late": 180}
BROKEN = ("column", "disk")
SECONDS = 60  # of the emulated run
PATIENCE = 300.0  # seconds until something must have happened, on a machine with much else to do
MORE_UPDATES, MORE_SECONDS = 900, 30  # for which the servers continue after all clients have joined
SETTLED_SECONDS = 15  # at the end of a run, whose mean is compared
NEEDS_ACCOUNTS = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run processes under accounts of their own"),
    pytest.mark.skipif(not SERVER.exists(), reason="needs an environment without PyTorch: make server-env"),
]
"""For ``pytestmark``."""


def write_tables(folder: Path) -> None:
    """Deal the digits out: only one client has nines, and the table of one lacks a column."""
    images, labels = stored()
    order = np.random.default_rng(0).permutation(len(labels))
    nines, others = order[labels[order] == 9], iter(order[labels[order] != 9])
    for name, size in (SIZES | {"column": 60, "disk": 60}).items():
        which = [next(others) for _ in range(size)] + (list(nines) if name == "lyon" else [])
        columns = [f"p{i}" for i in range(64) if not (name == "column" and i == 7)]
        own = folder / name
        own.mkdir(mode=0o700)
        with (own / "table.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow([*columns, "digit"])
            for i in which:
                pixels = images[i].reshape(-1).astype(int)
                table.writerow([*(pixels[int(column[1:])] for column in columns), labels[i]])


class Accounts:
    """Processes under accounts of their own, each in a folder that only its account can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers: dict[str, int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, source: Path, program: list[str], *words: str) -> subprocess.Popen[bytes]:
        """Start a process; ``source`` is the folder that ``spyker federation create`` made for it."""
        account = self.numbers.setdefault(name, FIRST_ACCOUNT + len(self.numbers))
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        if not (home / "federation").exists():
            shutil.copytree(source, home / "federation")
        for path in (home, *home.rglob("*")):
            os.chown(path, account, account)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(self.folder / "code")}
        if program[0] == sys.executable:
            environment["PYTHONPATH"] += f":{REPOSITORY}"
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*program, *words],
                cwd=home,
                user=account,
                group=account,
                extra_groups=[],
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.running[name] = process
        return process

    def serve(self, name: str) -> None:
        self.start(name, self.folder / "federation" / f"server-{name}", [str(SERVER)], "serve", "federation")

    def join(self, name: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "spyker.cli.main"]
        source = self.folder / "federation" / f"client-{name}"
        return self.start(name, source, program, "join", "federation", "--data", "table.csv")

    def log(self, name: str, event: str) -> list[dict[str, Any]]:
        text = (self.folder / f"{name}.log").read_text("utf-8")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if line["event"] == event]

    def attending(self, *names: str) -> bool:
        return all(self.log(name, "attending") for name in names)

    def progress(self) -> tuple[int, int]:
        """Return the updates of all servers, and how often each has been evaluated, which is once per second."""
        found = [self.log(name, "evaluation") for name in SERVERS]
        return sum(lines[-1]["updates"] for lines in found if lines), min(map(len, found))

    def end(self, *names: str) -> None:
        """Stop processes as a service manager does, and wait until they have ended properly."""
        for name in names:
            self.running[name].send_signal(signal.SIGTERM)
        for name in names:
            assert self.running[name].wait(PATIENCE) == 0, (self.folder / f"{name}.log").read_text()[-2000:]


@contextlib.contextmanager
def accounts() -> Iterator[Accounts]:
    """A folder that all accounts can enter, and processes that end with the test."""
    folder = Path(tempfile.mkdtemp(prefix="spyker-accounts-"))
    folder.chmod(0o755)
    everybody = Accounts(folder)
    try:
        yield everybody
    finally:
        for process in everybody.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        subprocess.run(["umount", "-q", str(folder / "disk" / "federation" / "state")], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def reachable(folder: Path) -> bool:
    """Return whether another account can read the repository and its interpreter."""
    probe = [sys.executable, "-c", "import spyker, torch"]
    environment = {"PYTHONPATH": str(REPOSITORY), "HOME": str(folder)}
    try:
        done = subprocess.run(
            probe,
            cwd="/",
            user=FIRST_ACCOUNT,
            group=FIRST_ACCOUNT,
            extra_groups=[],
            env=environment,
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def federate(everybody: Accounts, *task: str) -> spyker.Run:
    """Create a federation, run it to its end with all that goes wrong, and return the merged run.

    Args:
        everybody: where the processes run; its folder ``code`` contains the task.
        task: arguments of ``spyker federation create`` that name the task, and its settings.

    """
    folder = everybody.folder
    write_tables(folder)
    ports = free_ports(2 * len(SERVERS))
    where = [f"--server={n}=127.0.0.1:{ports[2 * i]}/{ports[2 * i + 1]}" for i, n in enumerate(SERVERS)]
    clients = [f"--client={name}" for name in (*SIZES, *BROKEN)]
    settings = ("--set", "deploy.client-timeout=10")
    assert main(["federation", "create", *task, *where, *clients, *settings, "--out", str(folder / "federation")]) == 0
    (folder / "federation").chmod(0o755)

    for name in SERVERS:
        everybody.serve(name)
    until(lambda: all(everybody.log(name, "listening") for name in SERVERS), PATIENCE)
    disk = folder / "disk" / "federation"
    shutil.copytree(folder / "federation" / "client-disk", disk)
    (disk / "state").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=0777", "tmpfs", str(disk / "state")], check=True)
    (disk / "state" / "full").write_bytes(bytes(4096))
    early = [name for name in (*SIZES, *BROKEN) if name != "late"]
    for name in early:
        everybody.join(name)

    assert everybody.running["column"].wait(PATIENCE) != 0
    assert "p7" in (folder / "column.log").read_text(), "the missing column is named"
    until(lambda: everybody.attending(*(name for name in SIZES if name != "late")), PATIENCE)
    everybody.running["toronto"].send_signal(signal.SIGKILL)
    everybody.running["toronto"].wait()
    everybody.join("late")
    until(lambda: everybody.attending("late"), PATIENCE)
    killed = len(everybody.log("toronto", "attending"))
    everybody.join("toronto")  # its owner starts it again
    until(lambda: len(everybody.log("toronto", "attending")) > killed, PATIENCE)
    assert everybody.running["disk"].wait(PATIENCE) != 0
    assert "No space left" in (folder / "disk.log").read_text()
    updates, evaluations = everybody.progress()

    def settled() -> bool:
        now = everybody.progress()
        return now[0] >= updates + MORE_UPDATES and now[1] >= evaluations + MORE_SECONDS

    until(settled, PATIENCE)
    everybody.end(*SIZES)
    everybody.end(*SERVERS)
    for name in SERVERS:
        for path in (folder / f"{name}.log", *(folder / name).rglob("*")):
            assert not path.is_file() or b"table.csv" not in path.read_bytes(), f"{path} has a client's local option"

    records = [str(folder / name / "federation" / "record") for name in SERVERS]
    merged = folder / "deployed"
    assert main(["merge", *records, "--out", str(merged)]) == 0
    run = spyker.load(merged)
    assert isinstance(run, spyker.Run)
    return run


def emulate(everybody: Accounts, settings: dict[str, Any]) -> spyker.Run:
    """Emulate the federation with its seven clients that work; ``settings`` say where their tables are."""
    folder = everybody.folder
    return spyker.run(
        folder / "federation" / "scenario.toml",
        settings={
            "world.client-names": list(SIZES),
            "world.clients": [3, 2, 2],
            "duration": SECONDS,
            **settings,
        },
        out=folder / "emulated",
        progress=False,
    )


def final_accuracy(run: spyker.Run) -> float:
    """Return the mean of the clients' weighted accuracy over the end of a run."""
    column = run.client_curve["weighted_mean"]
    return float(column[column.index >= column.index.max() - SETTLED_SECONDS].mean())
