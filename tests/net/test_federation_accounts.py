"""A federation whose servers have neither PyTorch nor data, and whose clients read only their own table."""

from __future__ import annotations

import pytest
from accounts import NEEDS_ACCOUNTS, accounts, emulate, federate, final_accuracy, reachable

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


def test_tables_that_only_their_owners_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with accounts() as everybody:
        folder = everybody.folder
        if not reachable(folder):
            pytest.skip("needs a repository and an interpreter that other accounts can read")
        (folder / "code").mkdir()
        (folder / "code" / "records_task.py").write_text(TASK)
        monkeypatch.syspath_prepend(str(folder / "code"))
        task = ("records_task:Records", "--set", "training.rate=0.2", "--set", "training.epochs=2")
        deployed = final_accuracy(federate(everybody, *task))
        emulated = final_accuracy(
            emulate(everybody, {"task.client-options": {"data": str(folder / "{name}" / "table.csv")}})
        )
        assert abs(deployed - emulated) <= 0.015, (deployed, emulated)
