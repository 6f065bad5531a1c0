"""Flower's side of the comparison; runs in its own environment, with Flower and without Spyker.

FedAvg in Flower's Ray simulation, all clients in every round, data in memory, the training loop as Flower's own
PyTorch examples write it; with BENCH_CHANNELS_LAST it lays out images as Spyker's engine does. The environment says
where the clients' data is, how many rounds to run and on how many cores. The client updates per second of the rounds
after the first end up beside the data.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

FOLDER = Path(os.environ["BENCH_FOLDER"])
ROUNDS, CORES = int(os.environ["BENCH_ROUNDS"]), int(os.environ["BENCH_CORES"])
LABELS = np.load(FOLDER / "labels.npy")
CLIENTS, EXAMPLES = LABELS.shape
LAYOUT = torch.channels_last if os.environ["BENCH_CHANNELS_LAST"] == "1" else torch.contiguous_format
CACHE: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


def data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    if client not in CACHE:
        images = np.load(FOLDER / "images.npy", mmap_mode="r")[client]
        CACHE[client] = (
            torch.from_numpy(np.ascontiguousarray(images)).contiguous(memory_format=LAYOUT),
            torch.from_numpy(LABELS[client]),
        )
    return CACHE[client]


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    client = int(context.node_config["partition-id"])
    if EXAMPLES:
        model = make_model().to(memory_format=LAYOUT)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        inputs, targets = data(client)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for batch in torch.randperm(len(targets)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimiser.step()
        arrays = ArrayRecord(model.state_dict())
    else:
        arrays = message.content["arrays"]
    metrics = MetricRecord({"num-examples": max(1, EXAMPLES)})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    marks: list[float] = []

    def mark(number: int, arrays: ArrayRecord) -> MetricRecord:
        marks.append(time.perf_counter())
        return MetricRecord({"round": number})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.start(grid, ArrayRecord(make_model().state_dict()), num_rounds=ROUNDS, evaluate_fn=mark)
    # marks: before the first round, after it, and after each of the others
    rate = CLIENTS * (ROUNDS - 1) / (marks[-1] - marks[1])
    (FOLDER / "flower-rate.txt").write_text(str(rate))


if __name__ == "__main__":
    import flower_app  # as a module, so that Ray sends its name, not its contents, with every task

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": CORES}}
    run_simulation(flower_app.server_app, flower_app.client_app, num_supernodes=CLIENTS, backend_config=resources)
