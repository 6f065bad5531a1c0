"""A PyTorch task whose model writes to its parameters whenever it runs, evaluation included; data is loaded lazily."""

from typing import Any

import torch
from torch import nn

from spyker.tasks import torch_training
from spyker.tasks.federated_task import ClientInfo, FederatedTask

WORDS, LENGTH, LABELS = 12, 5, 3


class Renorming(FederatedTask):
    """Words, whose embeddings have a greatest norm, and BatchNorm."""

    def __init__(self, large: bool = True) -> None:
        """``large``: train it as a large model, with gradients of each parameter's own."""
        torch_training.LARGE = 0 if large else 1 << 30

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        words, width = nn.Embedding(WORDS, 8, max_norm=0.5), 8 * LENGTH
        return nn.Sequential(words, nn.Flatten(), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, LABELS))

    def _examples(self, seed: int, words: int = WORDS) -> Any:
        random = torch.Generator().manual_seed(seed)
        inputs = torch.randint(words, (24, LENGTH), generator=random)
        return inputs, inputs.sum(1) % LABELS

    def data(self, client: ClientInfo) -> Any:
        return self._examples(client.number, WORDS - 2)  # some words are in test data only

    def client_test(self, client: ClientInfo) -> Any:
        return self._examples(100 + client.number)

    def test(self) -> Any:
        return self._examples(99)
