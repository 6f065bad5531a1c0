"""Handwritten digits and a linear model without PyTorch, where some clients have labels that nobody else has."""

import numpy as np

from spyker.config.scenario import Training
from spyker.tasks.built_in.digits import read
from spyker.tasks.task import Task
from spyker.vectors import Vector

LABELS, PIXELS, RARE = 10, 64, (8, 9)


class Labels(Task):
    """Logistic regression. The score is the accuracy on the images of the ``asked`` labels."""

    trivial = True

    def __init__(self, hands: list[tuple[int, ...]], asked: tuple[int, ...], seed: int, training: Training) -> None:
        images, labels, held_out = read()
        pixels = np.hstack([images.reshape(-1, PIXELS) / 16, np.ones((len(labels), 1))]).astype(np.float32)
        self.training, self.seed = training, seed
        wanted = np.isin(labels[:held_out], asked)
        self.test = pixels[:held_out][wanted], labels[:held_out][wanted]
        self.clients = []
        for k, hand in enumerate(hands):
            takers = [j for j, other in enumerate(hands) if other == hand]
            mine = np.flatnonzero(np.isin(labels[held_out:], hand))[takers.index(k) :: len(takers)] + held_out
            self.clients.append((pixels[mine], np.eye(LABELS, dtype=np.float32)[labels[mine]]))

    def initial(self) -> Vector:
        return np.zeros((PIXELS + 1) * LABELS, np.float32)

    def size(self, client: int) -> int:
        return len(self.clients[client][0])

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        images, targets = self.clients[client]
        model = weights.reshape(-1, LABELS).copy()
        order = np.random.default_rng((self.seed, client, step)).permutation(len(images))
        for batch in np.array_split(order, max(1, len(order) // self.training.batch_size)):
            outputs = images[batch] @ model
            outputs = np.exp(outputs - outputs.max(axis=1, keepdims=True))
            error = outputs / outputs.sum(axis=1, keepdims=True) - targets[batch]
            model -= np.float32(rate / len(batch)) * (images[batch].T @ error)
        return model.ravel()

    def evaluate(self, weights: Vector) -> float:
        images, labels = self.test
        return float(((images @ weights.reshape(-1, LABELS)).argmax(axis=1) == labels).mean())


def make(clients: int, seed: int, training: Training, rare: list[int], asked: list[int]) -> Task:
    """The clients in ``rare`` have labels 8 and 9, every other one two neighbouring labels of 0 to 7."""
    hands = [RARE if k in rare else (2 * k % 8, 2 * k % 8 + 1) for k in range(clients)]
    return Labels(hands, tuple(asked), seed, training)
