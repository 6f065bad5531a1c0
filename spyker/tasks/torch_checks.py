"""Checks of a PyTorch task before training: model, data, loss and scores must fit together.

Two examples of the first client and two of the test data are evaluated once. This changes neither the model nor the
state of random generators. Errors that only training reveals are reported there.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spyker.config.kernel_names import TORCH
from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.tasks.checked_task import first_line
from spyker.tasks.kernels import kernel_error
from spyker.tasks.layout import first_nonfinite
from spyker.tasks.torch_data import Batch, DataLoaderData, DataProblemError, DataSource, InMemoryData, shape

TWO = "the model has BatchNorm layers that train on at least two examples at a time"
DEFAULT_BATCH = Training().batch_size
TRIAL = 2  # examples: with one alone, a sum over examples looks like one per example


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return for each example whether the largest output is the target."""
    return (outputs.argmax(1) == targets).float()


def data_error(dataset: str, problem: str, remedy: str) -> UsageError:
    """Return an error about a client's data or the test data."""
    return UsageError("task", f"{dataset}: {problem}", remedy)


def describe(batch: Batch) -> str:
    """Describe a batch."""
    parts = [*(f"inputs {shape(part)}" for part in batch.inputs)]
    parts += [f"{name} {shape(part)}" for name, part in batch.named.items()]
    return ", ".join([*parts, f"targets {shape(batch.targets)}"])


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


def check_training(training: Training, dtype: torch.dtype, *, personal: bool) -> None:
    """Raise a ``UsageError`` if ``[training]`` does not suit the model's precision or its personal parameters."""
    if training.autocast is not None and dtype != torch.float32:
        problem = f"{show(training.autocast)} is not allowed: the model is in {precision(dtype)}"
        raise UsageError("training.autocast", problem, "Write model.float()")
    if training.kernel != TORCH and dtype != torch.float32:
        raise kernel_error(training.kernel, f"the model is in {precision(dtype)}", "Write model.float()")
    if training.kernel != TORCH and personal:
        raise kernel_error(training.kernel, "it does not support training.personal", "Leave personal out")


def check_finite(model: nn.Module, described: str) -> None:
    """Raise a ``UsageError`` if a parameter or buffer of the initial model is not finite."""
    for name, part in (*model.named_parameters(), *model.named_buffers()):
        if part.is_floating_point():
            wrong = first_nonfinite({name: part.detach().float().cpu().numpy()})
            if wrong is not None:
                problem = f"{described} weights that are not finite ({wrong})"
                raise UsageError("task", problem, "Correct how the model is initialised")


def check_alike(clients: Sequence[DataSource]) -> None:
    """Check that in-memory datasets have examples of the same shape and type."""
    first = clients[0]
    if not isinstance(first, InMemoryData):
        return
    for k, other in enumerate(clients):
        if not isinstance(other, InMemoryData):
            continue
        if other.parts.keys() != first.parts.keys():
            theirs, ours = ", ".join(other.parts), ", ".join(first.parts)
            raise data_error(f"client {k}", f"has {theirs}, and client 0 {ours}", "Give all clients the same columns")
        for name, part in other.parts.items():
            model = first.parts[name]
            if part.shape[1:] != model.shape[1:] or part.dtype != model.dtype:
                what = name.removesuffix(" 0")
                raise data_error(
                    f"client {k}",
                    f"{what} are {shape(part)}, and those of client 0 {shape(model)}",
                    "Give all clients examples of one shape and type, or TorchTask a collate_fn that makes them so",
                )


def check_classes(source: DataSource, classes: int, owner: str) -> None:
    """Check that in-memory labels are within the model's classes."""
    targets = source.whole.targets if isinstance(source, InMemoryData) else None
    if isinstance(targets, Tensor) and targets.dtype == torch.int64 and targets.numel():
        low, high = int(targets.min()), int(targets.max())
        if (low < 0 and low != -100) or high >= classes:  # -100 is what cross-entropy leaves out
            wrong = high if high >= classes else low
            raise data_error(
                owner,
                f"has a target {wrong}, and the model {classes} outputs, for the classes 0 to {classes - 1}",
                "Give the model as many outputs as there are classes, and count those from 0",
            )


def check_batches(source: DataSource, size: int, owner: str) -> None:
    """Check that ``training.batch-size`` does not contradict a DataLoader."""
    if isinstance(source, DataLoaderData) and size not in (DEFAULT_BATCH, source.loader.batch_size):
        raise UsageError(
            "training.batch-size",
            f"is {size}, and {owner} has a DataLoader with batches of {source.loader.batch_size}",
            "Leave it out, or give the dataset instead of the DataLoader",
        )


def first_batch(source: DataSource, device: torch.device, dataset: str) -> Batch:
    """Return a batch of two examples."""
    try:
        batch = next(source.open(device).in_order(TRIAL), None)
    except DataProblemError as problem:
        raise data_error(dataset, problem.problem, problem.remedy) from None
    if batch is None:
        raise data_error(dataset, "has no examples", "Add examples, or leave the client out")
    return batch


def outputs_of(model: nn.Module, batch: Batch, dataset: str) -> Any:
    """Return the model's outputs for a batch; raise a ``UsageError`` that describes the batch if it fails."""
    try:
        return model(*batch.inputs, **batch.named)
    except Exception as error:
        given = {part.dtype for part in [*batch.inputs, *batch.named.values()] if isinstance(part, Tensor)}
        double = next(model.parameters()).dtype == torch.float64
        remedy = "Change the model's first layer, or the data"
        if double and torch.float32 in given:
            remedy = "The model is in float64: write inputs.double(), or model.float()"
        elif not double and (torch.float64 in given or (integers(given) and "type" in str(error))):
            remedy = 'Write inputs.float(); of a NumPy array inputs.astype("float32")'
        raise data_error(dataset, f"the model does not take {describe(batch)} ({first_line(error)})", remedy) from error


def logits_for(function: Callable[[Any, Any], Any], outputs: Any) -> Any:
    """Return the outputs in the form that a loss or score expects.

    Functions of PyTorch and Spyker get the logits; the user's functions get the outputs unchanged.
    """
    if isinstance(outputs, Tensor):
        return outputs
    while isinstance(function, functools.partial):
        function = function.func
    of_others = str(getattr(function, "__module__", "")).startswith(("torch", "spyker."))
    return logits_of(outputs) if of_others and logits_of(outputs) is not None else outputs


def logits_of(outputs: Any) -> Any:
    """Return the logits among a model's outputs, or ``None``."""
    return outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)


def loss_of(loss: Callable[[Any, Any], Any], outputs: Any, batch: Batch, dataset: str) -> Tensor:
    """Return the loss of a batch as one number."""
    given = f"outputs {shape(outputs)} and targets {shape(batch.targets)}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = loss(logits_for(loss, outputs), batch.targets)
        except Exception as error:
            remedy = "Define the method loss, or give TorchTask another loss=…"
            if inspect.ismethod(loss):
                remedy = "Correct the method loss"
            if not isinstance(outputs, Tensor) and logits_of(outputs) is not None:
                remedy = "Compute the loss of outputs.logits"
            elif isinstance(error, IndexError) and "out of bounds" in str(error):
                remedy = "Count the classes from 0, and give the model an output for each"
            elif loss is nn.functional.cross_entropy and one_hot(outputs, batch.targets):
                remedy = ONE_HOT
            elif loss is nn.functional.cross_entropy and "float" in shape(batch.targets):
                remedy = "Labels are integers: write targets.long()"
            raise data_error(dataset, f"the loss does not take {given} ({first_line(error)})", remedy) from error
    if any("target size" in str(warning.message) for warning in caught):
        raise data_error(
            dataset,
            f"the loss compares {given}, every output with every target",
            "Give both the same shape: targets.unsqueeze(1), or a model that ends with nn.Flatten(0)",
        )
    if not isinstance(found, Tensor) or found.numel() != 1:
        raise data_error(
            dataset, f"the loss of {given} is {shape(found)}, not one number", "Return the mean: loss.mean()"
        )
    return found


def integers(types: Collection[torch.dtype]) -> bool:
    """Return whether all of these types are integers."""
    return bool(types) and not any(each.is_floating_point or each.is_complex for each in types)


ONE_HOT = "Labels are numbers from 0, one per example: write targets.argmax(1)"


def one_hot(outputs: Any, targets: Any) -> bool:
    """Return whether targets are one-hot vectors: one element per class, all zero but one."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor) and targets.dim() == 2):
        return False
    return targets.shape == outputs.shape and targets.shape[1] > 1 and bool(((targets != 0).sum(1) == 1).all())


def check_accuracy(outputs: Any, targets: Any) -> None:
    """Raise a ``UsageError`` if targets are not classes, for which alone accuracy is a score."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
        return
    given = f"outputs {shape(outputs)} and targets {shape(targets)}"
    if one_hot(outputs, targets):
        raise UsageError("task", f"accuracy, the default score, does not take {given}", ONE_HOT)
    if targets.is_floating_point() and (outputs.dim() < 2 or outputs.shape[1] == 1 or targets.dim() > 1):
        remedy = "Define score and metric, the score of each example and its name and direction"
        raise UsageError("task", f"accuracy, the default score, is for classes, and does not take {given}", remedy)


def scores_of(score: Callable[[Any, Any], Any], name: str, outputs: Any, batch: Batch) -> Tensor:
    """Return the scores of a batch, one number per example."""
    found = score(logits_for(score, outputs), batch.targets)
    if not isinstance(found, Tensor) or found.shape != (batch.count,):
        remedy = "Return one number per example; Spyker takes the mean, over all batches"
        if isinstance(found, Tensor) and found.dim() == 0:
            remedy = "Leave out .mean() or .sum(): Spyker takes the mean itself, over all batches"
        elif not isinstance(found, Tensor):
            remedy = "Return a tensor with one number per example; Spyker takes the mean, over all batches"
        raise UsageError(
            "task",
            f"the score of {name} is {shape(found)} for {batch.count} examples (outputs {shape(outputs)}, targets "
            f"{shape(batch.targets)})",
            remedy,
        )
    return found


@contextlib.contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode, and restore it and the random generators afterwards."""
    mode = model.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model.train(mode=False)
        try:
            yield
        finally:
            model.train(mode=mode)


def try_out(
    model: nn.Module,
    train: DataSource,
    loss: Callable[[Any, Any], Any],
    device: torch.device,
    owner: str,
    clients: Mapping[str, DataSource],
) -> Batch:
    """Compute the loss of a few examples, and return these. The labels of all ``clients`` must be model's classes."""
    with trial(model):
        batch = first_batch(train, device, owner)
        outputs = outputs_of(model, batch, owner)
        logits = logits_for(loss, outputs)
        if loss is nn.functional.cross_entropy and isinstance(logits, Tensor) and logits.dim() > 1:
            for client, each in clients.items():
                check_classes(each, logits.shape[1], client)
        loss_of(loss, outputs, batch, owner)
    return batch


def try_scores(
    model: nn.Module,
    test: DataSource,
    scores: Sequence[tuple[str, Callable[[Any, Any], Any]]],
    device: torch.device,
    owner: str,
) -> None:
    """Compute the scores of a few test examples."""
    with trial(model):
        batch = first_batch(test, device, owner)
        outputs = outputs_of(model, batch, owner)
        for name, score in scores:
            if score is accuracy:
                check_accuracy(logits_for(score, outputs), batch.targets)
            try:
                scores_of(score, name, outputs, batch)
            except UsageError:
                raise
            except Exception as error:
                given = f"outputs {shape(outputs)} and targets {shape(batch.targets)}"
                problem = f"the score of {name} does not take {given} ({first_line(error)})"
                raise data_error(owner, problem, "Correct score") from error


@torch.no_grad()
def needs_two(model: nn.Module, batch: Batch) -> bool:
    """Return whether BatchNorm needs more than one example per batch."""
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        return False
    mode, before = model.training, [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[]):
        model.train()
        try:
            model(*first(batch.inputs), **first(batch.named))
        except Exception as error:  # other errors are reported during training
            return "more than 1 value per channel" in str(error)
        finally:
            model.train(mode=mode)
            for buffer, value in before:
                buffer.copy_(value)
    return False


def first(value: Any) -> Any:
    """Return the first example of a batch of nested tensors."""
    if isinstance(value, Tensor):
        return value[:1]
    if isinstance(value, Mapping):
        return {key: first(part) for key, part in value.items()}
    return type(value)(map(first, value)) if isinstance(value, tuple | list) else value


def check_pairs(source: DataSource, size: int, owner: str) -> None:
    """Raise a ``UsageError`` for a client that never has two examples in a batch."""
    if source.count == 1:
        raise data_error(owner, f"has one example, and {TWO}", "Add examples, or leave the client out")
    if isinstance(source, DataLoaderData):
        if source.loader.batch_size == 1:
            raise data_error(owner, f"has a DataLoader with batches of one, and {TWO}", "Make them larger")
    elif size == 1:
        raise UsageError("training.batch-size", f"1 is not allowed: {TWO}", "Write at least 2")


def precision(dtype: torch.dtype) -> str:
    """Return the name of a dtype."""
    return str(dtype).removeprefix("torch.")
