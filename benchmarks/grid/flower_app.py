"""A Flower app with its own optimiser and learning rate, which ignores the server's rate."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from torch import nn

from spyker.tasks.built_in.digits import read
from spyker.tasks.built_in.models import digits_cnn

RATE, MOMENTUM, BATCH = 0.05, 0.9, 32


def first_model() -> list[np.ndarray]:
    torch.manual_seed(1)
    return arrays(digits_cnn())


def arrays(model: nn.Module) -> list[np.ndarray]:
    return [value.detach().numpy().copy() for value in model.state_dict().values()]


class Digits(NumPyClient):
    """Return a client with its part of the digits, a fifth of it for evaluation."""

    def __init__(self, part: int, parts: int, epochs: int) -> None:
        images, labels, _ = read()
        mine = np.arange(part, len(labels), parts)
        held_out = len(mine) // 5
        self.epochs, self.model = epochs, digits_cnn()
        inputs = torch.from_numpy(images[mine] / 16).float().unsqueeze(1)
        targets = torch.from_numpy(labels[mine]).long()
        self.test = inputs[:held_out], targets[:held_out]
        self.train = inputs[held_out:], targets[held_out:]

    def load(self, parameters: list) -> None:
        names = self.model.state_dict()
        self.model.load_state_dict({n: torch.tensor(p) for n, p in zip(names, parameters, strict=True)})

    def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
        self.load(parameters)
        optimiser = torch.optim.SGD(self.model.parameters(), RATE, MOMENTUM)
        inputs, targets = self.train
        for _ in range(self.epochs):
            for batch in torch.randperm(len(targets)).split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(self.model(inputs[batch]), targets[batch]).backward()
                optimiser.step()
        return arrays(self.model), len(targets), {}

    def evaluate(self, parameters: list, config: dict) -> tuple[float, int, dict]:
        self.load(parameters)
        inputs, targets = self.test
        with torch.no_grad():
            outputs = self.model(inputs)
        loss = float(nn.functional.cross_entropy(outputs, targets))
        return loss, len(targets), {"accuracy": float((outputs.argmax(1) == targets).float().mean())}


def client_fn(context: Context) -> Client:
    here = context.node_config
    return Digits(here["partition-id"], here["num-partitions"], int(context.run_config["epochs"])).to_client()


app = ClientApp(client_fn=client_fn)
