"""Server 0, its clients and the other servers, with secure aggregation and all messages carried by hand."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from actions import stated
from every_algorithm import ALGORITHMS
from server_fixtures import build_servers

from spyker.privacy.masking import MaskingSetup
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.messages import Action, Join, ToClient, ToServer
from spyker.protocol.server import Server
from spyker.protocol.state import ServerState
from spyker.sim.sim_seals import SimOpener, SimSealer
from spyker.vectors import Vector

ROUNDING = 2e-3  # a bound of 416 in steps of 2^-12, with momentum


def updates_of(client: int, weights: Vector) -> Vector:
    """What a client makes of a model: half of the way to a point of its own."""
    target = np.array([client, 10 - client, 1], np.float32)
    return weights + (target - weights) / 2


class Region:
    """Server 0, its clients, and the other servers, with all messages carried by hand.

    Messages to servers wait in ``mail`` until :meth:`deliver`; tasks wait in ``tasks`` until :meth:`train`.
    """

    metrics: Mapping[str, tuple[float, float]] = {}  # that clients evaluate

    def __init__(
        self,
        algorithm: str,
        examples: list[list[int]],
        *,
        masks: bool = True,
        robust: Any = None,
        helpers: Any = None,
        **parameters: Any,
    ) -> None:
        self.algorithm, self.masks, self.robust, self.given = algorithm, masks, robust, parameters
        self.helpers = helpers  # servers that help each other; None: two that do nothing else
        self.examples = examples
        self.servers = self.build()
        self.mail: deque[tuple[int, int, Any]] = deque()
        self.tasks: dict[int, Any] = {}
        self.actions: list[Action] = []
        self.homes = [i for i, clients in enumerate(examples) for _ in clients]
        sizes = [size for clients in examples for size in clients]
        chosen = ALGORITHMS[algorithm]
        self.clients = [
            MaskingClient(k, home, SimSealer(5, k), sizes[k], 0, metrics=tuple(self.metrics))
            if masks
            else chosen.client(k, home)
            for k, home in enumerate(self.homes)
        ]
        for i, server in enumerate(self.servers):
            self.take(i, list(server.start()))

    def build(self) -> list[Server]:
        masking = None
        if self.masks:
            learners = len(self.examples) + (self.algorithm == "hierfavg")
            dedicated = {i: tuple(range(learners, learners + 2)) for i in range(len(self.examples))}
            alone = frozenset((learners, learners + 1)) if self.helpers is None else frozenset[int]()
            masking = MaskingSetup(3, self.helpers or dedicated, alone, SimOpener, bool(self.metrics))
        initial = (30.0, 31.0, 29.0)  # so long that no update is clipped
        named = {"masking": masking, "robust": self.robust, "metrics": self.metrics, **self.given}
        return build_servers(self.algorithm, self.examples, initial, **named)

    @property
    def first_helper(self) -> int:
        return len(self.examples) + (self.algorithm == "hierfavg")

    def take(self, server: int, actions: list[Action]) -> list[Action]:
        self.actions += actions
        for action in actions:
            if isinstance(action, ToClient):
                self.tasks[action.client] = action.message
            elif isinstance(action, ToServer):
                self.mail.append((server, action.server, action.message))
        return actions

    def tell(self, server: int, sender: int, message: Any) -> list[Action]:
        return self.take(server, self.servers[server].handle(sender, message))

    def answer(self, k: int) -> Any:
        """A client trains its task; what it sends."""
        model = self.tasks.pop(k)
        self.clients[k].handle(self.homes[k], model)
        (action,) = self.clients[k].trained(updates_of(k, model.weights))
        return action.message

    def train(self, *clients: int) -> None:
        for k in clients or sorted(self.tasks):
            self.tell(self.homes[k], k, self.answer(k))

    def deliver(self) -> list[Action]:
        """Carry all messages between servers until none is under way."""
        before = len(self.actions)
        while self.mail:
            sender, receiver, message = self.mail.popleft()
            self.tell(receiver, sender, message)
        return self.actions[before:]

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.train()
            self.deliver()
            self.renew()

    def renew(self) -> None:
        """Give the latest model to clients of FedBuff, which have one from before the sum was opened."""
        if self.algorithm == "fedbuff":
            given = {k: self.servers[0].handle(k, Join(1)) for k in self.tasks}
            self.tasks = {k: actions[0].message for k, actions in given.items() if actions}  # others are excluded

    def facts(self, kind: type[Any]) -> list[Any]:
        return stated(self.actions, kind)

    def weights(self, server: int = 0) -> list[float]:
        return self.servers[server].weights.snapshot().tolist()


CASES: dict[str, tuple[list[list[int]], dict[str, Any]]] = {
    "fedavg": ([[3, 5, 4, 4]], {}),
    "hierfavg": ([[3, 5, 4, 4], [2, 2, 3]], {"edge_rounds": 2}),
    "fedbuff": ([[1, 1, 1, 1]], {"buffer": 4, "staleness_exponent": 1.0}),
    "stride": ([[3, 5, 4, 4]], {"clip": 0.0, "safe": False}),
}


def restarted(region: Region) -> None:
    """Replace all servers by new ones that continue from checkpoints."""
    servers = region.build()
    for i, server in enumerate(servers):
        server.restore(through_json(region.servers[i]))
    region.servers = servers


def through_json(server: Server) -> Any:
    """A server's state as a checkpoint holds it."""
    state = server.state()
    numbers = json.loads(json.dumps(state.numbers, allow_nan=False))
    return ServerState(numbers, {name: array.copy() for name, array in state.vectors.items()})
