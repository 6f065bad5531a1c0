"""A table instead of pictures, and scikit-learn instead of PyTorch: is a lump in the breast malignant?

569 patients, 30 numbers each (the Wisconsin data that comes with scikit-learn). Clinics in four regions have patients
of their own; the larger a lump, the more likely it was sent to one of the last clinics, so that most see few cases of
one kind. They learn a linear model together. Whatever is not a PyTorch module is a Task with four methods:

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
    """A linear classifier with the log loss. Its 30 coefficients and the intercept are what travels."""

    metric = spyker.Metric("accuracy", targets=(0.9, 0.95))

    def __init__(self, clients: int, seed: int, training: Training, mixed: float) -> None:
        table, malignant = load_breast_cancer(return_X_y=True)
        table = np.log1p(table)
        # Of every column all must know mean and deviation: two sums from each clinic, before the training.
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        random = np.random.default_rng(seed)
        order = random.permutation(len(table))
        self.test = table[order[::HELD_OUT]], malignant[order[::HELD_OUT]]
        rest = np.delete(order, np.s_[::HELD_OUT])
        size = table[rest, LARGEST] + mixed * random.normal(size=len(rest))
        self.patients = [(table[part], malignant[part]) for part in np.array_split(rest[size.argsort()], clients)]
        self.training, self.seed = training, seed

    def initial(self) -> Vector:
        """Nothing is known."""
        return np.zeros(self.test[0].shape[1] + 1, np.float32)

    def size(self, client: int) -> int:
        """How many patients a clinic has."""
        return len(self.patients[client][1])

    def train(self, client: int, weights: Vector, rate: float, step: int) -> spyker.TrainingResult:
        """Some passes over the patients of one clinic, in an order that follows from the seed, clinic and step."""
        numbers, labels = self.patients[client]
        order = int(np.random.SeedSequence((self.seed, client, step)).generate_state(1)[0])
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=order)
        model.partial_fit(numbers[:1], labels[:1], classes=[0, 1])  # for its shapes; what it learnt is replaced
        model.coef_, model.intercept_ = weights[None, :-1].astype(float), weights[-1:].astype(float)
        for _ in range(self.training.epochs):
            model.partial_fit(numbers, labels)
        trained = np.append(model.coef_[0], model.intercept_).astype(np.float32)
        return spyker.TrainingResult(trained, metrics={"own accuracy": float(model.score(numbers, labels))})

    def evaluate(self, weights: Vector) -> float:
        """The share of the held-out patients that is judged rightly."""
        numbers, labels = self.test
        return float(np.mean((numbers @ weights[:-1] + weights[-1] > 0) == labels))


def clinics(clients: int, seed: int, training: Training, mixed: float = 0.5) -> Clinics:
    """The task. ``mixed`` says how well the clinics' patients are mixed: 0 is sorted by size."""
    return Clinics(clients, seed, training, mixed)
