"""A region whose server adds noise to sums, with all messages carried by hand and all released sums at hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from every_algorithm import ALGORITHMS
from server_fixtures import build_servers

from spyker.privacy.client_noise import ClientPrivacy
from spyker.privacy.masking import MaskingSetup
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.messages import Action, Join, ToClient, ToServer, Update
from spyker.protocol.noisy_server import NoisyServer
from spyker.sim.sim_noise import sim_noise
from spyker.sim.sim_seals import SimOpener, SimSealer
from spyker.vectors import Vector

CLIP, SIZE, CLIENTS = 0.75, 16, 5
INITIAL = tuple(float(i % 3) for i in range(SIZE))
PARAMETERS: dict[str, dict[str, Any]] = {"fedbuff": {"buffer": CLIENTS, "staleness_exponent": 0.0}}
ALL = ("stride", "fedavg", "hierfavg", "fedbuff")


def privacy(noise: float = 1e-12, *, seed: int = 3, participations: int = 100, clip: float = CLIP) -> ClientPrivacy:
    return ClientPrivacy(clip, noise, participations, {0: CLIENTS}, 1e-6, sim_noise(seed))


def step_of(client: int) -> Vector:
    """What an ordinary client always sends."""
    return np.random.default_rng(client + 1).normal(size=SIZE).astype(np.float32) / 8


class NoisyRegion:
    """Server 0 and its clients; with masks, two helpers."""

    def __init__(self, algorithm: str, settings: ClientPrivacy, *, masks: bool = False, robust: Any = None) -> None:
        self.algorithm, self.settings, self.masks, self.robust = algorithm, settings, masks, robust
        self.servers: list[Any] = self.build()
        self.tasks: dict[int, Any] = {}
        self.mail: deque[tuple[int, int, Any]] = deque()
        self.actions: list[Action] = []
        self.released: list[Vector] = []
        self.pretended: list[Vector] = []
        self.watch()
        chosen = ALGORITHMS[algorithm]
        self.clients = [
            MaskingClient(k, 0, SimSealer(5, k), 7, 0) if masks else chosen.client(k, 0) for k in range(CLIENTS)
        ]
        self.take(0, list(self.server.start()))

    @property
    def server(self) -> NoisyServer:
        server = self.servers[0]
        assert isinstance(server, NoisyServer)
        return server

    def build(self) -> list[Any]:
        first = 1 + (self.algorithm == "hierfavg")
        masking = MaskingSetup(3, {0: (first, first + 1)}, frozenset((first, first + 1)), SimOpener)
        return build_servers(
            self.algorithm,
            [[3, 50, 7, 7, 7]],
            INITIAL,
            masking=masking if self.masks else None,
            client_privacy=self.settings,
            robust=self.robust,
            **PARAMETERS.get(self.algorithm, {}),
        )

    def watch(self) -> None:
        sums = self.server.noisy_sums
        assert sums is not None
        release = sums.release

        def watched(opened: Any = None) -> Vector:
            released = release(opened)
            self.released.append(self.pretended.pop(0) if self.pretended else released)
            return self.released[-1]

        sums.release = watched  # type: ignore[method-assign]

    def pretend(self, released: list[Vector]) -> None:
        """Let the next sums be released as these vectors, whatever they are."""
        self.pretended = released

    def take(self, server: int, actions: list[Action]) -> list[Action]:
        self.actions += actions
        for action in actions:
            if isinstance(action, ToClient):
                self.tasks[action.client] = action.message
            elif isinstance(action, ToServer):
                self.mail.append((server, action.server, action.message))
        return actions

    def tell(self, sender: int, message: Any, server: int = 0) -> list[Action]:
        return self.take(server, self.servers[server].handle(sender, message))

    def answer(self, k: int, step: Vector) -> Any:
        """Train the client's task, and return what it sends."""
        model = self.tasks.pop(k)
        self.clients[k].handle(0, model)
        (action,) = self.clients[k].trained(model.weights + step)
        assert isinstance(action, ToServer)
        return action.message

    def train(self, *clients: int, special: Mapping[int, Vector] | None = None) -> None:
        for k in clients:
            self.tell(k, self.answer(k, (special or {}).get(k, step_of(k))))

    def deliver(self) -> None:
        while self.mail:
            sender, receiver, message = self.mail.popleft()
            self.tell(sender, message, receiver)

    def rounds(self, count: int, special: Mapping[int, Vector] | None = None) -> None:
        for _ in range(count):
            self.train(*sorted(self.tasks), special=special)
            self.deliver()

    def crash(self, state: Any) -> None:
        """Continue with a new process from an earlier state of the server."""
        others = self.servers[1:]
        self.servers = self.build()[:1] + others
        self.server.restore(state)
        self.watch()

    def rejoin(self, *clients: int) -> None:
        """Let clients come that hold no task and send nothing again."""
        for k in clients:
            self.tasks.pop(k, None)
            self.tell(k, Join(7))

    def distance(self, other: NoisyRegion) -> list[float]:
        """How far the released sums of two regions are apart."""
        assert len(self.released) == len(other.released) > 0
        pairs = zip(self.released, other.released, strict=True)
        return [float(np.linalg.norm(a.astype(np.float64) - b)) for a, b in pairs]


def plain(region: NoisyRegion, k: int, step: Vector) -> Update:
    """An update that is not masked."""
    message = region.answer(k, step)
    assert isinstance(message, Update)
    return message
