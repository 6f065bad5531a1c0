"""The task ``flower``: an unmodified Flower app. See docs/how-to/flower.md."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.extras import require
from spyker.flower.project import find_project
from spyker.own_code import code_digest
from spyker.parameters import parameter
from spyker.tasks.checked_task import located_errors
from spyker.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``flower``."""

    app: str = parameter("", "ClientApp, as package.module:app")
    server: str | None = parameter(
        None, "ServerApp, for the initial model and configuration; unset: the one in the app's pyproject.toml"
    )
    model: str | None = parameter(
        None, "package.module:function that returns the initial model, in place of the ServerApp's"
    )
    setup: str | None = parameter(
        None, "file with the results of the ServerApp, as spyker federation create writes it; unset: the ServerApp runs"
    )
    run_config: str = parameter("", "changes of the app's run config, such as 'local-epochs=2 batch-size=16'")
    node_config: str = parameter(
        "", "additional entries of the app's node config on this machine, such as 'data=\"/data/a.csv\"'"
    )
    rate_key: str | None = parameter(
        None, "key of the learning rate in the app's configuration; unset: lr, learning-rate or learning_rate"
    )
    evaluate: str = parameter(
        "auto",
        "evaluation: server (the ServerApp's evaluate_fn), clients (the ClientApp, on each client's data), none, or "
        "auto, the first of these that is available",
        choices=("auto", "server", "clients", "none"),
    )
    evaluate_clients: int | None = parameter(None, "number of clients that evaluate; unset: all", at_least=1)
    metric: str | None = parameter(None, "name of the metric; unset: an accuracy, a loss, or the first")
    higher_is_better: bool | None = parameter(
        None, "direction of the metric; unset: true, unless its name contains loss or error"
    )
    examples_per_client: int = parameter(
        1, "weight of a client before its first update, which reports its number of examples", at_least=1
    )


def check(options: Any) -> None:
    """Check the options."""
    if not options.app:
        raise UsageError("task.app", "is missing", "Name the ClientApp: --flower package.module:app")
    require("task flower", "flwr", "torch")
    from spyker.flower.flower_task import find_app

    find_app(options)


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """Create the task. The app determines data, epochs and optimiser."""
    with located_errors(f"task flower, making it from {options.app}"):
        check(options)
        from spyker.flower.flower_task import make as make_task

        return make_task(options, clients, seed, training.rate)


def code_of(options: Any) -> str:
    """Return a digest of the app's code and configuration."""
    project = find_project(options.app)
    text = "" if project.path is None else hashlib.sha256(project.path.read_bytes()).hexdigest()
    named = (options.app, options.server or project.server, options.model)
    return text + "".join(code_digest(name) for name in named if name)
