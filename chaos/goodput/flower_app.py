"""Flower's side of the comparison: a ClientApp and a ServerApp with FedAvg. They run in Flower's environment.

``flower.py`` copies this module and ``digits.py`` into an app. After each round the ServerApp saves the model beside
the SuperLink's database, and begins with the saved one, as Flower's documentation advises for runs that are resumed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from . import digits

ROUNDS = 1_000_000  # until the processes are ended

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train for as long as the pace says."""
    began, config = time.monotonic(), context.run_config
    images, labels = digits.read(config["data"], int(context.node_config["partition-id"]))
    weight, bias = message.content["arrays"].to_numpy_ndarrays()
    model = digits.train({"weight": weight, "bias": bias}, images, labels, float(config["rate"]))
    time.sleep(max(0.0, began + float(config["training"]) - time.monotonic()))
    content = {
        "arrays": ArrayRecord([model["weight"], model["bias"]]),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Counting(FedAvg):  # type: ignore[misc]
    """FedAvg that counts the updates of each round."""

    updates = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Count the replies that have content."""
        replies = list(replies)
        self.updates = sum(reply.has_content() for reply in replies)
        return super().aggregate_train(server_round, replies)


@server_app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Train from the last saved model on."""
    config = context.run_config
    saved, log = Path(str(config["state"])) / "model.npz", Path(str(config["log"]))
    model, total = digits.initial(), 0
    if saved.exists():
        with np.load(saved) as data:
            model, total = {"weight": data["weight"], "bias": data["bias"]}, int(data["total"])
    test = digits.read(str(config["data"]), "test")
    strategy = Counting(
        fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=int(config["nodes"])
    )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal total
        weight, bias = arrays.to_numpy_ndarrays()
        score = digits.accuracy({"weight": weight, "bias": bias}, *test)
        total += strategy.updates
        entry = {"at": time.time(), "updates": strategy.updates, "total": total, "score": score}
        strategy.updates = 0
        if server_round:
            draft = saved.with_name("draft.npz")
            np.savez(draft, weight=weight, bias=bias, total=total)
            draft.replace(saved)
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return MetricRecord({"accuracy": score})

    strategy.start(
        grid,
        ArrayRecord([model["weight"], model["bias"]]),
        num_rounds=ROUNDS,
        timeout=float(config["timeout"]),
        evaluate_fn=evaluate,
    )
