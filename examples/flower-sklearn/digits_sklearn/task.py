"""The model and the data."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

CLASSES = np.arange(10)


def create_model(lr: float) -> SGDClassifier:
    """Return a logistic regression that continues from its present weights."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=lr)
    model.classes_ = CLASSES
    set_parameters(model, [np.zeros((10, 64)), np.zeros(10)])
    return model


def get_parameters(model: SGDClassifier) -> list[np.ndarray]:
    """Return the model's weights."""
    return [model.coef_, model.intercept_]


def set_parameters(model: SGDClassifier, parameters: list[np.ndarray]) -> None:
    """Set the model's weights."""
    model.coef_, model.intercept_ = parameters


@cache
def load_images() -> tuple[np.ndarray, np.ndarray]:
    """Return all images and their labels in a fixed order."""
    digits = load_digits()
    order = np.random.default_rng(42).permutation(len(digits.target))
    return digits.data[order] / 16, digits.target[order]


def load_data(partition_id: int, num_partitions: int) -> tuple[np.ndarray, ...]:
    """Return a client's images: inputs and labels for training, inputs and labels for testing."""
    inputs, labels = (part[partition_id::num_partitions] for part in load_images())
    cut = len(labels) * 4 // 5
    return inputs[:cut], labels[:cut], inputs[cut:], labels[cut:]
