"""A Flower app as a task: the app has data and training; Spyker schedules clients, models and learning rates."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from flwr.app import MessageType
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from spyker.config.scenario import Training
from spyker.config.suggest import listed
from spyker.errors import FlowerError, UsageError
from spyker.flower.arrays import ArrayMismatchError, NamedArrays, NDArray
from spyker.flower.client_calls import ClientAppCaller, ClientReply, seed_all
from spyker.flower.initial_arrays import as_arrays
from spyker.flower.learning_rate import KEYS, AppLearningRate, find_rate, rate_entries
from spyker.flower.project import find_object, find_project, read_pairs
from spyker.flower.server_app import ServerAppSetup, first_model_of_client, run_server_app
from spyker.flower.setup_file import read_setup, write_setup
from spyker.tasks.task import ClientEvaluation, Metric, Task, TrainingResult
from spyker.vectors import Vector

RATE, AGE, ROUND = "spyker-rate", "spyker-age", "server-round"
"""Keys of the configuration that an app is sent."""
LOWER = ("loss", "error", "mse", "mae", "rmse", "perplexity", "entropy")


def find_app(options: Any) -> ClientApp:
    """The ClientApp."""
    return find(options.app, "task.app", ClientApp)


def find(name: str, where: str, kind: type[Any]) -> Any:
    """Import an app by name."""
    app = find_object(name, where, "app")
    if not isinstance(app, kind):
        raise UsageError(where, f"{name} is a {type(app).__name__}", f"Name a {kind.__name__}")
    return app


def make(options: Any, clients: int, seed: int, set_rate: float | None) -> Task:
    """Create the task, which runs the ServerApp. ``set_rate`` is the scenario's learning rate, if set."""
    caller = make_caller(options, clients, seed)
    server = options.server or find_project(options.app).server
    if options.setup is not None:
        setup = read_setup(Path(options.setup))
    else:
        setup = ServerAppSetup() if server is None else run_server_app(find(server, "task.server", ServerApp), caller)
    return FlowerTask(options, caller, setup, first_model(options, caller, setup), set_rate)


def make_caller(options: Any, clients: int, seed: int) -> ClientAppCaller:
    """Find the ClientApp and its configuration."""
    run_config = find_project(options.app).run_config(options.run_config)
    node_config = read_pairs(options.node_config, "task.node-config")
    return ClientAppCaller(find_app(options), clients, seed, run_config, node_config)


def unpickle(options: Any, clients: int, seed: int, setup: bytes, first: Mapping[str, NDArray]) -> FlowerTask:
    """Create a copy of a task in another process, without running the ServerApp again."""
    return FlowerTask(options, make_caller(options, clients, seed), pickle.loads(setup), first)


def first_model(options: Any, caller: ClientAppCaller, setup: ServerAppSetup) -> Mapping[str, NDArray]:
    """Return the initial model."""
    if options.model is not None:
        return as_arrays(options.model, caller)
    arrays = setup.arrays or first_model_of_client(caller)
    if arrays is None:
        raise UsageError(
            "task.app",
            f"{options.app} has no initial model",
            "Name its ServerApp (task.server) or a function that returns the model (task.model): package.module:name",
        )
    return arrays


class FlowerTask(Task):
    """The task of a ClientApp."""

    by_value = True

    def __init__(
        self,
        options: Any,
        caller: ClientAppCaller,
        setup: ServerAppSetup,
        first: Mapping[str, NDArray],
        set_rate: float | None = None,
    ) -> None:
        self.options, self.caller, self.setup = options, caller, setup
        caller.names = setup.names
        try:
            self.arrays = NamedArrays.of(first)
        except ArrayMismatchError as error:
            reason, remedy = error.args
            raise UsageError("task.app", f"{options.app} is not allowed: {reason}", remedy) from None
        self.layout, self.buffers = self.arrays.layout, self.arrays.buffers
        self.evaluator = self._choose_evaluator()
        self.evaluates_states = self.evaluation_needs_clients = self.evaluator == "clients"
        server = options.server or find_project(options.app).server
        places = {f"the train config of {server}": setup.train or {}, "the run config": caller.run_config}
        found = find_rate(options.rate_key, places)
        self.rate = None if found is None else found.value
        self.notes = (self._rate_note(set_rate, found), self._evaluation_note(server))

    def _rate_note(self, set_rate: float | None, found: AppLearningRate | None) -> str:
        """Describe the learning rate and its source."""
        if found is None:
            rate, key = set_rate or Training().rate, self.options.rate_key or KEYS[0]
            return f"learning rate: the app names none; {rate:g} is sent as {key}, which the app may ignore"
        if set_rate is None:
            return f"learning rate: {found.value:g}, as {found.key} in {found.place}"
        return f"learning rate: {set_rate:g}, as training.rate is set; the app has {found.key} = {found.value:g}"

    def _evaluation_note(self, server: str | None) -> str:
        """Describe the evaluation."""
        if self.evaluator == "server":
            return f"evaluation: on the server, by the evaluate_fn of {server}"
        if self.evaluator == "clients":
            return f"evaluation: by the clients, each with its own data ({self._evaluators} of {self.caller.clients})"
        return "evaluation: none (task.evaluate)"

    @property
    def _evaluators(self) -> int:
        """Number of clients that evaluate."""
        return min(self.options.evaluate_clients or self.caller.clients, self.caller.clients)

    def write_setup(self, path: Path) -> None:
        """Write the ServerApp's results that a client needs."""
        write_setup(path, self.setup, dict(self.arrays.first))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the ServerApp's results; the ClientApp is imported again by name."""
        try:
            setup = cloudpickle.dumps(replace(self.setup, arrays=None))
        except Exception as error:
            raise UsageError(
                "task.server",
                f"its evaluate_fn cannot be sent to worker processes ({error})",
                "Train without them (--workers 0), or have the clients evaluate (task.evaluate)",
            ) from None
        return unpickle, (self.options, self.caller.clients, self.caller.seed, setup, dict(self.arrays.first))

    def _choose_evaluator(self) -> str:
        wanted = self.options.evaluate
        able = {"server": self.setup.evaluate_fn is not None, "clients": self._clients_can_evaluate, "none": True}
        if wanted == "auto":
            return next(name for name, possible in able.items() if possible)
        if not able[wanted]:
            remedy = "Give its strategy an evaluate_fn" if wanted == "server" else "Register one with @app.evaluate()"
            raise UsageError("task.evaluate", f"{wanted} is not allowed: the app has no such evaluation", remedy)
        return str(wanted)

    @property
    def _clients_can_evaluate(self) -> bool:
        return self.caller.legacy or "evaluate.default" in self.caller.app._registered_funcs

    def hold_out(self, share: float) -> None:
        """Let clients evaluate. The app itself chooses the data for it."""
        self.evaluates_on_clients = self._clients_can_evaluate
        super().hold_out(share)

    def evaluate_client(self, client: int, weights: Vector, state: bytes | None = None) -> ClientEvaluation | None:
        """Evaluate a model with the app on a client's data; ``None`` for clients that do not evaluate."""
        if client >= self._evaluators:
            return None
        reply = self._evaluate(client, self.arrays.arrays(weights), state)
        self.__dict__.setdefault("metric", self._metric_among(reply.metrics))  # other clients' data may not be here
        name = self.metric.name
        if name not in reply.metrics:
            raise self._metric_error(name, reply.metrics)
        return ClientEvaluation(max(1, reply.examples or 1), {name: reply.metrics[name]})

    def initial(self) -> Vector:
        """Return the app's initial model."""
        return self.arrays.vector(self.arrays.first)

    def size(self, client: int) -> int:
        """Return the weight of a client before its first update."""
        return int(self.options.examples_per_client)

    def train(
        self, client: int, weights: Vector, rate: float, step: int, age: float = 0.0, state: bytes | None = None
    ) -> TrainingResult:
        """Train with the app."""
        key, config = self.options.rate_key, dict(self.setup.train or {})
        config |= rate_entries(key, config, rate)
        config |= {key or KEYS[0]: rate, RATE: rate, AGE: age, ROUND: step + 1}
        run_config = rate_entries(key, self.caller.run_config, rate)
        arrays = self.arrays.arrays(weights)
        answer = self.caller.call(client, MessageType.TRAIN, arrays, config, step, state, run_config)
        try:
            trained = self.arrays.vector(answer.arrays)
        except ArrayMismatchError as error:
            raise FlowerError(f"{self.options.app} returned {error}") from None
        return TrainingResult(trained, answer.examples, answer.metrics or None, answer.state)

    def explain(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> str:
        """Name the arrays that are not finite; the cause need not be the learning rate."""
        with np.errstate(all="ignore"):
            trained = self.train(client, weights, rate, step, state=state).weights
        wrong = [repr(name) for name, part in self.layout.parts(trained).items() if not np.isfinite(part).all()]
        return (
            f"{self.options.app} returned numbers that are not finite in {listed(wrong, 3)}. Look at its training and "
            f"data; if it uses the rate that is sent as {self.options.rate_key or KEYS[0]!r}, lower training.rate"
        )

    def evaluate(self, weights: Vector, states: Mapping[int, bytes] | None = None) -> float:
        """Evaluate a model with the app, and return the metric."""
        if self.evaluator == "none":
            return float("nan")
        numbers = self.numbers(weights, states or {})
        name = self._metric_among(numbers).name
        if name not in numbers:
            raise self._metric_error(name, numbers)
        return numbers[name]

    def _metric_error(self, name: str, found: Iterable[str]) -> UsageError:
        return UsageError(
            "task.metric", f"{name!r} is not allowed", f"The app's evaluation has {', '.join(found) or 'nothing'}"
        )

    def numbers(self, weights: Vector, states: Mapping[int, bytes]) -> Mapping[str, float]:
        """Return all metrics of an evaluation: the server's, or the clients' weighted average."""
        arrays = self.arrays.arrays(weights)
        if self.evaluator == "server":
            assert self.setup.evaluate_fn is not None
            seed_all(self.caller.seed)
            return self.setup.evaluate_fn(arrays) or {}
        return weighted([self._evaluate(client, arrays, states.get(client)) for client in range(self._evaluators)])

    def _evaluate(self, client: int, arrays: Mapping[str, NDArray], state: bytes | None) -> ClientReply:
        config = dict(self.setup.evaluate or {}) | {ROUND: 1}
        return self.caller.call(client, MessageType.EVALUATE, arrays, config, 0, state)

    @cached_property
    def metric(self) -> Metric:  # type: ignore[override]
        """The metric; if it is not set, an evaluation of the initial model determines it."""
        if self.options.metric is not None or self.evaluator == "none":
            return self._metric_among(())
        if self.evaluator == "server":
            return self._metric_among(self.numbers(self.initial(), {}))
        return self._metric_among(self._evaluate(0, self.arrays.arrays(self.initial()), None).metrics)

    def _metric_among(self, names: Iterable[str]) -> Metric:
        name, higher = self.options.metric, self.options.higher_is_better
        if name is None:
            names = list(names)
            liked = [n for part in ("acc", "loss") for n in names if part in n.lower()]
            name = next(iter([*liked, *names]), "none")
        if higher is None:
            higher = not any(part in name.lower() for part in LOWER)
        return Metric(name, higher, (0.9, 0.95) if "acc" in name.lower() else ())


def weighted(answers: list[ClientReply]) -> dict[str, float]:
    """Return the clients' metrics, averaged by their numbers of examples, as in Flower."""
    names = list(answers[0].metrics) if answers else []
    share = np.array([answer.examples or 1 for answer in answers], np.float64)
    share /= share.sum()
    return {name: float(share @ [answer.metrics[name] for answer in answers]) for name in names}
