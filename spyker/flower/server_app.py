"""The initial model and the configuration that the ServerApp of a Flower app sends to its clients.

The ServerApp runs until its first request to train; Spyker's servers replace the rest. Until then it sees all clients
as connected, and the ClientApp answers other requests, such as queries.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.constant import MessageTypeLegacy
from flwr.server import ServerAppComponents
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from flwr.supercore.task_identity import TaskIdentity

from spyker.errors import UsageError
from spyker.flower.arrays import NDArray
from spyker.flower.client_calls import (
    NEW_NAMES,
    RUN,
    SERVER_NODE,
    ClientAppCaller,
    as_record,
    message,
    node_of,
    read,
    seed_all,
)

WHERE = "task.server"
PATIENCE = (
    3  # maximum number of times that a strategy may ask for nodes before it sends a message; it sleeps in between
)
EvaluateFn = Callable[[Mapping[str, NDArray]], Mapping[str, float] | None]


@dataclass(frozen=True, slots=True)
class ServerAppSetup:
    """The results of a ServerApp."""

    arrays: Mapping[str, NDArray] | None = None
    """The initial model."""
    train: Mapping[str, Any] | None = None
    evaluate: Mapping[str, Any] | None = None
    """The configurations of a training and of an evaluation."""
    names: tuple[str, str] = NEW_NAMES
    evaluate_fn: EvaluateFn | None = None
    """The server's evaluation of a model."""


def run_server_app(server: ServerApp, caller: ClientAppCaller) -> ServerAppSetup:
    """Run a ServerApp until its first request to train, and return its results."""
    seed_all(caller.seed)
    context = Context(RUN, SERVER_NODE, {}, RecordDict(), dict(caller.run_config))
    with quiet():
        if server._main is None and server._server_fn is not None:
            return run_server_fn(server._server_fn(context), caller)
        setup = ServerAppSetup()

        def note(evaluate_config: ConfigRecord | None, evaluate_fn: Any) -> None:
            nonlocal setup
            setup = replace(setup, evaluate=dict(evaluate_config or {}), evaluate_fn=wrap_evaluate_fn(evaluate_fn))

        try:
            with identified(), started(note):
                server(AllNodesGrid(caller), context)
        except TrainingRequested as request:
            return replace(setup, **first(request.content))
    raise UsageError(
        WHERE, "ended without sending a model to a client", "Name a ServerApp that trains, or set task.model"
    )


def first(content: RecordDict) -> dict[str, Any]:
    """Return the initial model, the configuration and the names of their records."""
    if len(content.array_records) != 1 or len(content.config_records) > 1:
        raise UsageError(
            WHERE, f"sends clients the records {', '.join(content)}", "Send one ArrayRecord and one ConfigRecord"
        )
    ((arrays, record),) = content.array_records.items()
    ((config, values),) = content.config_records.items() or ((NEW_NAMES[1], {}),)
    numbers = {name: array.numpy() for name, array in record.items()}
    return {"arrays": numbers, "train": dict(values), "names": (arrays, config)}


def wrap_evaluate_fn(evaluate_fn: Any) -> EvaluateFn | None:
    """Wrap a strategy's ``evaluate_fn`` as a function from arrays to metrics."""
    if evaluate_fn is None:
        return None

    def evaluate(arrays: Mapping[str, NDArray]) -> Mapping[str, float] | None:
        record = evaluate_fn(0, as_record(arrays))
        return None if record is None else read(RecordDict({"metrics": record}), None).metrics

    return evaluate


# --- A ServerApp with a main function ----------------------------------------------------------------------------


class TrainingRequested(BaseException):
    """Raised when the ServerApp sends its first request to train."""

    def __init__(self, content: RecordDict) -> None:
        super().__init__()
        self.content = content


class AllNodesGrid(Grid):  # type: ignore[misc]
    """A ``Grid`` on which all clients are connected."""

    def __init__(self, caller: ClientAppCaller) -> None:
        self.caller, self.looked = caller, 0
        self.replies: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids of all clients."""
        self.looked += 1
        if self.looked > PATIENCE:
            raise UsageError(
                WHERE,
                f"waits for more nodes than the {self.caller.clients} clients that there are",
                "Add clients (--clients), or lower min_available_nodes of its strategy",
            )
        return [node_of(client) for client in range(self.caller.clients)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Answer messages, unless they are requests to train."""
        return list(self.pull_messages(self.push_messages(messages)))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; the replies are fetched with :meth:`pull_messages`."""
        names = []
        for each in messages:
            if each.metadata.message_type.partition(".")[0] == MessageType.TRAIN:
                raise TrainingRequested(each.content)
            client = each.metadata.dst_node_id - node_of(0)
            names.append(f"{len(self.replies)}")
            instruction = message(each.metadata.message_type, each.content, client, names[-1])
            self.replies[names[-1]] = self.caller.app(instruction, self.caller.context(client))
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to sent messages."""
        return [self.replies[name] for name in message_ids]

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message with Flower's older interface."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def set_run(self, run: object) -> None:
        """Ignored: there is no run of Flower."""

    @property
    def run(self) -> NoReturn:
        """Ignored: there is no run of Flower."""
        raise UsageError(WHERE, "asks for grid.run, which Spyker does not have", "Set task.model instead")


@contextlib.contextmanager
def started(note: Callable[[ConfigRecord | None, Any], None]) -> Iterator[None]:
    """Note the arguments of ``Strategy.start``, which a subclass may override."""

    def look_up(self: Strategy, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name != "start":
            return value

        def start(*args: Any, **named: Any) -> Any:
            given = inspect.signature(value).bind(*args, **named).arguments | named
            note(given.get("evaluate_config"), given.get("evaluate_fn"))
            return value(*args, **named)

        return start

    Strategy.__getattribute__ = look_up
    try:
        yield
    finally:
        del Strategy.__getattribute__


@contextlib.contextmanager
def identified() -> Iterator[None]:
    """Set the ids of the process, without which Flower creates no messages."""
    names = ("_run_id", "_node_id", "_task_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = RUN, SERVER_NODE, RUN
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress Flower's log, which would describe a run that does not happen."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- A ServerApp with a server_fn ----------------------------------------------------------------------------------


class AllClientsManager(ClientManager):  # type: ignore[misc]
    """A ``ClientManager`` on which all clients are connected."""

    def __init__(self, clients: int) -> None:
        self.clients = {str(k): UnreachableClient(str(k)) for k in range(clients)}

    def num_available(self) -> int:
        """Return the number of clients."""
        return len(self.clients)

    def sample(self, num_clients: int, min_num_clients: int | None = None, criterion: object = None) -> list[Any]:
        """Return one client: all would receive the same."""
        return list(self.clients.values())[:1]

    def all(self) -> dict[str, Any]:
        """Return all clients."""
        return self.clients

    def register(self, client: ClientProxy) -> bool:
        """Accept no further client."""
        return False

    def unregister(self, client: ClientProxy) -> None:
        """Remove no client."""

    def wait_for(self, num_clients: int, timeout: int) -> bool:
        """Return at once: all clients are connected."""
        return True


class UnreachableClient(ClientProxy):  # type: ignore[misc]
    """A client that is never called."""

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(WHERE, "asks a client while it chooses among them", "Set task.model instead")

    get_properties = get_parameters = fit = evaluate = reconnect = _refuse


def run_server_fn(parts: ServerAppComponents, caller: ClientAppCaller) -> ServerAppSetup:
    """Return the results of the strategy of a ``server_fn``."""
    strategy, everybody = parts.strategy, AllClientsManager(caller.clients)
    if strategy is None:
        return ServerAppSetup()
    given = strategy.initialize_parameters(everybody)
    if given is None:
        return ServerAppSetup()
    arrays = parameters_to_ndarrays(given)
    trains, evaluates = strategy.configure_fit(1, given, everybody), strategy.configure_evaluate(1, given, everybody)

    def evaluate(arrays: Mapping[str, NDArray]) -> Mapping[str, float] | None:
        result = strategy.evaluate(0, ndarrays_to_parameters(list(arrays.values())))
        if result is None:
            return None
        loss, metrics = result
        return {"loss": float(loss)} | {name: float(value) for name, value in metrics.items()}

    return ServerAppSetup(
        numbered(arrays),
        dict(trains[0][1].config) if trains else {},
        dict(evaluates[0][1].config) if evaluates else {},
        evaluate_fn=evaluate if strategy.evaluate(0, given) is not None else None,
    )


def first_model_of_client(caller: ClientAppCaller) -> Mapping[str, NDArray] | None:
    """Return the initial model of one client, as Flower does if the ServerApp has none."""
    if not caller.legacy:
        return None
    seed_all(caller.seed)
    content = RecordDict({"getparametersins.config": ConfigRecord()})
    with quiet():
        reply = caller.app(message(MessageTypeLegacy.GET_PARAMETERS, content, 0, "0"), caller.context(0))
    record = reply.content.array_records["getparametersres.parameters"]
    return numbered([array.numpy() for name, array in record.items() if name != "_empty"]) or None


def numbered(arrays: Iterable[NDArray]) -> dict[str, NDArray]:
    """Name arrays by their position, as Flower does."""
    return {str(i): array for i, array in enumerate(arrays)}
