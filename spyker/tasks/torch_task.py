"""A task from a PyTorch model and one dataset per client."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from types import MethodType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from spyker.config.kernel_names import TORCH
from spyker.config.privacy_settings import PrivacySettings
from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.privacy.accounting import Mechanism
from spyker.tasks.federated_task import ClientInfo, FederatedTask, describe_client
from spyker.tasks.flat_model import FlatModel, personal_names
from spyker.tasks.kernels import Kernel, find_kernel, kernel_error
from spyker.tasks.local_data import ClientData, ClientDatasets, LocalClients, LocalDatasets, data_of
from spyker.tasks.optimizer import OptimizerConfig
from spyker.tasks.personal import CENTRAL_NOTE, patterns_of
from spyker.tasks.private_training import ExamplePrivacy, PrivateTrainer
from spyker.tasks.task import ACCURACY, SHARED, ClientEvaluation, Metric, Task, TrainingResult
from spyker.tasks.torch_checks import (
    accuracy,
    check_alike,
    check_batches,
    check_finite,
    check_model,
    check_pairs,
    check_training,
    needs_two,
    scores_of,
    try_out,
    try_scores,
)
from spyker.tasks.torch_data import (
    BatchedData,
    Collate,
    Data,
    DataSource,
    ExampleReader,
    Examples,
    InMemoryData,
    LazyDataset,
    StreamedDataset,
)
from spyker.tasks.torch_sources import hold_out, sources
from spyker.tasks.torch_training import PERSONAL, Trainer
from spyker.vectors import Vector

__all__ = ["Examples", "ExtraMetric", "LazyDataset", "StreamedDataset", "TorchTask", "accuracy"]

Loss: TypeAlias = Callable[[Any, Any], Tensor]
EVALUATION_BATCH = 256  # what a processor has in its cache; with 1,024, CIFAR-10 takes 1.7 times as long
warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # and we do not write to it


@dataclass(frozen=True, slots=True)
class ExtraMetric:
    """A further metric of every evaluation: ``finish`` of the mean ``score`` of the test examples."""

    metric: Metric
    score: Loss
    finish: Callable[[float], float] = float


class TorchTask(Task):
    """A task from a PyTorch model, one dataset per client, and test data.

    A dataset is ``(inputs, targets)``, tensors or arrays; a dictionary of columns; a map-style dataset of pairs or
    dictionaries; a ``DataLoader``; a :class:`LazyDataset` or a :class:`StreamedDataset`. Columns and map-style datasets
    are read once and kept in memory; with a ``collate_fn``, which collates a list of examples, they are read batch by
    batch. For dictionaries, ``inputs`` and ``target`` name the columns: one input is passed as positional argument,
    several as keyword arguments.

    ``loss(outputs, targets)`` is minimised. ``score(outputs, targets)`` returns one number per example, and the metric
    is ``finish`` of their mean; a score of your own needs a ``metric``, with its name and direction. ``also`` are
    further metrics. Parameters whose names match a pattern in ``personal`` stay with each client; ``training.personal``
    takes precedence. If outputs have ``logits``, as in Hugging Face models, PyTorch's losses and the accuracy get the
    logits; your own functions get the outputs unchanged. ``client_tests``, one dataset per client, are for evaluation
    by clients; without them each client holds out a part of its data for it. The model's weights are W⁰. A float64
    model is trained in float64; servers store and send float32.
    """

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[Data] | LocalClients,
        test: Data | Callable[[], Data | None] | None,
        training: Training,
        *,
        seed: int = 0,
        loss: Loss = nn.functional.cross_entropy,
        score: Loss = accuracy,
        finish: Callable[[float], float] = float,
        metric: Metric | None = None,
        also: Sequence[ExtraMetric] = (),
        client_tests: Sequence[Data] | None = None,
        collate_fn: Collate | None = None,
        inputs: str | Sequence[str] | None = None,
        target: str | None = None,
        personal: Sequence[str] = (),
    ) -> None:
        """``clients`` are datasets, or the clients of a federation, whose data is loaded when it is needed."""
        dtype, self.device = check_model(model), device_of(training)
        check_finite(model, "model() returns" if isinstance(clients, LocalClients) else "has a model with")
        self.personal = personal_names(model, patterns_of(training, personal))
        check_training(training, dtype, personal=bool(self.personal))
        self.flat = FlatModel(model, self.personal, self.device, dtype)  # the first to be pickled: it resets the model
        self.model, self.loss = model, loss
        self.measures = [ExtraMetric(named(metric, score), score, finish), *also]
        self.metric, *others = [measure.metric for measure in self.measures]
        self.also = tuple(others)
        self.training, self.seed, self.holdout = training, seed, 0.0
        self.reading, self.collate_fn = ExampleReader(inputs, target), collate_fn
        self.descent = OptimizerConfig(training)
        self.needs_two = False
        self._sizes: dict[int, int] = {}  # as servers know them
        self.kernel: Kernel | None = None
        self.privacy: ExamplePrivacy | None = None
        self.layout, self.buffers = self.flat.layout, self.flat.buffers
        assert training.rate is not None  # only Flower apps may leave it unset
        self.descent.begin(self.flat.trained, self.flat.parameters, training.rate)
        self._test, self.has_test = test, test is not None
        self.local = isinstance(clients, LocalClients)
        self.clients: ClientDatasets[DataSource]
        if isinstance(clients, LocalClients):
            self.definition = clients.definition
            self.clients = LocalDatasets(clients, self._load)
            self.evaluates_on_clients = clients.definition.overrides("client_test")
        else:
            self.clients = self._convert(clients, client_tests)
            self.evaluates_on_clients = bool(client_tests)
        if self.personal and self.has_test:
            self.notes = (CENTRAL_NOTE,)

    @cached_property
    def test(self) -> DataSource | None:
        """Central test data, if there is any."""
        data: Any = self._test() if isinstance(self._test, MethodType) else self._test
        return None if data is None else self._source(data, "the test data")

    def _source(self, data: Data, owner: str) -> DataSource:
        """Convert data; ``owner`` says whose it is in errors."""
        return sources([data], self.reading, self.collate_fn, lambda _: owner)[0]

    def _convert(self, clients: Sequence[Data], client_tests: Sequence[Data] | None) -> ClientDatasets[DataSource]:
        """Convert and check one dataset per client."""
        if not clients:
            raise UsageError("task", "has no client", "Give TorchTask one dataset per client")
        if client_tests is not None and len(client_tests) != len(clients):
            raise UsageError(
                "task",
                f"has data for {len(clients)} clients, and client_tests for {len(client_tests)}",
                "Give every client test data of its own, or none",
            )
        if client_tests and self.training.kernel != TORCH:
            raise kernel_error(self.training.kernel, "it does not support client_tests", "Leave them out")
        trains = sources(clients, self.reading, self.collate_fn, "client {}".format)
        check_alike(trains)
        tests: Sequence[DataSource | None] = [None] * len(trains)
        if client_tests is not None:
            tests = sources(client_tests, self.reading, self.collate_fn, "the test data of client {}".format)
        self._check({f"client {k}": train for k, train in enumerate(trains)}, self.test, "the test data")
        return ClientDatasets([ClientData(*both) for both in zip(trains, tests, strict=True)])

    def _load(self, definition: FederatedTask, info: ClientInfo) -> tuple[DataSource, DataSource | None]:
        """Load and check the data of one client of a federation."""
        owner = describe_client(info)
        self.flat.own_memory()
        train = self._source(data_of(definition, info), owner)
        own = definition.client_test(info) if self.evaluates_on_clients else None
        test = None if own is None else self._source(own, f"the test data of {owner}")
        if test is None and self.holdout:
            train, test = hold_out(train, self.holdout, self.seed, info.number, owner)
        self._check({owner: train}, test, f"the test data of {owner}")
        return train, test

    def _check(self, clients: Mapping[str, DataSource], test: DataSource | None, test_owner: str) -> None:
        """Check that model, training data by owner, test data, loss and scores fit together, with a few examples."""
        for owner, each in clients.items():
            check_batches(each, self.training.batch_size, owner)
        owner, first = next(iter(clients.items()))
        self._make_kernel(first)
        scores = [(measure.metric.name, measure.score) for measure in self.measures]
        with self.autocast():
            batch = try_out(self.model, first, self.loss, self.device, owner, clients)
            if test is not None:
                try_scores(self.model, test, scores, self.device, test_owner)
            self.needs_two = needs_two(self.model, batch)
        if self.needs_two:
            for owner, each in clients.items():
                check_pairs(each, self.training.batch_size, owner)

    def hold_out(self, share: float) -> None:
        """Hold out a part of each client's data for evaluation, unless clients have test data of their own."""
        if self.evaluates_on_clients:
            return
        self.evaluates_on_clients, self.holdout = True, share
        if not isinstance(self.clients, LocalDatasets):
            split = [hold_out(each, share, self.seed, k, f"client {k}") for k, each in enumerate(self.clients)]
            self.clients = ClientDatasets([ClientData(*both) for both in split])

    def protect_examples(self, settings: PrivacySettings, *, deployed: bool) -> None:
        """Train with DP-SGD from now on; ``deployed``: with random numbers of the operating system."""
        self.privacy = ExamplePrivacy(self, settings, deployed=deployed)

    def privacy_cost(self, client: int) -> Mechanism | None:
        """Return what the client's next training costs; ``None`` without differential privacy."""
        if self.privacy is None:
            return super().privacy_cost(client)
        return self.privacy.next_cost(client, self.clients[client].count)

    def most_trainings(self, client: int) -> int | None:
        """Return how many trainings the client's privacy budget allows; ``None`` without differential privacy."""
        privacy = self.privacy
        if privacy is None:
            return super().most_trainings(client)
        return privacy.most(privacy.mechanism(self.clients[client].count))

    def privacy_spent(self, trainings: Sequence[int]) -> Mapping[str, Any] | None:
        """Return the highest ε of a client after ``trainings[k]`` trainings of each client k, for a summary."""
        if self.privacy is None:
            return super().privacy_spent(trainings)
        return self.privacy.spent([(self.clients[client].count, made) for client, made in enumerate(trainings) if made])

    def _make_kernel(self, source: DataSource) -> None:
        """Create the kernel of ``training.kernel``, which depends on the shape of the data."""
        training = self.training
        if training.kernel == TORCH or self.kernel is not None:
            return
        opened = source.open(self.device)
        if not isinstance(opened, InMemoryData) or len(opened.whole.inputs) != 1:
            problem, remedy = "the data is not one tensor of inputs", "Give TorchTask tensors, or a LazyDataset"
            raise kernel_error(training.kernel, problem, remedy)
        self.kernel = find_kernel(training.kernel)(self.model, opened.whole.inputs[0].shape[1:], self.loss, training)

    def train_only(self) -> None:
        """Release W⁰, and use the memory of weights that are given: trained weights replace them, if possible."""
        self.flat.lend()

    def mix(self, target: Vector, source: Vector, weight: float, out: Vector) -> None:
        """Mix in one vectorised pass, twice as fast on large models as NumPy's three passes."""
        torch.lerp(torch.from_numpy(target), torch.from_numpy(source), weight, out=torch.from_numpy(out))

    def initial(self) -> Vector:
        """Return the model's initial weights, read-only."""
        return self.flat.initial

    def size(self, client: int) -> int:
        """Return the length of the client's dataset."""
        if client >= len(self.clients):
            raise UsageError(
                "world.clients",
                f"is at least {client + 1} in total, but the task has data for {len(self.clients)} clients",
                "Give TorchTask one dataset per client, or set fewer --clients",
            )
        self._sizes[client] = count = self.clients[client].count
        return count

    def train(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> Vector | TrainingResult:
        """Train for some epochs, in an order that depends on the seed, the client and the step."""
        metrics = {}
        trainer = self._trainer(client, weights, rate, step, state)
        if self.kernel is not None:
            return trainer.with_kernel(self.kernel)
        trained = trainer.train()
        reports = self.privacy is None or self.privacy.settings.report_metrics
        if self.training.report_loss and reports and math.isfinite(trainer.loss):
            metrics["training loss"] = trainer.loss
        new_state, seen = trainer.new_state(), trainer.seen
        if self.personal and not torch.isfinite(self.flat.personal).all():
            problem = f"the personal parameters of client {client} are not finite after its training number {step}"
            raise UsageError("training.rate", problem, self.explain(client, weights, rate, step, state))
        known = self._sizes.get(client, self.clients[client].count)
        examples = None if seen == known or self.privacy is not None else seen
        if not metrics and new_state is None and examples is None:
            return trained
        return TrainingResult(trained, examples, metrics or None, new_state)

    def explain(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> str:
        """Repeat the training to find the first step whose numbers are not finite."""
        if self.privacy is not None:
            return "Lower training.rate, or set training.clip-norm"  # a repetition would cost budget
        return Trainer(self, client, weights, rate, step, state).explain()

    def _trainer(self, client: int, weights: Vector, rate: float, step: int, state: Any) -> Trainer:
        kind = Trainer if self.privacy is None else PrivateTrainer
        return kind(self, client, weights, rate, step, state)

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context for computing in the precision of ``training.autocast``."""
        if self.training.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.training.autocast))

    def seed_all(self, seed: int) -> None:
        """Seed the random numbers of training: data order and dropout."""
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes fifty times as long
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def evaluate(self, weights: Vector) -> float | dict[str, float]:
        """Return the metric on the test data, or all metrics by name."""
        if self.test is None:
            raise UsageError("evaluation.by", "servers is not allowed: the task has no test data", 'Write "clients"')
        found, _ = self._judge(self.test, weights)
        return found if self.also else found[self.metric.name]

    def evaluate_client(self, client: int, weights: Vector, state: Any = None) -> ClientEvaluation | None:
        """Return the metrics of a model on a client's own test data."""
        test = self.clients.of(client).test
        if test is None:
            return None
        weights = weights.copy() if self.flat.borrows else weights  # no model may change what is trained next
        scores, examples = self._judge(test, weights, (state or {}).get(PERSONAL))
        if self.personal:
            shared, _ = self._judge(test, weights)
            scores |= {f"{SHARED}{name}": score for name, score in shared.items()}
        return ClientEvaluation(examples, scores)

    @torch.no_grad()
    def _judge(
        self, source: DataSource, weights: Vector, personal: Vector | None = None
    ) -> tuple[dict[str, float], int]:
        """Return all metrics of a model on some data, and the number of examples."""
        self.flat.load(weights, personal)
        self.model.train(mode=False)
        if isinstance(source, BatchedData):
            self.seed_all(self.seed)  # the model may draw random numbers
        totals, count = [0.0] * len(self.measures), 0
        for batch in source.open(self.device).in_order(EVALUATION_BATCH):
            computed = None if self.kernel is None else self.kernel.outputs(weights, batch.inputs[0])
            with self.autocast():
                outputs = self.model(*batch.inputs, **batch.named) if computed is None else computed
                for i, measure in enumerate(self.measures):
                    totals[i] += float(scores_of(measure.score, measure.metric.name, outputs, batch).sum())
            count += batch.count
        if not count:
            raise UsageError("task", "the test data gives no example", "Add examples")
        found = {m.metric.name: m.finish(total / count) for m, total in zip(self.measures, totals, strict=True)}
        return found, count

    def client_model(self, weights: Vector, state: Any) -> dict[str, Vector]:
        """Return the complete model of a client: the shared weights and its personal parameters."""
        personal = (state or {}).get(PERSONAL, self.flat.initial_personal)
        parts = self.layout.parts(weights)
        if self.personal:
            parts |= self.flat.personal_layout.parts(personal)
        return {name: parts[name] for name in self.model.state_dict() if name in parts}

    def state_dict(self, weights: Vector) -> dict[str, Tensor]:
        """Return weights as a PyTorch state dict."""
        return {name: torch.from_numpy(part) for name, part in self.layout.parts(weights).items()}


def named(metric: Metric | None, score: Loss) -> Metric:
    """Return the metric of a score; only that of the default score is known."""
    if metric is not None:
        return metric
    if score is accuracy:
        return ACCURACY
    raise UsageError(
        "task",
        "has a score without a metric",
        'Give its name and direction: metric = spyker.Metric("loss", higher_is_better=False)',
    )


def device_of(training: Training) -> torch.device:
    """Return the device; raise a ``UsageError`` if it is not available."""
    name = training.device
    if name == "cpu" or (re.fullmatch(r"cuda(:\d+)?", name) and torch.cuda.is_available()):
        return torch.device(name)
    remedy = "PyTorch finds no CUDA device here; write cpu" if name.startswith("cuda") else "Write cpu, cuda or cuda:N"
    raise UsageError("training.device", f"{show(name)} is not allowed", remedy)
