"""The model, the data and the training."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small CNN for grey images of 8 × 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return a logit for each digit."""
        return self.fc(self.pool(torch.relu(self.conv(images))).flatten(1))


@cache
def load_images() -> TensorDataset:
    """Return all images in a fixed order."""
    digits = load_digits()
    order = np.random.default_rng(42).permutation(len(digits.target))
    images = torch.tensor(digits.images[order] / 16, dtype=torch.float32).unsqueeze(1)
    return TensorDataset(images, torch.tensor(digits.target[order]))


def load_data(partition_id: int, num_partitions: int, batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Return a client's part of the first 1,500 images: four fifths for training, the rest for testing."""
    images, labels = load_images()[:1500]
    mine = slice(partition_id, None, num_partitions)
    images, labels = images[mine], labels[mine]
    cut = len(labels) * 4 // 5
    train = TensorDataset(images[:cut], labels[:cut])
    test = TensorDataset(images[cut:], labels[cut:])
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=batch_size)


def load_test_data() -> DataLoader:
    """Return the images that no client has."""
    images, labels = load_images()[1500:]
    return DataLoader(TensorDataset(images, labels), batch_size=128)


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    """Train for some epochs with SGD; return the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


@torch.no_grad()
def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Return loss and accuracy."""
    net.eval()
    loss, correct = 0.0, 0
    for images, labels in loader:
        outputs = net(images)
        loss += nn.functional.cross_entropy(outputs, labels, reduction="sum").item()
        correct += int((outputs.argmax(1) == labels).sum())
    count = len(loader.dataset)
    return loss / count, correct / count
