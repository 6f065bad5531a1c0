"""Any PyTorch model with any datasets, one per client, as a task.

The model's parameters and floating-point buffers become views of one flat vector, and their gradients views of
another. So a model is loaded with one copy, an SGD step is one operation, and the weights that travel are the memory
that was trained.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from spyker.config.scenario import Training
from spyker.config.sections import ScenarioError, show
from spyker.learn.layout import Layout
from spyker.learn.native.kernel import kernel_for
from spyker.learn.task import Metric, Task
from spyker.vectors import Vector

Examples: TypeAlias = tuple[Tensor, Tensor]
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
EVALUATION_BATCH = 256  # what a processor has in its cache; with 1,024, CIFAR-10 takes 1.7 times as long
warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # and we do not write to it
MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class Later:
    """A dataset of ``count`` examples that is read anew whenever it is needed, and not kept: for data whose source is
    fast, shared among processes, and smaller than the tensors made of it.
    """

    count: int
    read: Callable[[], Examples]


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each example, whether the largest output is the right one."""
    return (outputs.argmax(1) == targets).float()


class TorchTask(Task):
    """A model, the clients' datasets and the data to judge it by.

    Datasets are ``(inputs, targets)`` pairs of tensors or map-style datasets, each read once and kept in memory, or
    :class:`Later`. ``loss(outputs, targets)`` is minimised; ``score(outputs, targets)`` gives one number per example,
    and the metric is ``finish`` of their mean. W⁰ is the model as it is handed over.
    """

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[Examples | Dataset[Examples] | Later],
        test: Examples | Dataset[Examples] | Later,
        training: Training,
        *,
        seed: int = 0,
        loss: Loss = nn.functional.cross_entropy,
        score: Loss = accuracy,
        finish: Callable[[float], float] = float,
        metric: Metric = Task.metric,
    ) -> None:
        self.device = device_of(training)
        self.model, self.loss, self.score, self.finish, self.metric = model, loss, score, finish, metric
        self.training, self.seed = training, seed
        self.clients = [as_later(dataset) for dataset in clients]
        self.test = as_later(test)
        self._flatten()
        self._initial = self.unload()
        self.native = None
        if training.kernel == "native":
            self.native = kernel_for(model, self.clients[0].read()[0].shape[1:], loss, training)

    def _flatten(self) -> None:
        """Move the model into one vector."""
        self.model.to(self.device)
        parameters = dict(self.model.named_parameters())
        buffers = {name: b for name, b in self.model.named_buffers() if b.is_floating_point()}
        parts = parameters | buffers
        self.layout = Layout(tuple(parts), tuple(tuple(p.shape) for p in parts.values()))
        self.flat = torch.cat([flattened(part.detach()).float() for part in parts.values()])
        self.gradient = torch.zeros(sum(p.numel() for p in parameters.values()), device=self.device)
        self.trained = self.flat[: self.gradient.numel()]
        self.trained.grad = self.gradient
        start = 0
        for part in parts.values():
            stop = start + part.numel()
            part.data = shaped(self.flat[start:stop], part.shape)
            if isinstance(part, nn.Parameter):
                part.grad = shaped(self.gradient[start:stop], part.shape)
            start = stop

    def __getstate__(self) -> dict[str, object]:
        """Without the views of the flat vectors, which would come back as copies."""
        return {key: value for key, value in vars(self).items() if key not in ("flat", "gradient", "trained")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._flatten()

    def mix(self, target: Vector, source: Vector, weight: float, out: Vector) -> None:
        """One vectorised pass, which is twice as fast on large models as NumPy's three in blocks."""
        torch.lerp(torch.from_numpy(target), torch.from_numpy(source), weight, out=torch.from_numpy(out))

    def initial(self) -> Vector:
        """The weights that the model came with."""
        return self._initial.copy()

    def size(self, client: int) -> int:
        """The length of the client's dataset."""
        return self.clients[client].count

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        """Minibatches for some epochs, in an order that follows from the seed, the client and the step."""
        inputs, targets = (tensor.to(self.device) for tensor in self.clients[client].read())
        self.seed_all(int(np.random.SeedSequence((self.seed, client, step)).generate_state(1, np.uint64)[0]))
        if self.native is not None:
            orders = [torch.randperm(len(targets)) for _ in range(self.training.epochs)]
            return self.native.train(weights, inputs, targets, orders, rate, self.training)
        self.load(weights)
        anchor = self.trained.clone() if self.training.proximal else None
        descend = self.descent(rate)
        self.model.train()
        for _ in range(self.training.epochs):
            for batch in torch.randperm(len(targets)).to(self.device).split(self.training.batch_size):
                self.gradient.zero_()
                self.loss(self.model(inputs[batch]), targets[batch]).backward()
                if anchor is not None:
                    self.gradient.add_(self.trained - anchor, alpha=self.training.proximal)
                descend()
        return self.unload()

    def descent(self, rate: float) -> Callable[[], object]:
        """One step along the gradient, for all parameters at once."""
        match self.training.optimiser:
            case "momentum":
                return torch.optim.SGD([self.trained], lr=rate, momentum=MOMENTUM).step
            case "adam":
                return torch.optim.Adam([self.trained], lr=rate).step
        return lambda: self.trained.add_(self.gradient, alpha=-rate)

    def seed_all(self, seed: int) -> None:
        """Seed what draws random numbers in training: the order of the data, dropout."""
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes fifty times as long
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    @torch.no_grad()
    def evaluate(self, weights: Vector) -> float:
        """The mean score over the test data, finished."""
        self.load(weights)
        self.model.train(mode=False)
        outputs = self.model if self.native is None else partial(self.native.outputs, weights)
        inputs, targets = self.test.read()
        batches = zip(inputs.split(EVALUATION_BATCH), targets.split(EVALUATION_BATCH), strict=True)
        total = 0.0
        for x, y in batches:
            total += float(self.score(outputs(x.to(self.device)), y.to(self.device)).sum())
        return self.finish(total / len(targets))

    def load(self, weights: Vector) -> None:
        """Make ``weights`` the model's."""
        if self.device.type == "cpu":
            np.copyto(self.flat.numpy(), weights)
        else:
            self.flat.copy_(torch.tensor(weights))

    def unload(self) -> Vector:
        """The model's weights, as a vector of their own."""
        return np.array(self.flat.cpu().numpy())

    def state_dict(self, weights: Vector) -> dict[str, Tensor]:
        """The weights as PyTorch knows them, by name."""
        return {name: torch.from_numpy(part) for name, part in self.layout.parts(weights).items()}


def device_of(training: Training) -> torch.device:
    """Where to compute, if that is possible here."""
    name = training.device
    if name == "cpu" or (re.fullmatch(r"cuda(:\d+)?", name) and torch.cuda.is_available()):
        return torch.device(name)
    remedy = "PyTorch finds no CUDA device here; write cpu" if name.startswith("cuda") else "Write cpu, cuda or cuda:N"
    raise ScenarioError("training.device", f"is {show(name)}", remedy)


def flattened(part: Tensor) -> Tensor:
    """A part of the model as a piece of the vector. Convolutions are much faster on channels-last weights."""
    return part.permute(0, 2, 3, 1).reshape(-1) if part.dim() == 4 else part.reshape(-1)


def shaped(piece: Tensor, shape: Sequence[int]) -> Tensor:
    """A piece of the vector in the shape of its part: a view, the inverse of :func:`flattened`."""
    if len(shape) == 4:
        out, channels, height, width = shape
        return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
    return piece.view(*shape)


def as_later(dataset: Examples | Dataset[Examples] | Later) -> Later:
    """Whatever the user has, in one form; images as channels-last, which is faster on a CPU."""
    if isinstance(dataset, Later):
        read = dataset.read
        return Later(dataset.count, lambda: channels_last(read()))
    examples = channels_last(as_examples(dataset))
    return Later(len(examples[1]), lambda: examples)


def as_examples(dataset: Examples | Dataset[Examples]) -> Examples:
    """Read a dataset into two tensors."""
    if isinstance(dataset, TensorDataset):
        inputs, targets = dataset.tensors
    elif isinstance(dataset, tuple):
        inputs, targets = dataset
    else:
        pairs = [dataset[i] for i in range(len(dataset))]  # type: ignore[arg-type]
        inputs = torch.stack([torch.as_tensor(x) for x, _ in pairs])
        targets = torch.stack([torch.as_tensor(y) for _, y in pairs])
    return inputs, targets


def channels_last(examples: Examples) -> Examples:
    """Lay images out in memory such that the colours of a pixel are neighbours."""
    inputs, targets = examples
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs, targets
