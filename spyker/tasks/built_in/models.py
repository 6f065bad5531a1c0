"""The models of the built-in tasks."""

from __future__ import annotations

from torch import Tensor, nn


def digits_cnn() -> nn.Module:
    """Return a CNN with 1,370 parameters for 8 × 8 grey images."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def mnist_cnn() -> nn.Module:
    """Return the paper's CNN with 21,840 parameters for 28 × 28 grey images."""
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


def cifar10_cnn(*, batch_norm: bool = False) -> nn.Module:
    """Return a CNN with 122,570 parameters for 32 × 32 colour images.

    Args:
        batch_norm: add BatchNorm after each convolution: 320 parameters more, and as many buffers.

    """

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(outputs)] if batch_norm else []
        return [nn.Conv2d(inputs, outputs, 3, padding=1), *norm, nn.MaxPool2d(2), nn.ReLU()]

    return nn.Sequential(
        *convolution(3, 32),
        *convolution(32, 64),
        *convolution(64, 64),
        nn.Flatten(),
        nn.Linear(1024, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class CharacterLSTM(nn.Module):
    """A model that predicts the next character: embedding, LSTM, fully connected layer."""

    def __init__(self, vocabulary: int, embedding: int = 32, hidden: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, characters: Tensor) -> Tensor:
        """Map (sequences, length) to logits of (sequences, vocabulary, length), as cross-entropy expects."""
        states, _ = self.lstm(self.embedding(characters))
        logits: Tensor = self.output(states)
        return logits.transpose(1, 2)
