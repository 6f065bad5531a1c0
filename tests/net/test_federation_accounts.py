"""A federation whose servers have neither PyTorch nor data, and whose clients read only their own table.

Each process runs under its own user account. Three servers and nine clients, among them one that is killed, one that
joins late, one with a class that nobody else has, one with a missing column and one with a full disk.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from accounts import BROKEN, NEEDS_ACCOUNTS, SERVERS, SIZES, accounts, reachable, write_tables
from deployment import until

import spyker
from spyker.cli.main import main
from spyker.net.local_cluster import free_ports

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

pytestmark = NEEDS_ACCOUNTS


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
