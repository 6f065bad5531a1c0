"""``wikitext2``: next-character prediction on Wikipedia articles with an LSTM; the metric is perplexity.

The text is cut into contiguous parts of equal length, one per client. A model with perplexity P is as uncertain as a
choice among P equally likely characters; the initial perplexity is near the size of the vocabulary, 283.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.parameters import parameter
from spyker.tasks.data.load import load
from spyker.tasks.partition import contiguous
from spyker.tasks.task import Metric, Task


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``wikitext2``."""

    sequence_length: int = parameter(64, "characters per training example", at_least=1)
    characters_per_client: int | None = parameter(
        None, "characters per client, from the start of its part; unset: all", at_least=2
    )
    evaluation_characters: int = parameter(
        20_000, "number of characters of the test text to evaluate on, from its start", at_least=2
    )
    embedding: int = parameter(32, "size of a character's embedding", at_least=1)
    hidden: int = parameter(128, "size of the LSTM's state", at_least=1)


def perplexity(loss: float) -> float:
    """Return exp of the mean loss, which is limited so that the result is finite."""
    return math.exp(loss if loss < 700 else 700)


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """Create the task."""
    import torch
    from torch import Tensor
    from torch.nn.functional import cross_entropy

    from spyker.tasks.built_in.models import CharacterLSTM
    from spyker.tasks.torch_task import Examples, LazyDataset, TorchTask

    data = load("wikitext2")
    length = options.sequence_length
    share = contiguous(len(data["train"]), clients, options.characters_per_client)
    used = share if options.characters_per_client is None else options.characters_per_client

    def lazy(split: str, start: int, size: int) -> LazyDataset:
        """Return sequences, with the next character of each of their characters as targets."""
        count = (size - 1) // length
        if count == 0:
            problem = f"{length} is not allowed: there are {size:,} characters"
            raise UsageError("task.sequence-length", problem, f"Give at most {size - 1:,}")

        def read() -> Examples:
            text = torch.from_numpy(data[split][start : start + count * length + 1].astype(np.int64))
            return text[:-1].view(count, length), text[1:].view(count, length)

        return LazyDataset(count, read)

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, reduction="none").mean(1)

    train = [lazy("train", client * share, used) for client in range(clients)]
    test = lazy("test", 0, min(options.evaluation_characters, len(data["test"])))
    torch.manual_seed(seed)
    return TorchTask(
        CharacterLSTM(len(data["vocabulary"]), options.embedding, options.hidden),
        train,
        test,
        training,
        seed=seed,
        score=losses,
        finish=perplexity,
        metric=Metric("perplexity", higher_is_better=False),
    )
