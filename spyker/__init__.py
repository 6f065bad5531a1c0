"""Spyker: federated learning across regions, without a central server and without global rounds.

    import spyker

    run = spyker.run(algorithm="stride", task="digits", duration=10)
    print(run.reached(0.5), run.curve)

Names are imported when they are first used, so that ``import spyker`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from spyker.version import __version__

if TYPE_CHECKING:
    from spyker.api.callbacks import EarlyStopping
    from spyker.api.compare import compare, load
    from spyker.api.result import Run
    from spyker.api.run import run
    from spyker.api.sweep import sweep
    from spyker.config.pings import read_pings
    from spyker.config.scenario import Scenario, Training
    from spyker.errors import RecordError, UsageError
    from spyker.protocol.server import Server
    from spyker.tasks.federated_task import ClientInfo, FederatedTask
    from spyker.tasks.task import Metric, Task, TrainingResult
    from spyker.tasks.torch_data import LazyDataset, StreamedDataset
    from spyker.tasks.torch_task import ExtraMetric, TorchTask, accuracy

__all__ = [
    "ClientInfo",
    "EarlyStopping",
    "ExtraMetric",
    "FederatedTask",
    "LazyDataset",
    "Metric",
    "RecordError",
    "Run",
    "Scenario",
    "Server",
    "StreamedDataset",
    "Task",
    "TorchTask",
    "Training",
    "TrainingResult",
    "UsageError",
    "__version__",
    "accuracy",
    "compare",
    "load",
    "read_pings",
    "run",
    "sweep",
]

_HOMES = {
    "ClientInfo": "spyker.tasks.federated_task",
    "FederatedTask": "spyker.tasks.federated_task",
    "EarlyStopping": "spyker.api.callbacks",
    "LazyDataset": "spyker.tasks.torch_data",
    "ExtraMetric": "spyker.tasks.torch_task",
    "Metric": "spyker.tasks.task",
    "RecordError": "spyker.errors",
    "Run": "spyker.api.result",
    "Scenario": "spyker.config.scenario",
    "Server": "spyker.protocol.server",
    "StreamedDataset": "spyker.tasks.torch_data",
    "Task": "spyker.tasks.task",
    "TorchTask": "spyker.tasks.torch_task",
    "Training": "spyker.config.scenario",
    "TrainingResult": "spyker.tasks.task",
    "UsageError": "spyker.errors",
    "accuracy": "spyker.tasks.torch_task",
    "compare": "spyker.api.compare",
    "load": "spyker.api.compare",
    "read_pings": "spyker.config.pings",
    "run": "spyker.api.run",
    "sweep": "spyker.api.sweep",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'spyker' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
