"""The interface of tasks: training is a function from weights to weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spyker.config.privacy_settings import PrivacySettings
from spyker.errors import UsageError
from spyker.privacy.accounting import Mechanism
from spyker.vectors import Vector, mix

if TYPE_CHECKING:
    from spyker.config.client_privacy import ClientBudget

SHARED = "shared "
"""Prefix of a metric that a client measures with the initial values of the personal parameters."""
LARGEST = 1e100  # value of a metric without limits that a server accepts; sums of such values stay finite


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric of an evaluation."""

    name: str
    higher_is_better: bool = True
    targets: tuple[float, ...] = ()
    """Default targets, if the scenario sets none."""
    limits: tuple[float, float] | None = None
    """Smallest and largest possible value. Servers ignore evaluations by clients outside these limits."""


ACCURACY = Metric("accuracy", targets=(0.9, 0.95), limits=(0.0, 1.0))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of an evaluation with several metrics."""

    score: float
    also: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ClientEvaluation:
    """The metrics of a model on the test data of a client."""

    examples: int
    scores: Mapping[str, float]


def limits_by_name(metrics: Iterable[Metric]) -> dict[str, tuple[float, float]]:
    """Return the limits of the values that a server accepts from clients, by metric."""
    own = {metric.name: metric.limits or (-LARGEST, LARGEST) for metric in metrics}
    return own | {f"{SHARED}{name}": limits for name, limits in own.items()}


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a training with more than weights."""

    weights: Vector
    examples: int | None = None
    """Number of examples used, if it differs from :meth:`Task.size`."""
    metrics: Mapping[str, float] | None = None
    """Metrics of the client, by name."""
    state: object | None = None
    """State for the client's next training: any picklable object. A client of a federation stores it on disk,
    where only dictionaries, lists, strings, numbers, bytes, NumPy arrays and PyTorch tensors are supported."""
    evaluation: ClientEvaluation | None = None
    """Evaluation of the received model by the client; a task need not set it."""


class Task(ABC):
    """Base class of tasks: model, data, training and evaluation.

    ``train`` and ``evaluate`` are pure functions of their arguments, so that they may run in any process and order.

    A task with client state declares one more parameter, ``train(self, client, weights, rate, step, state=None)``. It
    receives a copy of the ``state`` that the client's last training returned in :class:`TrainingResult`. A parameter
    ``age`` receives the age of the model.
    """

    metric = Metric("score")
    """The metric of :meth:`evaluate`; default: ``score``, higher is better, without targets."""
    also: Sequence[Metric] = ()
    """Further metrics of :meth:`evaluate`."""
    trivial = False
    """Whether training is cheaper than sending a job to a worker process."""
    by_value = False
    """Whether worker processes get a pickled copy of the task instead of creating it."""

    rate: float | None = None
    """Initial learning rate if the scenario sets no ``training.rate``."""
    notes: Sequence[str] = ()
    """Notes for the user, shown before a run."""
    client_budget: ClientBudget | None = None
    """Budget of each client under client-level differential privacy; the scenario sets it."""
    local = False
    """Whether the data of a client is loaded where it is first used; sizes are then asked of the workers."""
    has_test = True
    """Whether :meth:`evaluate` has test data."""
    evaluates_on_clients = False
    """Whether :meth:`evaluate_client` has test data."""
    evaluated_by = "servers"
    """``servers``, ``clients`` or ``both``: set from ``evaluation.by`` when the task is made."""
    evaluation_needs_clients = False
    """Whether :meth:`evaluate` uses the data of all clients, as only an emulation can; in a deployment clients evaluate
    unless ``evaluation.by`` says otherwise."""
    evaluates_states = False
    """Whether :meth:`evaluate` takes a second argument: the clients' states, by client. Only emulations pass it; in a
    deployment the states stay with the clients."""

    personal: Collection[str] = ()
    """Names of the parameters that stay with each client, in its state. They are not part of the weights."""
    buffers: int = 0
    """Number of buffers at the end of the weights, such as BatchNorm's running means and variances. No gradient changes
    them; servers only average them."""

    def mix(self, target: Vector, source: Vector, weight: float, out: Vector) -> None:
        """Mix models as :func:`spyker.vectors.mix` does; a task may override it with a faster function."""
        mix(target, source, weight, out)

    @abstractmethod
    def initial(self) -> Vector:
        """Return W⁰, the initial weights."""

    @abstractmethod
    def size(self, client: int) -> int:
        """Return d_k, the number of data points of a client."""

    @abstractmethod
    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector | TrainingResult:
        """Train a model on the data of a client.

        Args:
            client: number of the client.
            weights: the model to train, read-only.
            rate: learning rate.
            step: number of the client's training, from 0; it seeds random numbers.

        Returns:
            The trained weights, or a :class:`TrainingResult`.

        """

    @abstractmethod
    def evaluate(self, weights: Vector) -> float | Mapping[str, float]:
        """Evaluate a model on test data.

        Args:
            weights: the model.

        Returns:
            The metric, or with ``also`` a dictionary of all metrics.

        """

    def hold_out(self, share: float) -> None:
        """Hold out a part of each client's data for :meth:`evaluate_client`, unless clients have test data."""
        if not self.evaluates_on_clients:
            raise UsageError(
                "evaluation.by",
                f"clients is not allowed: {type(self).__name__} has no test data of clients",
                "Define evaluate_client and set evaluates_on_clients, or write servers",
            )

    def protect_examples(self, settings: PrivacySettings, *, deployed: bool) -> None:
        """Train with DP-SGD from now on; ``deployed``: with random numbers of the operating system."""
        raise UsageError(
            "privacy.unit",
            f"{settings.unit} is not allowed: {type(self).__name__} does not support it",
            "Use a PyTorch model, or write none",
        )

    def privacy_cost(self, client: int) -> Mechanism | None:
        """Return what the client's next training costs; ``None`` without differential privacy."""
        return None if self.client_budget is None else self.client_budget.mechanism

    def most_trainings(self, client: int) -> int | None:
        """Return how many trainings the client's privacy budget allows; ``None`` without differential privacy."""
        return None if self.client_budget is None else self.client_budget.participations

    def privacy_spent(self, trainings: Sequence[int]) -> Mapping[str, Any] | None:
        """Return the highest ε of a client after ``trainings[k]`` trainings of each client k, for a summary."""
        budget, most = self.client_budget, max(trainings, default=0)
        if budget is None:
            return None
        about = {"unit": budget.settings.unit, "epsilon": budget.epsilon(most), "delta": budget.settings.delta}
        return about | {"trainings": most}

    def evaluate_client(self, client: int, weights: Vector, state: Any = None) -> ClientEvaluation | None:
        """Evaluate a model on the test data of a client; ``None`` if it has none."""
        raise NotImplementedError

    def client_model(self, weights: Vector, state: Any) -> dict[str, Vector]:
        """Return the complete model of a client by name: the shared weights and its personal parameters."""
        raise NotImplementedError

    def train_only(self) -> None:  # noqa: B027 - a task that keeps nothing else has nothing to do
        """Release memory that only other methods need.

        From now on this process calls only ``train`` and ``evaluate``, and copies their results before the next call.
        """

    def explain(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> str:
        """Explain why a training returned numbers that are not finite, with a remedy; empty if unknown."""
        return ""
