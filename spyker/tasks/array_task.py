"""A federated task whose model is a dictionary of NumPy arrays and which trains with code of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.tasks.federated_task import ClientInfo, FederatedTask, describe_client
from spyker.tasks.layout import Layout, first_nonfinite
from spyker.tasks.local_data import LocalClients, LocalDatasets, data_of
from spyker.tasks.personal import CENTRAL_NOTE, patterns_of, select_personal
from spyker.tasks.task import SHARED, ClientEvaluation, Task, TrainingResult
from spyker.vectors import Vector


class ArrayTask(Task):
    """The task of a :class:`~spyker.FederatedTask` without PyTorch."""

    local = True

    def __init__(self, clients: LocalClients, model: Mapping[str, Any], training: Training, seed: int) -> None:
        self.definition, self.training, self.seed = clients.definition, training, seed
        self.metric, self.also = clients.definition.metric, ()
        for method in ("train", "evaluate"):
            if not clients.definition.overrides(method):
                problem = f"has a model that is a dictionary, and no method {method}"
                raise UsageError("task", problem, f"Define {method}, or return a torch.nn.Module from model()")
        arrays = {name: np.asarray(part, np.float32) for name, part in model.items()}
        if not arrays:
            raise UsageError("task", "model() returns an empty dictionary", "Return a dictionary of NumPy arrays")
        if (wrong := first_nonfinite(arrays)) is not None:
            raise UsageError("task", f"model() returns weights that are not finite ({wrong})", "Correct their values")
        self.whole = Layout(tuple(arrays), tuple(part.shape for part in arrays.values()))
        self.personal = select_personal(self.whole.names, patterns_of(training, clients.definition.personal))
        shared = {name: part for name, part in arrays.items() if name not in self.personal}
        self.layout = Layout(tuple(shared), tuple(part.shape for part in shared.values()))
        self._initial = self.layout.vector(shared)
        self._initial_personal = {name: arrays[name] for name in arrays if name in self.personal}
        self.clients: LocalDatasets[Any] = LocalDatasets(clients, self._load)
        self.has_test = clients.definition.overrides("test")
        self.evaluates_on_clients = clients.definition.overrides("client_test")
        if self.personal and self.has_test:
            self.notes = (CENTRAL_NOTE,)

    def _load(self, definition: FederatedTask, info: ClientInfo) -> tuple[Any, Any]:
        data, owner = data_of(definition, info), describe_client(info)
        try:
            empty = len(data) == 0
        except TypeError:
            problem = f"{owner} has data without a length ({type(data).__name__})"
            raise UsageError("task", problem, "Return an object whose len() is the number of examples") from None
        if empty:
            raise UsageError("task", f"{owner} has no examples", "Add examples, or leave the client out")
        return data, definition.client_test(info) if self.evaluates_on_clients else None

    def initial(self) -> Vector:
        """Return the initial model."""
        return self._initial

    def size(self, client: int) -> int:
        """Return the length of the client's data."""
        return len(self.clients[client])

    def client_model(self, weights: Vector, state: Any) -> dict[str, Vector]:
        """Return the complete model of a client, or with the initial personal parameters if ``state`` is ``None``."""
        parts = self.layout.parts(weights) | {k: v.copy() for k, v in (state or self._initial_personal).items()}
        return {name: parts[name] for name in self.whole.names}

    def train(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> TrainingResult:
        """Train with the task's own code."""
        data = self.clients[client]
        seed = int(np.random.SeedSequence((self.seed, client, step)).generate_state(1, np.uint32)[0])
        model = self.client_model(weights, state)
        trained = self.definition.train(model, data, rate=rate, seed=seed, training=self.training)
        parts = self._checked(model if trained is None else trained)
        personal = {name: parts[name].copy() for name in self.whole.names if name in self.personal}
        if not all(np.isfinite(part).all() for part in personal.values()):
            raise UsageError("training.rate", "train returned personal parameters that are not finite", "Lower it")
        return TrainingResult(self.layout.vector(parts), len(data), state=personal or None)

    def _checked(self, model: Any) -> dict[str, Vector]:
        """Convert a trained model; raise a ``UsageError`` if names or shapes differ from the initial model."""
        if not isinstance(model, Mapping) or model.keys() != set(self.whole.names):
            names = ", ".join(self.whole.names)
            raise UsageError("task", f"train returned {model!r:.60}", f"Return a dictionary of the arrays {names}")
        parts = {name: np.asarray(model[name], np.float32) for name in self.whole.names}
        for name, shape in zip(self.whole.names, self.whole.shapes, strict=True):
            if parts[name].shape != shape:
                problem = f"train returned {name} in the shape {parts[name].shape}, not {shape}"
                raise UsageError("task", problem, "Return arrays of the same shapes")
        return parts

    @cached_property
    def test(self) -> Any:
        """Central test data, if there is any."""
        return self.definition.test()

    def evaluate(self, weights: Vector) -> float | Mapping[str, float]:
        """Evaluate a model on the central test data."""
        if self.test is None:
            raise UsageError("evaluation.by", "servers is not allowed: the task has no test data", 'Write "clients"')
        return self.definition.evaluate(self.client_model(weights, None), self.test)

    def evaluate_client(self, client: int, weights: Vector, state: Any = None) -> ClientEvaluation | None:
        """Evaluate a model on the client's own test data."""
        test = self.clients.of(client).test
        if test is None:
            return None
        scores = self._judge(self.client_model(weights, state), test)
        if self.personal:
            shared = self._judge(self.client_model(weights, None), test)
            scores |= {f"{SHARED}{name}": score for name, score in shared.items()}
        return ClientEvaluation(len(test), scores)

    def _judge(self, model: dict[str, Vector], test: Any) -> dict[str, float]:
        found = self.definition.evaluate(model, test)
        return dict(found) if isinstance(found, Mapping) else {self.metric.name: float(found)}
