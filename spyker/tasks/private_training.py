"""DP-SGD: a training in which every single example is protected by differential privacy.

Each step draws a Poisson sample of the examples, clips the gradient of each to ``clip-norm``, adds Gaussian noise to
the sum, and divides by the expected size of the sample. The gradient of an example is computed as if it were alone
(``torch.func.vmap``), so no model or loss can mix examples. What follows a step, such as the optimiser, is
post-processing. Randomness comes from the seed in an emulation, and from the operating system in a deployment.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_map

from spyker.config.kernel_names import TORCH
from spyker.config.privacy_settings import PrivacySettings
from spyker.errors import UsageError
from spyker.extras import require
from spyker.privacy.accounting import FIELD, Booking, Mechanism, epsilon_of, most_trainings, noise_for
from spyker.tasks.kernels import kernel_error
from spyker.tasks.torch_checks import describe, logits_for
from spyker.tasks.torch_data import Batch, InMemoryData, MapStyleData
from spyker.tasks.torch_training import Trainer
from spyker.vectors import Vector

if TYPE_CHECKING:
    from spyker.tasks.torch_task import TorchTask

NOISE = 1  # spawn key of the emulator's noise, apart from that of other random numbers
SMALLEST = 1e-12
AT_ONCE = (
    100  # examples: their gradients are computed in the processor's cache; with 600, CIFAR-10 takes 1.5 times as long
)


class ExamplePrivacy:
    """The checked settings of DP-SGD for the clients of a task."""

    def __init__(self, task: TorchTask, settings: PrivacySettings, *, deployed: bool) -> None:
        """Check that the task supports DP-SGD; ``deployed``: random numbers come from the operating system."""
        require(FIELD, "opacus")
        check_layers(task.model)
        if task.training.kernel != TORCH:
            raise kernel_error(task.training.kernel, "it does not support privacy.unit", "Write torch")
        if task.descent.kind is torch.optim.LBFGS:
            problem = "LBFGS is not allowed: it uses each batch several times, without further noise"
            raise UsageError("training.optimiser", problem, "Use sgd or adam with privacy.unit")
        self.settings, self.deployed = settings, deployed
        self._batch = task.training.batch_size * (task.training.accumulate or 1)
        self._epochs = task.training.epochs
        self._booked: dict[int, Mechanism] = {}  # of the next training of a client in a deployment
        self._most: dict[Mechanism, int] = {}

    def mechanism(self, examples: int) -> Mechanism:
        """Return what one training of a client with this number of examples does."""
        settings, steps = self.settings, math.ceil(examples / self._batch)
        rate, noise = 1 / steps, settings.noise_multiplier
        if noise is None:
            assert settings.epsilon is not None
            assert settings.trainings is not None
            every = steps * self._epochs * settings.trainings
            noise = noise_for(settings.epsilon, settings.delta, rate, every)
        return Mechanism(noise, rate, steps * self._epochs)

    def next_cost(self, client: int, examples: int) -> Mechanism:
        """Return the mechanism of the client's next training, which uses it even if the data changes meanwhile."""
        self._booked[client] = found = self.mechanism(examples)
        return found

    def take(self, client: int, examples: int, step: int) -> Mechanism:
        """Return the mechanism of a training that begins now.

        Raises:
            UsageError: an emulated client has spent its budget. The ledger ensures that in a deployment.

        """
        if self.deployed:
            if client not in self._booked:
                raise RuntimeError(f"client {client} trains without having booked the cost")
            return self._booked.pop(client)
        mechanism = self.mechanism(examples)
        if step >= self.most(mechanism):
            problem = f"client {client} has spent its privacy budget with {step:,} trainings"
            raise UsageError("privacy", problem, "Raise epsilon or trainings")
        return mechanism

    def most(self, mechanism: Mechanism) -> int:
        """Return how many trainings the budget allows."""
        settings = self.settings
        if settings.noise_multiplier is None or settings.epsilon is None:
            assert settings.trainings is not None
            return settings.trainings  # the noise was computed for them, or there is no other limit
        if mechanism not in self._most:
            self._most[mechanism] = most_trainings(mechanism, settings.epsilon, settings.delta)
        return min(self._most[mechanism], settings.trainings or self._most[mechanism])

    def spent(self, trainings: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Return the highest ε among clients with these numbers of examples and trainings."""
        made: dict[Mechanism, int] = {}
        for examples, count in trainings:
            mechanism = self.mechanism(examples)
            made[mechanism] = max(count, made.get(mechanism, 0))
        delta = self.settings.delta
        highest = max((epsilon_of([Booking(each, count)], delta) for each, count in made.items()), default=0.0)
        most = max(made.values(), default=0)
        return {"unit": self.settings.unit, "epsilon": highest, "delta": delta, "trainings": most}

    def seed(self, task_seed: int, client: int, step: int) -> int:
        """Return the seed of a training's noise and samples."""
        if self.deployed:
            return secrets.randbits(64)
        return int(np.random.SeedSequence((task_seed, client, step, NOISE)).generate_state(1, np.uint64)[0])


def check_layers(model: nn.Module) -> None:
    """Raise a ``UsageError`` that names a layer whose output or buffers depend on several examples."""
    for name, layer in model.named_modules():
        batch = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if batch or (isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats):
            raise UsageError(
                FIELD,
                f"example is not allowed: the layer {name or 'of the model'} is {type(layer).__name__}, which mixes "
                "the examples of a batch",
                "Replace it by torch.nn.GroupNorm" if batch else "Set track_running_stats=False",
            )


class PrivateTrainer(Trainer):
    """One training with DP-SGD."""

    def __init__(self, task: TorchTask, client: int, weights: Vector, rate: float, step: int, state: Any) -> None:
        super().__init__(task, client, weights, rate, step, state)
        if not isinstance(self.data, InMemoryData | MapStyleData):
            problem = f"example is not allowed: the data of client {client} has an order of its own"
            raise UsageError(FIELD, problem, "Give tensors, columns or a map-style dataset")
        assert task.privacy is not None
        self.privacy, self.examples = task.privacy, self.data
        self.mechanism = self.privacy.take(client, self.data.count, step)
        seed = self.privacy.seed(task.seed, client, step)
        self.generator = torch.Generator().manual_seed(seed)
        task.seed_all(seed ^ 1)  # dropout
        self.seen = self.data.count

    @property
    def direct(self) -> bool:
        """Whether each parameter gets a gradient of its own: no, the gradients of examples are summed in one vector."""
        return False

    def _descend(self) -> Iterator[tuple[list[Batch], Tensor]]:
        """Yield the batches and the loss of each step."""
        task, training = self.task, self.task.training
        self._begin()
        self.trainable = {name: p for name, p in task.model.named_parameters() if p.requires_grad}
        per_epoch = max(1, self.mechanism.steps // training.epochs)
        for number in range(self.mechanism.steps):
            if number % per_epoch == 0:
                self.steps.epoch(self.step * training.epochs + number // per_epoch)
            chosen = torch.rand(self.examples.count, generator=self.generator) < self.mechanism.sample_rate
            pieces = chosen.nonzero().squeeze(1).split(training.batch_size) if bool(chosen.any()) else ()
            batches = [self.examples.select(which) for which in pieces]
            yield batches, self.steps.step(lambda batches=batches: self._noisy_gradient(batches))  # type: ignore[misc]

    def _noisy_gradient(self, batches: list[Batch]) -> Tensor:
        """Compute the noisy mean gradient of a step in place, and return the mean loss; an empty sample is noise."""
        task, settings = self.task, self.privacy.settings
        task.flat.gradient.zero_()
        losses = [self._add_clipped(batch) for batch in batches]
        size = self.examples.count * self.mechanism.sample_rate
        for parameter in self.trainable.values():
            assert parameter.grad is not None
            noise = torch.randn(parameter.shape, generator=self.generator, dtype=parameter.dtype)
            parameter.grad.add_(noise.to(task.device), alpha=self.mechanism.noise * settings.clip_norm).div_(size)
        self._restrain()
        return torch.cat(losses).mean() if losses else torch.zeros(())

    def _add_clipped(self, batch: Batch) -> Tensor:
        """Add the clipped gradients of the examples, and return their losses."""
        task = self.task
        buffers = {name: b.clone() for name, b in task.model.named_buffers()}  # trained models keep those received

        def loss_of(parameters: dict[str, Tensor], example: Any) -> Tensor:
            inputs, named, targets = tree_map(lambda part: part.unsqueeze(0), example)
            with task.autocast():
                outputs = functional_call(task.model, (parameters, buffers), tuple(inputs), named)
                return task.loss(logits_for(task.loss, outputs), targets)

        values = {name: p.detach() for name, p in self.trainable.items()}
        example = (batch.inputs, batch.named, batch.targets)
        try:
            gradients = vmap(grad_and_value(loss_of), (None, 0), randomness="different", chunk_size=AT_ONCE)
            found, losses = gradients(values, example)
        except Exception as error:
            error.add_note(
                f"client {self.client}, its training number {self.step}: computing the gradient of each example of "
                f"{describe(batch)}, as privacy.unit = example requires"
            )
            raise
        norms = sum(g.flatten(1).square().sum(1) for g in found.values()).sqrt()
        scale = (self.privacy.settings.clip_norm / norms.clamp(min=SMALLEST)).clamp(max=1.0)
        scale = torch.where(torch.isfinite(norms), scale, 0.0)
        for name, parameter in self.trainable.items():
            assert parameter.grad is not None
            finite = torch.nan_to_num(found[name], 0.0, 0.0, 0.0)  # an example whose gradient overflows counts as none
            parameter.grad.add_(torch.tensordot(scale.to(finite.dtype), finite, 1))
        clean: Tensor = losses.detach()
        return clean
