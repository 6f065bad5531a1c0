"""Flower apps of a few lines, which tell what they were told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flwr.client
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

MODEL = {
    "image": np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2),
    "seen": np.array(7, np.int64),
    "wide": np.array([0.1, 0.2]),
}
heard: dict[str, object] = {}
"""What the app ``telling`` was told last."""


def record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def trees() -> list[np.ndarray]:
    """A model such as XGBoost's: what it saves, as bytes."""
    return [np.frombuffer(b"{}", np.uint8)]


def no_trees() -> list[np.ndarray]:
    """The same before the first training, as Flower's XGBoost examples begin."""
    return [np.frombuffer(b"", np.uint8)]


def counts() -> dict[str, np.ndarray]:
    return {"sum": np.zeros(3, np.int64), "seen": np.array(0)}


def model() -> dict[str, np.ndarray]:
    return MODEL


# --- A client that tells ------------------------------------------------------------------------------------------

telling = ClientApp()


@telling.train()
def tell(message: Message, context: Context) -> Message:
    arrays = {name: array.numpy() for name, array in message.content.array_records["weights"].items()}
    heard.update(arrays=arrays, config=dict(message.content["said"]), node=dict(context.node_config))
    heard.update(run=dict(context.run_config), group=message.metadata.group_id)
    counted = context.state.setdefault("count", MetricRecord({"n": 0}))
    counted["n"] += 1
    trained = {name: np.asarray(array + 1) for name, array in arrays.items()}
    metrics = MetricRecord({"num-examples": 30, "count": counted["n"], "each": [0.5, 0.25], "draw": np.random.rand()})  # noqa: NPY002
    return Message(RecordDict({"any": record(trained), "name": metrics}), reply_to=message)


@telling.evaluate()
def judge(message: Message, context: Context) -> Message:
    k = context.node_config["partition-id"]
    count = context.state["count"]["n"] if "count" in context.state else 0
    metrics = MetricRecord({"num-examples": 10 * (k + 1), "rmse": float(k), "mass": float(k), "count": count})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@telling.query()
def query(message: Message, context: Context) -> Message:
    return Message(RecordDict({"size": MetricRecord({"n": context.node_config["partition-id"]})}), reply_to=message)


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    asked = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    answers = [reply.content["size"]["n"] for reply in grid.send_and_receive(asked)]
    strategy = FedAvg(arrayrecord_key="weights", configrecord_key="said")
    config = ConfigRecord({"lr": 99.0, "sum": sum(answers), **context.run_config})
    strategy.start(grid, record(MODEL), train_config=config)
    raise AssertionError("it goes no further")


crowded, idle = ServerApp(), ServerApp()


@crowded.main()
def wait(grid: Grid, context: Context) -> None:
    FedAvg(min_available_nodes=50).start(grid, record(MODEL))


@idle.main()
def end(grid: Grid, context: Context) -> None:
    pass


# --- A server with side effects, and a strategy with a start of its own --------------------------------------------


class Starting(FedAvg):
    """Has its own ``start``, as Flower's advanced examples have."""

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *rounds: int, evaluate_fn: Any = None, **more: Any) -> Any:
        evaluate_fn(0, initial_arrays)
        for each in self.configure_train(1, initial_arrays, ConfigRecord({"lr": 0.25}), grid):
            grid.send_and_receive([each])


def central(offset: float) -> Callable[[int, ArrayRecord], MetricRecord]:
    """An ``evaluate_fn`` that no other process can import."""

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": offset + float(arrays["wide"].numpy()[0])})

    return evaluate


leaving = ServerApp()


@leaving.main()
def leave(grid: Grid, context: Context) -> None:
    Path("outputs").mkdir()  # a second time, it fails
    strategy = Starting(arrayrecord_key="weights", configrecord_key="said")
    strategy.start(grid, record(MODEL), 3, evaluate_fn=central(0.5))


# --- Clients that go wrong ----------------------------------------------------------------------------------------

failing, refusing, reshaping, diverging = ClientApp(), ClientApp(), ClientApp(), ClientApp()


@failing.train()
def fail(message: Message, context: Context) -> Message:
    raise LookupError("the disk of this client is empty")


@refusing.train()
def refuse(message: Message, context: Context) -> Message:
    return Message(Error(3, "not today"), reply_to=message)


@reshaping.train()
def reshape(message: Message, context: Context) -> Message:
    return Message(RecordDict({"arrays": record(MODEL | {"wide": np.zeros(5)})}), reply_to=message)


@diverging.train()
def diverge(message: Message, context: Context) -> Message:
    return Message(RecordDict({"arrays": record(MODEL | {"wide": np.array([0.0, np.nan])})}), reply_to=message)


# --- The old interface ---------------------------------------------------------------------------------------------


class Old(flwr.client.NumPyClient):
    def __init__(self, run_config: dict) -> None:
        heard.update(run=run_config)

    def get_parameters(self, config: dict) -> list[np.ndarray]:
        return [np.full((2, 2), 3.0), np.zeros(1)]

    def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
        heard.update(config=config)
        return [p + 1 for p in parameters], 12, {"loss": 0.5, "words": "no number", "done": True}

    def evaluate(self, parameters: list, config: dict) -> tuple[float, int, dict]:
        return 0.25, 4, {"accuracy": 0.75}


def client_fn(context: Context) -> flwr.client.Client:
    return Old(dict(context.run_config)).to_client()


old = ClientApp(client_fn=client_fn)


def server_fn(context: Context) -> ServerAppComponents:
    return ServerAppComponents(
        strategy=OldFedAvg(
            initial_parameters=ndarrays_to_parameters([np.ones((2, 2)), np.ones(1)]),
            on_fit_config_fn=lambda server_round: {"momentum": 0.9},
            evaluate_fn=lambda server_round, arrays, config: (float(arrays[0].sum()), {"accuracy": 0.5}),
            min_available_clients=1000,
        )
    )


old_server = ServerApp(server_fn=server_fn)
