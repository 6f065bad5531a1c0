"""A federated task whose model is a dictionary of NumPy arrays and which trains with code of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.tasks.federated_task import ClientInfo, FederatedTask
from spyker.tasks.layout import Layout
from spyker.tasks.local_data import LocalClients, LocalDatasets
from spyker.tasks.task import ClientEvaluation, Task, TrainingResult
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
        if not arrays or not all(np.isfinite(part).all() for part in arrays.values()):
            raise UsageError("task", "has a model without finite numbers", "Return a dictionary of NumPy arrays")
        self.layout = Layout(tuple(arrays), tuple(part.shape for part in arrays.values()))
        self._initial = self.layout.vector(arrays)
        self.clients: LocalDatasets[Any] = LocalDatasets(clients, self._load)
        self.has_test = clients.definition.overrides("test")
        self.evaluates_on_clients = clients.definition.overrides("client_test")

    def _load(self, definition: FederatedTask, info: ClientInfo) -> tuple[Any, Any]:
        data = definition.data(info)
        try:
            empty = len(data) == 0
        except TypeError:
            problem = f"client {info.name} has data without a length ({type(data).__name__})"
            raise UsageError("task", problem, "Return an object whose len() is the number of examples") from None
        if empty:
            raise UsageError("task", f"client {info.name} has no examples", "Add examples, or leave the client out")
        return data, definition.client_test(info) if self.evaluates_on_clients else None

    def initial(self) -> Vector:
        """Return the initial model."""
        return self._initial

    def size(self, client: int) -> int:
        """Return the length of the client's data."""
        return len(self.clients[client])

    def train(self, client: int, weights: Vector, rate: float, step: int) -> TrainingResult:
        """Train with the task's own code."""
        data = self.clients[client]
        seed = int(np.random.SeedSequence((self.seed, client, step)).generate_state(1, np.uint32)[0])
        model = self.layout.parts(weights)
        trained = self.definition.train(model, data, rate=rate, seed=seed, training=self.training)
        return TrainingResult(self._vector(model if trained is None else trained), len(data))

    def _vector(self, model: Any) -> Vector:
        """Convert a trained model; raise a ``UsageError`` if names or shapes differ from the initial model."""
        if not isinstance(model, Mapping) or model.keys() != set(self.layout.names):
            names = ", ".join(self.layout.names)
            raise UsageError("task", f"train returned {model!r:.60}", f"Return a dictionary of the arrays {names}")
        parts = {name: np.asarray(model[name], np.float32) for name in self.layout.names}
        for name, shape in zip(self.layout.names, self.layout.shapes, strict=True):
            if parts[name].shape != shape:
                problem = f"train returned {name} in the shape {parts[name].shape}, not {shape}"
                raise UsageError("task", problem, "Return arrays of the same shapes")
        return self.layout.vector(parts)

    @cached_property
    def test(self) -> Any:
        """Central test data, if there is any."""
        return self.definition.test()

    def evaluate(self, weights: Vector) -> float | Mapping[str, float]:
        """Evaluate a model on the central test data."""
        if self.test is None:
            raise UsageError("evaluation.by", "servers is not allowed: the task has no test data", 'Write "clients"')
        return self.definition.evaluate(self.layout.parts(weights), self.test)

    def evaluate_client(self, client: int, weights: Vector, state: Any = None) -> ClientEvaluation | None:
        """Evaluate a model on the client's own test data."""
        test = self.clients.of(client).test
        if test is None:
            return None
        found = self.definition.evaluate(self.layout.parts(weights), test)
        scores = dict(found) if isinstance(found, Mapping) else {self.metric.name: float(found)}
        return ClientEvaluation(len(test), scores)
