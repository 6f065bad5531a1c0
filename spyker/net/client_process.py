"""A client process: runs clients of a scenario until the training is over or a signal arrives."""

from __future__ import annotations

import asyncio
import gc
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.config.sections import to_toml
from spyker.engines.process_settings import keep_memory
from spyker.errors import ClientError, DeploymentError, FencedError, UsageError
from spyker.net.buffer_pool import BufferPool
from spyker.net.certificates import CA
from spyker.net.channels import read_file, refuse_remote
from spyker.net.client_context import ClientContext, ClientOptions
from spyker.net.client_identity import ClientIdentity, load_identity
from spyker.net.client_link import ClientLink
from spyker.net.client_state import ClientStates
from spyker.net.client_status import StatusFile
from spyker.net.json_log import JsonLog
from spyker.net.known_servers import FollowedList, KnownServers
from spyker.net.ledger_file import ClientLedgers, PrivacyBudgetSpentError
from spyker.net.member_list import members_from
from spyker.net.nearest_server import ServerRanking
from spyker.net.sealing import X25519Sealer
from spyker.net.server_config import check_address, check_insecure_masking, learning_digest
from spyker.net.training_thread import TrainingThread
from spyker.net.transports import Connections, NetworkOptions, TransportChoice
from spyker.node.ed25519_keys import federation_id
from spyker.protocol.client_coder import ClientCoder
from spyker.protocol.codec import Sizes
from spyker.protocol.masked_client import MaskingClient
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.client_delays import delays
from spyker.tasks.federated_task import CLIENT_OPTIONS, ClientRoster
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import evaluated_by_deployed, evaluation_interval, masked_scores, task_spec
from spyker.tasks.task import Task

RECEIVE_MEMORY = 1 << 30  # bytes of buffers for incoming models
WATCH_SECONDS = 1.0
FLOWER = "flower"


class ClientProcess:
    """The clients of a process. If one fails, the others continue."""

    def __init__(self, links: Sequence[ClientLink], log: JsonLog, status: StatusFile | None = None) -> None:
        self.links, self.log, self.status = links, log, status
        self._interrupted = False
        self._spent = True  # all failures are spent privacy budgets
        self._failures: dict[str, list[int]] = {}  # the clients that failed, by reason

    async def run(self) -> bool:
        """Run the clients until the training is over or a signal arrives.

        Returns:
            False if the process was interrupted with Ctrl-C.

        Raises:
            FencedError: clients have spent their privacy budgets; a restart does not help.
            DeploymentError: clients failed.

        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            self._interrupted = True
            stop.set()

        on_signal(loop, signal.SIGTERM, stop.set)
        on_signal(loop, signal.SIGINT, interrupt)
        running = [asyncio.create_task(self._run(link)) for link in self.links]
        all_done = asyncio.gather(*running, return_exceptions=True)
        stopped = asyncio.create_task(stop.wait())
        watching = asyncio.create_task(self._watch())
        await asyncio.wait((all_done, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await asyncio.gather(*(link.leave() for link in self.links), return_exceptions=True)
            for task in running:
                task.cancel()
        await all_done
        stopped.cancel()
        watching.cancel()
        if self.status is not None:
            self.status.write(ended=True)
        if self._failures:
            count = sum(map(len, self._failures.values()))
            reasons = "; ".join(f"{list_clients(ids)}: {reason}" for reason, ids in self._failures.items())
            kind = FencedError if self._spent else DeploymentError
            raise kind(f"{count} of {len(self.links)} clients failed. {reasons}")
        return not self._interrupted

    async def _watch(self) -> None:
        if self.status is not None:
            self.status.write()
        while True:  # cheaper than a timeout for every frame
            await asyncio.sleep(WATCH_SECONDS)
            for link in self.links:
                link.check_stalled()
                link.check_silent()
            if self.status is not None:
                self.status.write()

    async def _run(self, link: ClientLink) -> None:
        try:
            await link.run()
        except ClientError as error:
            self._spent &= isinstance(error, PrivacyBudgetSpentError)
            self._failed(link.id, error.reason)
        except Exception as error:  # a bug: log it now, not only when the other clients have ended
            self._spent = False
            self._failed(link.id, "".join(traceback.format_exception(error)))

    def _failed(self, client: int, reason: str) -> None:
        self.log.error("client-failed", client=client, error=reason)
        next(link for link in self.links if link.id == client).status.failed(reason)
        self._failures.setdefault(reason, []).append(client)


def on_signal(loop: asyncio.AbstractEventLoop, number: signal.Signals, callback: Callable[[], None]) -> None:
    """Call back in the event loop when a signal arrives."""
    try:
        loop.add_signal_handler(number, callback)
    except NotImplementedError:  # on Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


def list_clients(clients: Sequence[int]) -> str:
    """Return the numbers of clients as text."""
    numbers = ", ".join(map(str, sorted(clients)))
    return f"clients {numbers}" if len(clients) > 1 else f"client {numbers}"


def client_task(
    scenario: Scenario, clients: Sequence[int], names: Mapping[int, str], options: Mapping[str, str]
) -> Task:
    """Make the task of some clients, with the data of no others.

    Args:
        scenario: the scenario.
        clients: numbers of the clients.
        names: names of the clients by number; default: those of the scenario, or ``client-K``.
        options: local options of the task, over those of ``task.client-options``.

    """
    choice = scenario.task
    if choice.name == FLOWER and options:  # an app reads its local options from the node config
        pairs = " ".join(f"{key}={to_toml(value)}" for key, value in options.items())
        node_config = f"{choice.options.node_config} {pairs}".strip()
        scenario = replace(scenario, task=replace(choice, options=replace(choice.options, node_config=node_config)))
    given = choice.options.get(CLIENT_OPTIONS) if isinstance(choice.options, Mapping) else None
    shared = given if isinstance(given, Mapping) else {}
    roster = ClientRoster(scenario.client_count, scenario.seed, scenario.world.client_names or (), shared)
    own = {}
    for k in clients:
        client = roster.client(k)
        own[k] = replace(client, name=names.get(k, client.name), options={**client.options, **options})
    return replace(task_spec(scenario), own=own).make()


def masking_client(
    scenario: Scenario, task: Task, identity: ClientIdentity, authority: bytes | None, known: KnownServers, by: str
) -> MaskingClient:
    """Return a client that masks its updates; ``by`` says who evaluates."""
    assert authority is not None
    sealer = X25519Sealer(identity, federation_id(authority, learning_digest(scenario)), known.sealing_key)
    number = identity.client.number
    reports = scenario.privacy.report_metrics
    scored = masked_scores(scenario.privacy, task, by)
    return MaskingClient(number, 0, sealer, task.size(number), task.buffers, reports=reports, metrics=scored)


async def join(
    scenario: Scenario,
    clients: Sequence[int],
    servers: Sequence[str],
    behaviour: ClientOptions,
    network: NetworkOptions,
    *,
    identities: Mapping[int, Path] | None,
    numbers: Mapping[str, int] | None = None,
    followed: FollowedList | None = None,
    names: Mapping[int, str] | None = None,
    options: Mapping[str, str] | None = None,
    paced: bool = False,
    state: Path | None = None,
    discard: bool = False,
) -> bool:
    """Run clients of a scenario.

    Args:
        scenario: the scenario.
        clients: numbers of the clients.
        servers: addresses of the servers; the nearest one is used.
        behaviour: options of the clients.
        network: transport and proxy.
        identities: a folder with certificate and key for each client; ``None``: plaintext, on this machine alone.
        numbers: the number of the server at each address, if it is known: no other server is greeted there.
        followed: verifies the member lists of servers; ``None``: only the given servers are used.
        names: names of the clients; default: ``client-K``.
        options: local options of the task, which never leave this process.
        paced: slow training down to the scenario's delays.
        state: folder in which the clients save their states; ``None``: states end with the process.
        discard: begin without the saved states.

    Returns:
        False if the process was interrupted with Ctrl-C.

    """
    for address in servers:
        check_address(address, "--server")
    own: Mapping[int, ClientIdentity] = {}
    authority = None
    if identities is None:
        refuse_remote(servers)
    else:
        own = {k: load_identity(identities[k], k) for k in clients}
        path = identities[clients[0]] / CA
        authority = read_file(path, str(path))
    masking = scenario.privacy.masking
    if masking:
        if authority is None:
            check_insecure_masking(scenario)
        elif followed is None:  # it says which keys the servers have announced
            followed = members_from(scenario, authority)
    log = JsonLog()
    log.capture_all()
    keep_memory()
    task = client_task(scenario, clients, names or {}, options or {})
    for k in clients if task.local else ():
        CheckedTask(task).size(k)  # data that cannot be loaded is reported before a server is called
    by = evaluated_by_deployed(scenario.evaluation, task)
    interval = evaluation_interval(scenario.evaluation, scenario.privacy, by)
    states = None if state is None else ClientStates(state, task, scenario)
    ledgers = None
    if scenario.privacy.has_budget:
        if state is None:
            raise UsageError("--state", "is missing: privacy.unit needs a place for the ledger", "Give a folder")
        ledgers = ClientLedgers(state, scenario.privacy)
    training = TrainingThread(task, delays(scenario) if paced else None, interval, states, ledgers)
    gc.freeze()  # exclude long-lived objects from garbage collections
    parameters = task.initial().size
    choice = TransportChoice(network.transport, network.state)
    connections = {k: Connections(network, choice, authority) for k in clients}
    known = KnownServers(servers, numbers, followed, network.state)
    sizes = Sizes(parameters, len(scenario.placement().learners), task.buffers)
    shared = ClientContext(
        behaviour,
        training,
        ServerRanking(known, Connections(network, choice, authority)),
        BufferPool(parameters, max(RECEIVE_MEMORY, 4 * parameters * len(clients))),  # each client holds one model
        sizes,
        layout_digest(task),
        learning_digest(scenario),
        log,
        known,
    )
    links = []
    for k, reach in connections.items():
        client = (
            masking_client(scenario, task, own[k], authority, known, by) if masking else scenario.chosen.client(k, 0)
        )
        client.coder = ClientCoder.of(scenario.compression, sizes)
        if states is not None and discard:
            states.discard(k)
        client.step = training.restore(k)
        links.append(ClientLink(client, shared, reach, own.get(k), resends=not scenario.privacy.per_client))
    status = None if states is None else StatusFile(states.folder, [link.status for link in links])
    try:
        return await ClientProcess(links, log, status).run()
    finally:
        training.close()
        for each in connections.values():
            await each.close()
