"""A client process: runs clients of a scenario until the training is over or a signal arrives."""

from __future__ import annotations

import asyncio
import gc
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spyker.config.scenario import SERVERS, Scenario
from spyker.engines.engine import keep_memory
from spyker.errors import ClientError, DeploymentError, UsageError
from spyker.net.buffer_pool import BufferPool
from spyker.net.certificate_check import read_authorities
from spyker.net.certificates import CA, CREDENTIAL, load_credential
from spyker.net.channels import read_file, refuse_remote
from spyker.net.client_link import ClientContext, ClientLink, ClientOptions
from spyker.net.json_log import JsonLog
from spyker.net.nearest_server import ServerRanking
from spyker.net.server_config import check_address, learning_digest
from spyker.net.training_thread import TrainingThread
from spyker.net.transports import Connections, NetworkOptions, TransportChoice
from spyker.protocol.codec import Sizes
from spyker.tasks.client_delays import delays
from spyker.tasks.federated_task import ClientInfo, ClientRoster
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import task_spec

RECEIVE_MEMORY = 1 << 30  # bytes of buffers for incoming models
WATCH_SECONDS = 1.0


class ClientProcess:
    """The clients of a process. If one fails, the others continue."""

    def __init__(self, links: Sequence[ClientLink], log: JsonLog) -> None:
        self.links, self.log = links, log
        self._interrupted = False
        self._failures: dict[str, list[int]] = {}  # the clients that failed, by reason

    async def run(self) -> bool:
        """Run the clients until the training is over or a signal arrives.

        Returns:
            False if the process was interrupted with Ctrl-C.

        Raises:
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
        if self._failures:
            count = sum(map(len, self._failures.values()))
            reasons = "; ".join(f"{list_clients(ids)}: {reason}" for reason, ids in self._failures.items())
            raise DeploymentError(f"{count} of {len(self.links)} clients failed. {reasons}")
        return not self._interrupted

    async def _watch(self) -> None:
        while True:  # cheaper than a timeout for every frame
            await asyncio.sleep(WATCH_SECONDS)
            for link in self.links:
                link.check_stalled()

    async def _run(self, link: ClientLink) -> None:
        try:
            await link.run()
        except ClientError as error:
            self._failed(link.id, error.reason)
        except Exception as error:  # a bug: log it now, not only when the other clients have ended
            self._failed(link.id, "".join(traceback.format_exception(error)))

    def _failed(self, client: int, reason: str) -> None:
        self.log.error("client-failed", client=client, error=reason)
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


async def join(
    scenario: Scenario,
    clients: Sequence[int],
    servers: tuple[str, ...],
    behaviour: ClientOptions,
    network: NetworkOptions,
    *,
    certs: Path | None = None,
    ca: Path | None = None,
    credential: Path | None = None,
    insecure: bool = False,
    paced: bool = False,
    own: Mapping[int, ClientInfo] | None = None,
) -> bool:
    """Run clients of a scenario.

    Args:
        scenario: the scenario.
        clients: numbers of the clients.
        servers: addresses of the servers.
        behaviour: options of the clients.
        network: transport and proxy.
        certs: folder that ``spyker certs`` created, with the clients' credentials.
        ca: certificate of the authority, in place of the one in ``certs``.
        credential: credential of a single client, in place of ``certs``.
        insecure: use plaintext, without credentials.
        paced: slow training down to the scenario's delays.
        own: descriptions of the clients for a task whose data stays with its clients.

    Returns:
        False if the process was interrupted with Ctrl-C.

    """
    for address in servers:
        check_address(address, "--server")
    secrets: Mapping[int, str] = {}
    authority = None
    if insecure:
        refuse_remote(servers)
    else:
        secrets, authority = read_secrets(clients, certs, ca, credential)
    log = JsonLog()
    log.capture_all()
    keep_memory()
    names = scenario.world.client_names or ()
    unnamed = ClientRoster(scenario.client_count, scenario.seed, names)
    task = replace(task_spec(scenario), own=own or {k: unnamed.client(k) for k in clients}).make()
    interval = None if task.evaluated_by == SERVERS else scenario.evaluation.interval
    training = TrainingThread(task, delays(scenario) if paced else None, interval)
    gc.freeze()  # exclude long-lived objects from garbage collections
    parameters = task.initial().size
    choice = TransportChoice(network.transport, network.state)
    connections = {k: Connections(network, choice, authority) for k in clients}
    probes = Connections(network, choice, authority)
    shared = ClientContext(
        behaviour,
        training,
        ServerRanking(servers, probes),
        BufferPool(parameters, max(RECEIVE_MEMORY, 4 * parameters * len(clients))),  # each client holds one model
        Sizes(parameters, len(scenario.placement().learners)),
        layout_digest(task),
        learning_digest(scenario),
        log,
    )
    client = scenario.chosen.client
    links = [ClientLink(client(k, 0), shared, own, secrets.get(k)) for k, own in connections.items()]
    try:
        return await ClientProcess(links, log).run()
    finally:
        for each in (*connections.values(), probes):
            await each.close()


def read_secrets(
    clients: Sequence[int], certs: Path | None, ca: Path | None, credential: Path | None
) -> tuple[dict[int, str], bytes]:
    """Return the clients' credentials, and the certificate of the authority that verifies servers."""
    if certs is not None:
        folders = {k: certs / f"client-{k}" for k in clients}
        authority = ca or folders[clients[0]] / CA
        secrets = {k: load_credential(folder / CREDENTIAL) for k, folder in folders.items()}
        return secrets, read_authority(authority, "--certs" if ca is None else "--ca")
    if ca is None or credential is None:
        raise UsageError("--certs", "is missing", "Give the folder that spyker certs created, or --ca and --credential")
    if len(clients) > 1:
        raise UsageError("--credential", "is for one client", "Give --certs a folder with one client-K for each")
    return {clients[0]: load_credential(credential)}, read_authority(ca, "--ca")


def read_authority(path: Path, key: str) -> bytes:
    """Return the certificate of an authority, after checking that it is valid now."""
    read_authorities(path, key)
    return read_file(path, key)
