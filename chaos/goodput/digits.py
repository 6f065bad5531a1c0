"""Logistic regression on scikit-learn's digits, in NumPy. Needs nothing else of this project: Flower runs it, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

LABELS, TEST = 10, 360
STEPS = 2
"""Gradient steps of a training, each over all of a client's images."""

Model = dict[str, np.ndarray]


def write(path: Path, clients: int, seed: int) -> None:
    """Write test data and the data of each client, who has two of the shards that images sorted by label make."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(labels))
    images, labels = (images[order] / 16.0).astype(np.float32), labels[order]
    by_label = TEST + np.argsort(labels[TEST:], kind="stable")
    shards = np.array_split(by_label, 2 * clients)
    dealt = random.permutation(2 * clients)
    arrays = {"x-test": images[:TEST], "y-test": labels[:TEST]}
    for k in range(clients):
        own = np.concatenate([shards[dealt[2 * k]], shards[dealt[2 * k + 1]]])
        arrays |= {f"x-{k}": images[own], f"y-{k}": labels[own]}
    np.savez(path, **arrays)


def read(path: str | Path, part: int | str) -> tuple[np.ndarray, np.ndarray]:
    """Read the data of a client, or ``test``."""
    with np.load(path, allow_pickle=False) as data:
        return data[f"x-{part}"], data[f"y-{part}"]


def initial() -> Model:
    """Return the initial model."""
    return {"weight": np.zeros((64, LABELS), np.float32), "bias": np.zeros(LABELS, np.float32)}


def probabilities(model: Model, images: np.ndarray) -> np.ndarray:
    """Return the probability of each label for each image."""
    scores = images @ model["weight"] + model["bias"]
    odds = np.exp(scores - scores.max(1, keepdims=True))
    result: np.ndarray = odds / odds.sum(1, keepdims=True)
    return result


def train(model: Model, images: np.ndarray, labels: np.ndarray, rate: float) -> Model:
    """Take a few gradient steps."""
    model = {name: np.array(values, np.float32) for name, values in model.items()}
    wanted = np.eye(LABELS, dtype=np.float32)[labels]
    for _ in range(STEPS):
        error = (probabilities(model, images) - wanted) / np.float32(len(labels))
        model["weight"] -= np.float32(rate) * (images.T @ error)
        model["bias"] -= np.float32(rate) * error.sum(0)
    return model


def accuracy(model: Model, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images whose label is found."""
    return float((probabilities(model, images).argmax(1) == labels).mean())


def append(path: Path, **entry: float) -> None:
    """Append a line to a log that is read after the writer was killed."""
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")
