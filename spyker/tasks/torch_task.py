"""A task from a PyTorch model and one dataset per client.

The model's parameters and floating-point buffers are views of one flat vector, and their gradients views of another.
A model is therefore loaded with one copy, an SGD step is one operation, and trained weights need no copy.
"""

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

import numpy as np
import torch
from torch import Tensor, nn

from spyker.config.kernel_names import TORCH
from spyker.config.privacy_settings import PrivacySettings
from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.privacy.accounting import Mechanism
from spyker.tasks.federated_task import ClientInfo, FederatedTask, describe_client
from spyker.tasks.kernels import Kernel, find_kernel, kernel_error
from spyker.tasks.local_data import LocalClients, LocalDatasets, data_of
from spyker.tasks.optimizer import OptimizerConfig
from spyker.tasks.personal import CENTRAL_NOTE, patterns_of
from spyker.tasks.private_training import ExamplePrivacy, PrivateTrainer
from spyker.tasks.task import ACCURACY, SHARED, ClientEvaluation, Metric, Task, TrainingResult
from spyker.tasks.torch_checks import (
    accuracy,
    check_alike,
    check_batches,
    check_finite,
    check_pairs,
    needs_two,
    precision,
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
from spyker.tasks.torch_parts import divide, elements, flattened, layout_of_parts, personal_names, shaped
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
        self.dtype = check_model(model)
        check_finite(model, "model() returns" if isinstance(clients, LocalClients) else "has a model with")
        self.personal = personal_names(model, patterns_of(training, personal))
        self.device = device_of(training)
        self.model, self.loss = model, loss
        self.measures = [ExtraMetric(named(metric, score), score, finish), *also]
        self.metric, *others = [measure.metric for measure in self.measures]
        self.also = tuple(others)
        self.training, self.seed, self.holdout = training, seed, 0.0
        self.reading, self.collate_fn = ExampleReader(inputs, target), collate_fn
        self.clients: Sequence[DataSource] | LocalDatasets[DataSource]
        self.client_tests: Sequence[DataSource | None] = ()
        self.descent = OptimizerConfig(training)
        if training.autocast is not None and self.dtype != torch.float32:
            problem = f"{show(training.autocast)} is not allowed: the model is in {precision(self.dtype)}"
            raise UsageError("training.autocast", problem, "Write model.float()")
        self.lends = self.needs_two = False
        self._sizes: dict[int, int] = {}  # as servers know them
        self._gradient: Tensor | None = None
        self.kernel: Kernel | None = None
        self.privacy: ExamplePrivacy | None = None
        self._flatten()
        self._initial, self._initial_personal = self._shared(), self.personal_part()
        assert training.rate is not None  # only Flower apps may leave it unset
        self.descent.begin(self.trained, self.parameters, training.rate)
        if training.kernel != TORCH and self.dtype != torch.float32:
            raise kernel_error(training.kernel, f"the model is in {precision(self.dtype)}", "Write model.float()")
        if training.kernel != TORCH and self.personal:
            raise kernel_error(training.kernel, "it does not support training.personal", "Leave personal out")
        self._test, self.has_test = test, test is not None
        self.local = isinstance(clients, LocalClients)
        if isinstance(clients, LocalClients):
            self.definition = clients.definition
            self.clients = LocalDatasets(clients, self._load)
            self.evaluates_on_clients = clients.definition.overrides("client_test")
        else:
            self._take(clients, client_tests)
            self.evaluates_on_clients = len(self.client_tests) > 0
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

    def _take(self, clients: Sequence[Data], client_tests: Sequence[Data] | None) -> None:
        """Check and keep one dataset per client."""
        if not clients:
            raise UsageError("task", "has no client", "Give TorchTask one dataset per client")
        if client_tests is not None and len(client_tests) != len(clients):
            raise UsageError(
                "task",
                f"has data for {len(clients)} clients, and client_tests for {len(client_tests)}",
                "Give every client test data of its own, or none",
            )
        own = sources(clients, self.reading, self.collate_fn, "client {}".format)
        check_alike(own)
        if client_tests is not None:
            of = "the test data of client {}".format
            self.client_tests = sources(client_tests, self.reading, self.collate_fn, of)
        self.clients = own
        for k, each in enumerate(own):
            check_batches(each, self.training.batch_size, f"client {k}")
        first = "client 0"
        self._make_kernel(own[0])
        self._try_out(own[0], self.test, first, "the test data", own)
        if self.needs_two:
            for k, each in enumerate(own):
                check_pairs(each, self.training.batch_size, f"client {k}")

    def _load(self, definition: FederatedTask, info: ClientInfo) -> tuple[DataSource, DataSource | None]:
        """Load and check the data of one client of a federation."""
        owner = describe_client(info)
        self._own_memory()
        train = self._source(data_of(definition, info), owner)
        own = definition.client_test(info) if self.evaluates_on_clients else None
        test = None if own is None else self._source(own, f"the test data of {owner}")
        if test is None and self.holdout:
            train, test = hold_out(train, self.holdout, self.seed, info.number, owner)
        size = self.training.batch_size
        check_batches(train, size, owner)
        self._make_kernel(train)
        self._try_out(train, test, owner, f"the test data of {owner}", [train])
        if self.needs_two:
            check_pairs(train, size, owner)
        return train, test

    def hold_out(self, share: float) -> None:
        """Hold out a part of each client's data for evaluation, unless clients have test data of their own."""
        if self.evaluates_on_clients:
            return
        self.evaluates_on_clients, self.holdout = True, share
        if not isinstance(self.clients, LocalDatasets):
            split = [hold_out(each, share, self.seed, k, f"client {k}") for k, each in enumerate(self.clients)]
            self.clients, self.client_tests = [train for train, _ in split], [test for _, test in split]

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
        if not isinstance(opened, InMemoryData) or len(opened.whole.inputs) != 1 or self.client_tests:
            problem, remedy = "the data is not one tensor of inputs", "Give TorchTask tensors, or a LazyDataset"
            raise kernel_error(training.kernel, problem, remedy)
        self.kernel = find_kernel(training.kernel)(self.model, opened.whole.inputs[0].shape[1:], self.loss, training)

    def _try_out(
        self, train: DataSource, test: DataSource | None, owner: str, test_owner: str, labelled: Sequence[DataSource]
    ) -> None:
        """Check that model, data, loss and scores fit together, with a few examples."""
        scores = [(measure.metric.name, measure.score) for measure in self.measures]
        with self.autocast():
            batch = try_out(self.model, train, self.loss, self.device, owner, labelled)
            if test is not None:
                try_scores(self.model, test, scores, self.device, test_owner)
            self.needs_two = needs_two(self.model, batch)

    def _flatten(self) -> None:
        """Move the model into one vector."""
        self.model.to(self.device)
        every = dict(self.model.named_buffers())
        self.counters = [(b, b.clone()) for b in every.values() if not b.is_floating_point()]
        own, shared = divide(dict(self.model.named_parameters()), self.personal)
        own_buffers, shared_buffers = divide({n: b for n, b in every.items() if b.is_floating_point()}, self.personal)
        # In this order the trained parameters are contiguous, as are the shared and the personal parts.
        parts = own_buffers | own | shared | shared_buffers
        self.parameters = [*own.values(), *shared.values()]
        self.layout, self.personal_layout = layout_of_parts(shared | shared_buffers), layout_of_parts(own_buffers | own)
        memory = torch.cat([flattened(part.detach()).to(self.dtype) for part in parts.values()])
        start = elements(own_buffers)
        self.personal_trained = elements(own)  # at the start of the trained parameters
        self.trained_part = slice(start, start + elements(own | shared))
        self.buffers = elements(shared_buffers)
        self.pristine, self._gradient, self._parts = True, None, list(parts.values())
        self._use(memory)

    def _use(self, memory: Tensor) -> None:
        """Make the model's parameters and buffers views of a vector."""
        self.trained = memory[self.trained_part]
        whole = self.trained_part.start + self.personal_trained
        self.personal_flat, self.flat = memory[:whole], memory[whole:]
        self.trained.grad = self._gradient
        start = 0
        for part in self._parts:
            stop = start + part.numel()
            part.data = shaped(memory[start:stop], part.shape)
            start = stop

    def _shared(self) -> Vector:
        """Return W⁰, in the model's memory until other weights are loaded."""
        weights = self.flat.numpy() if self.in_place else self.unload()
        weights.flags.writeable = False
        return weights

    @property
    def in_place(self) -> bool:
        """Whether the model's vector is float32 on the CPU, as servers need it."""
        return self.device.type == "cpu" and self.dtype == torch.float32

    def with_gradients(self) -> None:
        """Allocate gradients as views of one vector. A process that does not train needs none."""
        if self._gradient is not None:
            return
        self._gradient = self.trained.grad = torch.zeros_like(self.trained)
        start = 0
        for parameter in self.parameters:
            stop = start + parameter.numel()
            parameter.grad = shaped(self.gradient[start:stop], parameter.shape)
            start = stop

    @property
    def gradient(self) -> Tensor:
        """The gradients that :meth:`with_gradients` has allocated."""
        assert self._gradient is not None
        return self._gradient

    def without_gradients(self) -> None:
        """Free the gradients."""
        self._gradient = self.trained.grad = None
        for parameter in self.parameters:
            parameter.grad = None

    def __getstate__(self) -> dict[str, object]:
        """Pickle without views of the flat vectors, which would be restored as copies."""
        if not self.pristine:
            self.load(self._initial)
        self.model.train()
        views = (
            "flat",
            "personal_flat",
            "_gradient",
            "trained",
            "parameters",
            "counters",
            "pristine",
            "_initial",
            "_parts",
        )
        return {key: value for key, value in vars(self).items() if key not in views}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._flatten()
        self._initial = self._shared()

    def train_only(self) -> None:
        """Release W⁰, and use the memory of weights that are given: trained weights replace them, if possible."""
        self.pristine, self.lends, self._initial = False, self.in_place, np.empty(0, np.float32)

    @property
    def borrows(self) -> bool:
        """Whether the model uses the memory of weights that are loaded."""
        return self.lends and not self.personal

    def _own_memory(self) -> None:
        """Detach the model from W⁰ and from weights that were given back: layers may write to them on any data."""
        if self.pristine:
            self._flatten()
            self.pristine = False
        elif self.borrows:
            self._use(self.flat.clone())

    def mix(self, target: Vector, source: Vector, weight: float, out: Vector) -> None:
        """Mix in one vectorised pass, twice as fast on large models as NumPy's three passes."""
        torch.lerp(torch.from_numpy(target), torch.from_numpy(source), weight, out=torch.from_numpy(out))

    def initial(self) -> Vector:
        """Return the model's initial weights, read-only."""
        return self._initial

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
        if self.personal and not torch.isfinite(self.personal_flat).all():
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
        test = self.clients.of(client).test if isinstance(self.clients, LocalDatasets) else self.client_tests[client]
        if test is None:
            return None
        weights = weights.copy() if self.borrows else weights  # no model may change what is trained next
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
        self.load(weights, personal)
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

    def load(self, weights: Vector, personal: Vector | None = None) -> None:
        """Load weights into the model, and reset its counters, such as BatchNorm's count of batches.

        Args:
            weights: the shared parameters and buffers.
            personal: the personal ones; ``None``: their initial values.

        """
        for counter, first in self.counters:
            counter.copy_(first)
        if self.borrows:
            self._use(torch.from_numpy(weights))
            return
        if self.pristine:
            self._flatten()  # W⁰ keeps the memory
            self.pristine = False
        if self.device.type == "cpu":
            np.copyto(self.flat.numpy(), weights)
        else:
            self.flat.copy_(torch.tensor(weights))
        if self.personal:
            self.personal_flat.copy_(torch.tensor(self._initial_personal if personal is None else personal))

    def unload(self) -> Vector:
        """Return the model's weights, as a copy unless this process only trains."""
        return self.flat.numpy() if self.lends else np.array(self.flat.cpu().numpy(), np.float32)

    def personal_part(self) -> Vector:
        """Return the model's personal parameters and buffers, as a copy."""
        return np.array(self.personal_flat.cpu().numpy())

    def client_model(self, weights: Vector, state: Any) -> dict[str, Vector]:
        """Return the complete model of a client: the shared weights and its personal parameters."""
        personal = (state or {}).get(PERSONAL, self._initial_personal)
        parts = self.layout.parts(weights)
        if self.personal:
            parts |= self.personal_layout.parts(personal)
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


def check_model(model: object) -> torch.dtype:
    """Return the precision of a model; raise a ``UsageError`` if it cannot be trained."""
    if not isinstance(model, nn.Module):
        called = isinstance(model, type) or callable(model)
        remedy = "Call it, and use what it returns" if called else "Use a torch.nn.Module"
        raise UsageError("task", f"has a model that is {show_type(model)}, no torch.nn.Module", remedy)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            "task",
            "has a model without any parameter that can be trained",
            "Set requires_grad for the parameters to train",
        )
    dtypes = sorted({parameter.dtype for parameter in model.parameters()}, key=str)
    if dtypes not in ([torch.float32], [torch.float64]):
        raise UsageError(
            "task",
            f"the model has parameters in {' and '.join(map(precision, dtypes))}, and is trained in float32 or float64",
            'Write model.float(); to compute in bfloat16 nevertheless, set training.autocast = "bfloat16"',
        )
    return dtypes[0]


def show_type(value: object) -> str:
    """Describe the type of a value."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def device_of(training: Training) -> torch.device:
    """Return the device; raise a ``UsageError`` if it is not available."""
    name = training.device
    if name == "cpu" or (re.fullmatch(r"cuda(:\d+)?", name) and torch.cuda.is_available()):
        return torch.device(name)
    remedy = "PyTorch finds no CUDA device here; write cpu" if name.startswith("cuda") else "Write cpu, cuda or cuda:N"
    raise UsageError("training.device", f"{show(name)} is not allowed", remedy)
