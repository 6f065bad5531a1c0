"""A client process: some clients of a scenario, until no server wants them any more or somebody ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio

from spyker.config.scenario import Scenario
from spyker.config.sections import to_toml
from spyker.engines.engine import keep_memory
from spyker.errors import ClientError, DeploymentError
from spyker.net.buffer_pool import BufferPool
from spyker.net.certificates import CA
from spyker.net.channels import channel, read_file, refuse_remote
from spyker.net.client_identity import ClientIdentity, load_identity
from spyker.net.client_link import ClientContext, ClientLink, ClientOptions
from spyker.net.json_log import JsonLog
from spyker.net.nearest_server import ServerRanking
from spyker.net.server_config import check_address, learning_digest
from spyker.net.training_thread import TrainingThread
from spyker.protocol.codec import Sizes
from spyker.tasks.client_delays import delays
from spyker.tasks.federated_task import ClientInfo, client_seed
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import task_spec
from spyker.tasks.task import Task

RECEIVE_MEMORY = 1 << 30  # bytes of buffers that are kept for the next model
WATCH_SECONDS = 1.0
FLOWER = "flower"


class Connections(dict[str, grpc.aio.Channel]):
    """One client's connections by address, made when they are first asked for.

    Clients of one process do not share any: what is large and slow on the way to one would hold up all the others.
    """

    def __init__(self, keepalive: float, credentials: grpc.ChannelCredentials | None) -> None:
        super().__init__()
        self._keepalive, self._credentials = keepalive, credentials

    def __missing__(self, address: str) -> grpc.aio.Channel:
        self[address] = channel(address, self._keepalive, self._credentials)
        return self[address]

    async def close(self) -> None:
        """Close all of them."""
        for each in self.values():
            await each.close()


class ClientProcess:
    """All clients of this process. One that fails does not keep the others from going on."""

    def __init__(self, links: Sequence[ClientLink], log: JsonLog) -> None:
        self.links, self.log = links, log
        self._interrupted = False
        self._failures: dict[str, list[int]] = {}  # the clients that failed, by reason

    async def run(self) -> bool:
        """Be these clients until none is wanted any more, or somebody ends this process: with Ctrl-C, return False."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            self._interrupted = True
            stop.set()

        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, interrupt)
        running = [asyncio.create_task(self._be(link)) for link in self.links]
        everybody = asyncio.gather(*running, return_exceptions=True)
        stopped = asyncio.create_task(stop.wait())
        watching = asyncio.create_task(self._watch())
        await asyncio.wait((everybody, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await asyncio.gather(*(link.leave() for link in self.links), return_exceptions=True)
            for task in running:
                task.cancel()
        await everybody
        stopped.cancel()
        watching.cancel()
        if self._failures:
            count = sum(map(len, self._failures.values()))
            reasons = "; ".join(f"{name_all(ids)}: {reason}" for reason, ids in self._failures.items())
            raise DeploymentError(f"{count} of {len(self.links)} clients failed. {reasons}")
        return not self._interrupted

    async def _watch(self) -> None:
        while True:  # a watch over all costs less than a timeout for every frame
            await asyncio.sleep(WATCH_SECONDS)
            for link in self.links:
                link.look_after()

    async def _be(self, link: ClientLink) -> None:
        try:
            await link.run()
        except ClientError as error:
            self._failed(link.id, error.reason)
        except Exception as error:  # a fault of ours, which must not pass unseen until the others have ended
            self._failed(link.id, "".join(traceback.format_exception(error)))

    def _failed(self, client: int, reason: str) -> None:
        self.log.error("client-failed", client=client, error=reason)
        self._failures.setdefault(reason, []).append(client)


def name_all(clients: Sequence[int]) -> str:
    """Some clients, by their numbers."""
    numbers = ", ".join(map(str, sorted(clients)))
    return f"clients {numbers}" if len(clients) > 1 else f"client {numbers}"


def client_task(scenario: Scenario, names: Mapping[int, str], options: Mapping[str, str]) -> Task:
    """Make the task of some clients, with the data of no others.

    Args:
        scenario: what is learnt.
        names: names of the clients by number.
        options: local options of the task.

    """
    choice = scenario.task
    if choice.name == FLOWER and options:  # an app reads its local options from the node config
        pairs = " ".join(f"{key}={to_toml(value)}" for key, value in options.items())
        node_config = f"{choice.options.node_config} {pairs}".strip()
        scenario = replace(scenario, task=replace(choice, options=replace(choice.options, node_config=node_config)))
    own = {k: ClientInfo(name, k, client_seed(scenario.seed, k), options) for k, name in names.items()}
    return replace(task_spec(scenario), own=own).make()


async def join(
    scenario: Scenario,
    clients: Sequence[int],
    servers: Sequence[str],
    behaviour: ClientOptions,
    *,
    identities: Mapping[int, Path] | None,
    numbers: Mapping[str, int] | None = None,
    names: Mapping[int, str] | None = None,
    options: Mapping[str, str] | None = None,
    paced: bool = False,
) -> bool:
    """Be some clients of a scenario until no server wants them any more; return False after Ctrl-C.

    Args:
        scenario: what is learnt.
        clients: their numbers.
        servers: the addresses of servers; the nearest one is used.
        behaviour: timeouts.
        identities: a folder with certificate and key for each client; ``None``: plaintext, on this machine alone.
        numbers: the number of the server at each address, if it is known: no other is greeted there.
        names: names of the clients; default: ``client-K``.
        options: local options of the task, which never leave this process.
        paced: delay trainings to at least ``training.delay-ms``.

    """
    for address in servers:
        check_address(address, "--server")
    known: Mapping[int, ClientIdentity] = {}
    verified = None
    if identities is None:
        refuse_remote(servers)
    else:
        known = {k: load_identity(identities[k], k) for k in clients}
        authority = identities[clients[0]] / CA
        verified = grpc.ssl_channel_credentials(read_file(authority, str(authority)))
    log = JsonLog()
    log.speak_for_all()
    keep_memory()
    task = client_task(scenario, {k: (names or {}).get(k, f"client-{k}") for k in clients}, options or {})
    training = TrainingThread(task, delays(scenario) if paced else None)
    gc.freeze()  # what is here stays, and need not be looked through time and again
    parameters = task.initial().size
    connections = {k: Connections(behaviour.keepalive, verified) for k in clients}
    probes = Connections(behaviour.keepalive, verified)
    shared = ClientContext(
        behaviour,
        training,
        ServerRanking(servers, probes.__getitem__),
        BufferPool(parameters, max(RECEIVE_MEMORY, 4 * parameters * len(clients))),  # each will hold one, after all
        Sizes(parameters, len(scenario.placement().learners)),
        layout_digest(task),
        learning_digest(scenario),
        log,
        numbers or {},
    )
    client = scenario.chosen.client
    links = [ClientLink(client(k, 0), shared, own.__getitem__, known.get(k)) for k, own in connections.items()]
    try:
        return await ClientProcess(links, log).run()
    finally:
        for own in (*connections.values(), probes):
            await own.close()
