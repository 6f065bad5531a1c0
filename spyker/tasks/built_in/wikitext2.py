"""``wikitext2``: what is the next character? Articles of Wikipedia, an LSTM, and perplexity to judge it by.

The text is cut into contiguous parts of equal length, one per client. A perplexity of P says that the model is as
uncertain as if it had to choose among P equally likely characters; it starts near the size of the vocabulary, 283.
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
        None, "how much of its part of the text a client has; unset: all", at_least=2
    )
    evaluation_characters: int = parameter(20_000, "evaluate on so much of the test text, from its start", at_least=2)
    embedding: int = parameter(32, "numbers that stand for a character", at_least=1)
    hidden: int = parameter(128, "size of the LSTM's state", at_least=1)


def perplexity(loss: float) -> float:
    """Exp of the mean loss, as long as that is a finite number."""
    return math.exp(loss if loss < 700 else 700)


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """The task for so many clients."""
    import torch
    from torch import Tensor
    from torch.nn.functional import cross_entropy

    from spyker.tasks.built_in.models import CharacterLSTM
    from spyker.tasks.torch_task import Examples, LazyDataset, TorchTask

    data = load("wikitext2")
    length = options.sequence_length
    share = contiguous(len(data["train"]), clients, options.characters_per_client)
    used = share if options.characters_per_client is None else options.characters_per_client

    def later(split: str, start: int, size: int) -> LazyDataset:
        """Sequences, and for each of their characters the one that follows."""
        count = (size - 1) // length
        if count == 0:
            raise UsageError(
                "task.sequence-length", f"is {length} for {size:,} characters", f"Choose at most {size - 1:,}"
            )

        def read() -> Examples:
            text = torch.from_numpy(data[split][start : start + count * length + 1].astype(np.int64))
            return text[:-1].view(count, length), text[1:].view(count, length)

        return LazyDataset(count, read)

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, reduction="none").mean(1)

    train = [later("train", client * share, used) for client in range(clients)]
    test = later("test", 0, min(options.evaluation_characters, len(data["test"])))
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
