"""Tabular data and scikit-learn in place of images and PyTorch: is a breast tumour malignant?

569 patients, 30 numbers each (the Wisconsin data that comes with scikit-learn). Each clinic, in one of four regions,
has its own patients; the larger a tumour, the more likely its patient is at one of the last clinics, so most clinics
have few cases of one class. They learn a linear model. A model without PyTorch is a Task with four methods:

    spyker run --task tabular:clinics --clients 16 --duration 10 --set training.rate=0.01
    spyker compare --task tabular:clinics --clients 16 --duration 10 --set training.rate=0.01 --set task.mixed=0
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier

import spyker
from spyker import Training
from spyker.algorithm import Vector

LARGEST = 23  # the column "worst area"
HELD_OUT = 5  # every fifth patient


class Clinics(spyker.Task):
    """A linear classifier with the log loss. Clients send its 30 coefficients and the intercept."""

    metric = spyker.Metric("accuracy", targets=(0.9, 0.95))

    def __init__(self, clients: int, seed: int, training: Training, mixed: float) -> None:
        table, malignant = load_breast_cancer(return_X_y=True)
        table = np.log1p(table)
        # All clinics need mean and deviation of every column: two sums from each clinic, before the training.
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        random = np.random.default_rng(seed)
        order = random.permutation(len(table))
        self.test = table[order[::HELD_OUT]], malignant[order[::HELD_OUT]]
        rest = np.delete(order, np.s_[::HELD_OUT])
        size = table[rest, LARGEST] + mixed * random.normal(size=len(rest))
        self.patients = [(table[part], malignant[part]) for part in np.array_split(rest[size.argsort()], clients)]
        self.training, self.seed = training, seed

    def initial(self) -> Vector:
        """Return zero weights."""
        return np.zeros(self.test[0].shape[1] + 1, np.float32)

    def size(self, client: int) -> int:
        """Return the number of a clinic's patients."""
        return len(self.patients[client][1])

    def train(self, client: int, weights: Vector, rate: float, step: int) -> spyker.TrainingResult:
        """Train on the patients of one clinic, in an order determined by seed, clinic and step."""
        numbers, labels = self.patients[client]
        order = int(np.random.SeedSequence((self.seed, client, step)).generate_state(1)[0])
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=order)
        model.partial_fit(numbers[:1], labels[:1], classes=[0, 1])  # sets the shapes; the weights are replaced
        model.coef_, model.intercept_ = weights[None, :-1].astype(float), weights[-1:].astype(float)
        for _ in range(self.training.epochs):
            model.partial_fit(numbers, labels)
        trained = np.append(model.coef_[0], model.intercept_).astype(np.float32)
        return spyker.TrainingResult(trained, metrics={"own accuracy": float(model.score(numbers, labels))})

    def evaluate(self, weights: Vector) -> float:
        """Return the accuracy on the held-out patients."""
        numbers, labels = self.test
        return float(np.mean((numbers @ weights[:-1] + weights[-1] > 0) == labels))


def clinics(clients: int, seed: int, training: Training, mixed: float = 0.5) -> Clinics:
    """Return the task. ``mixed`` is the degree to which the clinics' patients are mixed; 0: sorted by size."""
    return Clinics(clients, seed, training, mixed)
