"""A federation whose servers have neither PyTorch nor data, and whose clients read only their own table.

Each process runs under its own user account. Three servers and nine clients, among them one that is killed, one that
joins late, one with a class that nobody else has, one with a missing column and one with a full disk.
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
SECONDS = 60
TASK = """
import csv

import numpy as np
import spyker
from torch import nn


class Records(spyker.FederatedTask):
    def model(self):
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def data(self, client):
        with open(client.options["data"], newline="") as file:
            rows = list(csv.DictReader(file))
        inputs = np.array([[float(row[f"p{i}"]) for i in range(64)] for row in rows], np.float32) / 16
        return inputs, np.array([int(row["digit"]) for row in rows])
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run processes under accounts of their own"),
    pytest.mark.skipif(not SERVER.exists(), reason="needs an environment without PyTorch: make server-env"),
]


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
        self.folder, self.numbers = folder, {}  # type: ignore[var-annotated]
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


def test_tables_that_only_their_owners_can_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with accounts() as all_of_them:
        folder = all_of_them.folder
        if not reachable(folder):
            pytest.skip("needs a repository and an interpreter that other accounts can read")
        (folder / "code").mkdir()
        (folder / "code" / "records_task.py").write_text(TASK)
        write_tables(folder)
        monkeypatch.syspath_prepend(str(folder / "code"))
        ports = free_ports(2 * len(SERVERS))
        where = [f"--server={n}=127.0.0.1:{ports[2 * i]}/{ports[2 * i + 1]}" for i, n in enumerate(SERVERS)]
        clients = [f"--client={name}" for name in (*SIZES, *BROKEN)]
        settings = ("training.rate=0.2", "training.epochs=2", f"deploy.duration={SECONDS}", "deploy.client-timeout=10")
        chosen = [word for setting in settings for word in ("--set", setting)]
        create = ["federation", "create", "records_task:Records", *where, *clients, *chosen]
        assert main([*create, "--out", str(folder / "federation")]) == 0
        (folder / "federation").chmod(0o755)

        for name in SERVERS:
            all_of_them.serve(name)
        until(lambda: all(all_of_them.log(name, "listening") for name in SERVERS))
        disk = folder / "disk" / "federation"
        shutil.copytree(folder / "federation" / "client-disk", disk)
        (disk / "state").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=0777", "tmpfs", str(disk / "state")], check=True)
        (disk / "state" / "full").write_bytes(bytes(4096))
        early = [name for name in (*SIZES, *BROKEN) if name != "late"]
        for name in early:
            all_of_them.join(name)

        assert all_of_them.running["column"].wait(120) != 0
        assert "p7" in (folder / "column.log").read_text(), "the missing column is named"
        until(lambda: all(all_of_them.log(name, "attending") for name in SIZES if name != "late"))
        all_of_them.running["toronto"].send_signal(signal.SIGKILL)
        all_of_them.running["toronto"].wait()
        all_of_them.join("late")
        until(lambda: bool(all_of_them.log("late", "attending")))
        all_of_them.join("toronto")  # its owner starts it again
        assert all_of_them.running["disk"].wait(120) != 0
        assert "No space left" in (folder / "disk.log").read_text()
        for name in SERVERS:
            assert all_of_them.running[name].wait(SECONDS + 60) == 0, (folder / f"{name}.log").read_text()[-2000:]
        for name in SIZES:
            assert all_of_them.running[name].wait(200) == 0, (folder / f"{name}.log").read_text()[-2000:]

        records = [str(folder / name / "federation" / "record") for name in SERVERS]
        assert main(["merge", *records, "--out", str(tmp_path / "deployed")]) == 0
        deployed = settled(spyker.load(tmp_path / "deployed"))
        names = list(SIZES)
        emulated = spyker.run(
            folder / "federation" / "scenario.toml",
            settings={
                "task.client-options": {"data": str(folder / "{name}" / "table.csv")},
                "world.client-names": names,
                "world.clients": [3, 2, 2],
                "duration": SECONDS,
            },
            out=tmp_path / "emulated",
            progress=False,
        )
        assert abs(deployed - settled(emulated)) <= 0.015, (deployed, settled(emulated))


def settled(run: Any) -> float:
    """Return the mean of the clients' weighted accuracy over the last quarter of a run."""
    column = run.client_curve["weighted_mean"]
    return float(column[column.index >= 0.75 * column.index.max()].mean())
