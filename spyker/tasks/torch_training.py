"""One training of a client of a :class:`~spyker.tasks.torch_task.TorchTask`, and the explanation of a divergence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spyker.errors import UsageError
from spyker.tasks.kernels import Kernel
from spyker.tasks.torch_checks import describe, logits_for
from spyker.tasks.torch_data import Batch, InMemoryData
from spyker.vectors import Vector

if TYPE_CHECKING:
    from spyker.tasks.torch_task import TorchTask


OPTIMISER, PERSONAL = "optimiser", "personal"  # keys of a client's state
LARGE = 8 << 20  # parameters from which on memory counts more than the number of operations


class Trainer:
    """One training. It uses the task's model, so only one may run at a time."""

    def __init__(self, task: TorchTask, client: int, weights: Vector, rate: float, step: int, state: Any) -> None:
        self.task, self.client, self.weights, self.rate, self.step = task, client, weights, rate, step
        self.state = state or {}
        self.seen = 0  # examples, in the last epoch
        self.loss = 0.0  # the mean of all examples, if it is to be reported
        self.explains = False  # this training is repeated to explain it
        self.data = task.clients[client].open(task.device, step)
        task.seed_all(int(np.random.SeedSequence((task.seed, client, step)).generate_state(1, np.uint64)[0]))

    @property
    def direct(self) -> bool:
        """Whether each parameter gets a gradient of its own, which takes less memory than one vector of them all."""
        descent, training = self.task.descent, self.task.training
        plain = descent.plain and descent.clip_norm is None and not training.proximal and not self.explains
        return plain and training.accumulate in (None, 1) and self.task.flat.trained.numel() > LARGE

    def with_kernel(self, kernel: Kernel) -> Vector:
        """Train with a kernel other than PyTorch."""
        assert isinstance(self.data, InMemoryData)
        whole, epochs = self.data.whole, self.task.training.epochs
        self.seen = whole.count
        orders = [torch.randperm(whole.count) for _ in range(epochs)]
        return kernel.train(self.weights, whole.inputs[0], whole.targets, orders, self.rate, self.task.training)

    def train(self) -> Vector:
        """Train with PyTorch."""
        total, count = 0.0, 0
        for batches, loss in self._descend():
            if self.task.training.report_loss:
                examples = sum(batch.count for batch in batches)
                total += float(loss) * examples
                count += examples
        self.loss = total / max(count, 1)
        return self.task.flat.unload()

    def new_state(self) -> dict[str, Any] | None:
        """Return the state for the client's next training, or ``None``."""
        optimiser = self.steps.state()
        state: dict[str, Any] = {} if optimiser is None else {OPTIMISER: optimiser}
        if self.task.personal:
            state[PERSONAL] = self.task.flat.personal_part()
        return state or None

    def _begin(self) -> None:
        """Load the model and start the optimiser."""
        task, flat = self.task, self.task.flat
        flat.load(self.weights, self.state.get(PERSONAL))
        self.anchor = None
        if self.direct:
            flat.without_gradients()
        else:
            flat.with_gradients()
            self.received, self.received_gradient = flat.received()
            self.anchor = self.received.clone() if task.training.proximal else None
        state = self.state.get(OPTIMISER)
        self.steps = task.descent.begin(flat.trained, flat.parameters, self.rate, state, direct=self.direct)
        task.model.train()

    def _descend(self) -> Iterator[tuple[list[Batch], Tensor]]:
        """Yield the batches and the loss of each step."""
        task, training = self.task, self.task.training
        self._begin()
        for epoch in range(training.epochs):
            self.steps.epoch(self.step * training.epochs + epoch)
            self.seen = 0
            every = (b for b in self.data.shuffled(training.batch_size) if b.count > 1 or not task.needs_two)
            while batches := list(islice(every, training.accumulate or 1)):
                self.seen += sum(batch.count for batch in batches)
                yield batches, self.steps.step(lambda batches=batches: self._gradient(batches))  # type: ignore[misc]
            if not self.seen:
                raise UsageError(
                    "task", f"client {self.client} gives no example", "Add examples, or leave the client out"
                )

    def _gradient(self, batches: list[Batch]) -> Tensor:
        """Compute the gradient of a step in place, and return the mean loss over its examples."""
        if self.direct:
            self.task.flat.without_gradients()
        else:
            self.task.flat.gradient.zero_()
        examples = sum(batch.count for batch in batches)
        losses = [self._backward(batch, batch.count / examples) for batch in batches]
        self._restrain()
        return sum(losses[1:], losses[0])

    def _restrain(self) -> None:
        """Add the gradient of the proximal term, and clip the whole."""
        task = self.task
        if self.anchor is not None:
            self.received_gradient.add_(self.received - self.anchor, alpha=task.training.proximal)
        if task.descent.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([task.flat.trained], task.descent.clip_norm)

    def _backward(self, batch: Batch, share: float) -> Tensor:
        """Add the gradient of a batch, weighted by its ``share`` of the step's examples; return its weighted loss."""
        task = self.task
        try:
            with task.autocast():
                loss = task.loss(logits_for(task.loss, task.model(*batch.inputs, **batch.named)), batch.targets)
            if share < 1:
                loss = loss * share
            loss.backward()
        except Exception as error:
            error.add_note(f"client {self.client}, its training number {self.step}: the batch is {describe(batch)}")
            raise
        return loss.detach()

    def explain(self) -> str:
        """Describe the first step whose numbers are not finite."""
        task, number, self.explains = self.task, 0, True
        for number, (batches, loss) in enumerate(self._descend(), 1):
            if not all(bool(torch.isfinite(part).all()) for part in (task.flat.shared, task.flat.personal, loss)):
                for batch in batches:
                    broken = any(not_finite(part) for part in [*batch.inputs, *batch.named.values()])
                    if broken or not_finite(batch.targets):
                        what = "an input" if broken else "a target"
                        return (
                            f"{what} in its minibatch {number} is NaN or infinite ({describe(batch)}). Clean the data"
                        )
                remedy = "Lower training.rate" + ("" if task.descent.clip_norm else ", or set training.clip-norm")
                return (
                    f"in its minibatch {number} the loss was {float(loss):.4g} and the gradient's norm "
                    f"{float(task.flat.gradient.norm()):.4g}, at the rate {self.steps.rate:g}. {remedy}"
                )
        return f"its {number} minibatches, repeated, led to finite numbers"


def not_finite(part: Any) -> bool:
    """Return whether any number is NaN or infinite."""
    return isinstance(part, Tensor) and part.is_floating_point() and not bool(torch.isfinite(part).all())
