"""A federation of a Flower app whose clients find their own table, which nobody else can read, in the node config."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'spyker-fl[flower]'")
from accounts import NEEDS_ACCOUNTS, SIZES, accounts, emulate, federate, final_accuracy, reachable

APP = """
import csv

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

NAMES = TABLES
app, server = ClientApp(), ServerApp()


def network():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def received(message, context):
    net = network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    here = context.node_config  # data: what the client's owner gives; tables: where an emulation finds those of all
    path = here["data"] if "data" in here else f"{here['tables']}/{NAMES[here['partition-id']]}/table.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    inputs = torch.tensor(np.array([[float(row[f"p{i}"]) for i in range(64)] for row in rows], np.float32) / 16)
    labels = torch.tensor([int(row["digit"]) for row in rows])
    held_out = torch.arange(len(rows)) % 5 == 0
    return net, (inputs[~held_out], labels[~held_out]), (inputs[held_out], labels[held_out])


@app.train()
def train(message, context):
    net, (inputs, labels), _ = received(message, context)
    optimiser = torch.optim.SGD(net.parameters(), lr=message.content["config"]["lr"])
    for _ in range(2):
        for batch in torch.randperm(len(labels)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(inputs[batch]), labels[batch]).backward()
            optimiser.step()
    arrays, metrics = ArrayRecord(net.state_dict()), MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    net, _, (inputs, labels) = received(message, context)
    with torch.no_grad():
        accuracy = float((net(inputs).argmax(1) == labels).float().mean())
    metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    FedAvg().start(grid, ArrayRecord(network().state_dict()), train_config=ConfigRecord({"lr": 0.2}))
"""

pytestmark = NEEDS_ACCOUNTS


def test_an_app_reads_tables_that_only_their_owners_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with accounts() as everybody:
        folder = everybody.folder
        if not reachable(folder):
            pytest.skip("needs a repository and an interpreter that other accounts can read")
        (folder / "code").mkdir()
        (folder / "code" / "records_app.py").write_text(APP.replace("TABLES", repr(tuple(SIZES))))
        monkeypatch.syspath_prepend(str(folder / "code"))
        settings = ("task.server=records_app:server", "task.metric=accuracy", "evaluation.by=clients")
        app = ["--flower", "records_app:app", *(word for setting in settings for word in ("--set", setting))]
        deployed = final_accuracy(federate(everybody, *app))
        emulated = final_accuracy(emulate(everybody, {"task.node-config": f'tables="{folder}"'}))
        assert deployed > 0.8, "the clients learn"
        assert abs(deployed - emulated) <= 0.015, (deployed, emulated)
