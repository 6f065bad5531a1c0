"""One server process, from its configuration to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from spyker.config.scenario import SERVERS
from spyker.errors import DeploymentError, FencedError
from spyker.net import first_bytes as services
from spyker.net import spyker_pb2 as pb
from spyker.net.admin_socket import serve_commands
from spyker.net.certificate_check import check_certificate, read_authorities
from spyker.net.channels import CLIENTS_CONNECT, PEERS_CONNECT, PEERS_CONTROL, guarded, handler, read_file
from spyker.net.client_identity import ClientVerifier
from spyker.net.client_port import ClientLimits, ClientPort
from spyker.net.descriptors import connection_limits
from spyker.net.health import CHECK, Health
from spyker.net.identity import reset_identity
from spyker.net.json_log import JsonLog
from spyker.net.peer_address import host_of
from spyker.net.peer_certificate import server_at
from spyker.net.peer_link import PeerLink
from spyker.net.peer_port import PeerPort
from spyker.net.ports import Ports
from spyker.net.rate_limited_log import WINDOW_SECONDS
from spyker.net.revocations import Revocations
from spyker.net.server_config import ServerConfig, check_insecure
from spyker.net.server_parts import ServerParts
from spyker.net.state_folder import RestartAsNewMember
from spyker.net.websocket_port import WebSocketPort, server_tls
from spyker.node.effects import MembershipChanged
from spyker.node.events import Drain
from spyker.node.views import View
from spyker.protocol.coded_messages import with_coded
from spyker.protocol.masked_server import MASKING_MESSAGES
from spyker.protocol.messages import MaskedUpdate, PeerMessage
from spyker.tasks.initial_model import InitialModelFile

RECORDS_UMASK = 0o027  # records are readable for the owner's group; the state folder is private
GRACE_SECONDS = 2.0
DUPLICATE_SECONDS = 3.0  # for which a process that is not the only one of its server calls the others
GOODBYE_SECONDS = 5.0
SETTLE_SECONDS = 120.0  # to handle what has arrived and to write the last checkpoint


def serve(
    config: ServerConfig,
    *,
    resume: bool,
    insecure: bool,
    join: bool = False,
    initial_model: InitialModelFile | None = None,
) -> None:
    """Run a server until a signal arrives or its duration is over.

    Args:
        config: configuration of the server.
        resume: whether to resume from the last checkpoint, with its model.
        insecure: whether to use plaintext.
        join: whether the server is a new member of a running deployment.
        initial_model: initial model, unless the server resumes.

    """
    if insecure:
        check_insecure(config)
    else:
        check_certificate(config)
    os.umask(RECORDS_UMASK)
    log = JsonLog(server=config.deploy.server)
    while True:
        process = None
        try:
            process = ServerProcess(
                config, resume=resume, insecure=insecure, join=join, log=log, initial_model=initial_model
            )
            asyncio.run(process.run())
            return
        except RestartAsNewMember as reason:
            log.warning("reset", reason=str(reason))
            if process is not None:
                process.checkpoints.close()
            reset_identity(config.path(config.deploy.state))
            resume = join = True


class ServerProcess(ServerParts):
    """Ports, links, evaluation and signals around a node."""

    async def run(self) -> None:
        """Run until a signal, the end of the duration, or a failure."""
        config, deploy = self.config, self.config.deploy
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self.driver = driver = self._drive()
        node = driver.node
        if self.checkpoint is not None:
            for damage in self.checkpoint.damaged:
                self.log.error("checkpoint-damaged", detail=damage)
            try:
                driver.resume(self.checkpoint)
            except (ValueError, LookupError, TypeError) as error:
                raise DeploymentError(
                    f"server {deploy.server} cannot resume from checkpoint {self.checkpoint.number}: {error!r}. Use "
                    "the version and the scenario that it was written with, or start in another folder"
                ) from error
            self.checkpoint = None  # release its vectors
        else:
            if self._nothing_saved:
                self.log.warning("nothing-to-resume", state=str(config.path(deploy.state)))
            if self.initial_model is not None:
                self._run_in_background(self._record_initial_model)
            driver.begin()
        if deploy.metrics is not None:
            address, _, port = deploy.metrics.rpartition(":")
            self.log.info("metrics", port=self.metrics.serve(address, int(port)))
        ports = await self._open_ports()
        self._links: dict[int, asyncio.Task[None]] = {}
        driver.members_changed = self._members_changed
        self._link(driver.node.view)
        control = await serve_commands(config.path(deploy.state), driver)
        for duty in (
            self._record_loss,
            self._evaluate_regularly,
            self._stop_after_duration,
            self._sum_up,
            self.port.watch,
        ):
            self._run_in_background(duty)
        finished = False
        try:
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait((stopped, driver.failed, driver.stopped), return_when=asyncio.FIRST_COMPLETED)
            finished = self.finished and not driver.failed.done() and not driver.stopped.done()
            if driver.stopped.done() and not driver.failed.done():
                order = driver.stopped.result()
                self.log.error("must-stop", reason=order.reason, reset=order.restart)
                if node.membership.duplicated:
                    await self._show_duplicate()
                raise RestartAsNewMember(order.reason) if order.restart else FencedError(order.reason)
            if not driver.failed.done():
                await self._drain(finished=finished)
            if driver.failed.done():
                failure = driver.failed.exception()
                self.log.error("failed", error=repr(failure))
                raise DeploymentError(f"server {deploy.server} failed: {failure}") from failure
        finally:
            control.close()
            for task in (*self._tasks, *self._links.values()):
                task.cancel()
            await ports.stop(GRACE_SECONDS)
            self.recorder.close(self._summary(finished=finished))
            self.metrics.close()
            driver.close()
            self._evaluation_thread.shutdown()
            driver.limited_log.sum_up(all=True)
            self.log.info("stopped", finished=finished, saved_version=node.saved_version)

    finished = False

    def _summary(self, *, finished: bool) -> dict[str, Any] | None:
        """Return the summary for the run record."""
        node = self.driver.node
        if node.server is None:
            return None
        return self.recorder.summary(node.server, self._members(), finished=finished)

    def _members(self) -> int:
        """Return the number of clients of this server."""
        return sum(tasks.member for tasks in self.driver.node.clients.values())

    # --- Ports and links -------------------------------------------------------------------------------------------

    async def _open_ports(self) -> Ports:
        config, deploy, scenario = self.config, self.config.deploy, self.config.scenario
        verifier = None
        mine = theirs = None
        self._credentials: grpc.ChannelCredentials | None = None
        if not self.insecure:
            chain = (
                read_file(config.path(deploy.key), "deploy.key"),
                read_file(config.path(deploy.certificate), "deploy.certificate"),
            )
            authority = read_file(config.path(deploy.ca), "deploy.ca")
            authorities = read_authorities(config.path(deploy.ca), "deploy.ca")
            verifier = ClientVerifier(authorities, Revocations(config.path(deploy.revoked)))
            if not deploy.plaintext_clients:
                mine = grpc.ssl_server_credentials([chain])
            theirs = grpc.ssl_server_credentials([chain], root_certificates=authority, require_client_auth=True)
            self._credentials = grpc.ssl_channel_credentials(authority, *chain)
        limits = ClientLimits(deploy.stall_timeout, deploy.min_mbit, deploy.max_norm)
        most = connection_limits(config, len(self.peers), self.log)
        ports = Ports(deploy, most, self._report_closed, peers=bool(self.peers), insecure=self.insecure)
        answers = MaskedUpdate if scenario.privacy.masking else scenario.chosen.answers
        updates = with_coded([answers], scenario.compression.updates).values()
        self.port = ClientPort(self.driver, self.sizes, updates, verifier, limits, ports.authenticated)
        self.health = Health()
        served = {CLIENTS_CONNECT: self.port.attend, CHECK: self.health.check}
        front = grpc.aio.server(
            options=guarded(deploy.keepalive, most[services.CLIENTS], deploy.client_window_kb << 10)
        )
        front.add_generic_rpc_handlers(tuple(handler(method, serve) for method, serve in served.items()))
        ports.add_clients(front, mine)
        if self.peers:
            kinds = lambda j: self._allowed_kinds(j, deploy.server)  # noqa: E731
            self.peer_port = PeerPort(self.driver, self.sizes, kinds, ports.authenticated, secure=bool(theirs))
            patience = max(deploy.keepalive / 2, deploy.stall_timeout)  # pings wait behind models
            settings = guarded(deploy.keepalive, most[services.PEERS], patience=patience)
            back = front if ports.one_grpc else grpc.aio.server(options=settings)
            methods = {PEERS_CONNECT: self.peer_port.link, PEERS_CONTROL: self.peer_port.control}
            back.add_generic_rpc_handlers(tuple(handler(method, serve) for method, serve in methods.items()))
            ports.add_peers(back, theirs)
        if deploy.listen_websocket is not None:
            plaintext = self.insecure or deploy.plaintext_clients
            tls = None if plaintext else server_tls(config.path(deploy.certificate), config.path(deploy.key))
            await ports.add_websocket(WebSocketPort(served, deploy.keepalive, most[services.WEBSOCKET], self.log), tls)
        await ports.start()
        if ports.front is not None:
            self._run_in_background(ports.front.watch)
        listening: dict[str, Any] = {**ports.numbers, "insecure": self.insecure}
        self.log.info("listening", **listening)
        return ports

    def _report_closed(self, reason: str, peer: str) -> None:
        """Log and count a connection that was closed because it was not authenticated. Called in any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self.driver.loop.call_soon_threadsafe(self.driver.closed_connection, reason, host_of(peer))

    def _allowed_kinds(self, sender: int, receiver: int) -> tuple[type[PeerMessage], ...]:
        chosen = self.config.scenario.chosen
        masking = MASKING_MESSAGES if self.config.scenario.privacy.masking else ()
        between = with_coded(
            chosen.between(sender, receiver, self.sizes.servers), self.config.scenario.compression.exchanges
        )
        return (*between.values(), chosen.bootstrap, *masking)

    def _address(self, view: View, j: int) -> str | None:
        """Return a server's address: from the view, or from this machine's configuration."""
        peers, member = self.config.deploy.peers, view.members.get(j)
        address = member.address if member is not None else ""
        return address or (peers[j] if j < len(peers) else None)

    def _link(self, view: View) -> None:
        """Connect to all servers that are not connected yet. A new member connects to all that it knows of."""
        deploy = self.config.deploy
        paths = [self.config.path(name) for name in (deploy.ca, deploy.certificate, deploy.key)]
        for j in self.peers if self.driver.node.membership.new else view.members:
            address = self._address(view, j)
            if j == deploy.server or j in self._links or address is None:
                continue
            link = PeerLink(
                self.driver,
                j,
                address,
                credentials=self._credentials,
                keepalive=deploy.keepalive,
                stall=deploy.stall_timeout,
                server_at=None if self.insecure else lambda address: server_at(address, *paths),
            )
            self._links[j] = self._run(link.run)

    def _members_changed(self, members: MembershipChanged) -> None:
        """Disconnect from servers that were removed or replaced, and connect to new ones."""
        for j in list(self._links):
            if j in members.strangers or j not in members.view.members:
                self._links.pop(j).cancel()
        if self.peers:
            self.peer_port.disconnect(members.strangers)
        self._link(members.view)

    async def _show_duplicate(self) -> None:
        """Call the other servers anew: that shows them that this server has two processes."""
        for j in list(self._links):
            self._links.pop(j).cancel()
        self._link(self.driver.node.view)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.driver.told_of_duplicate.wait(), DUPLICATE_SECONDS)

    # --- Duties ----------------------------------------------------------------------------------------------------

    def _run_in_background(self, duty: Callable[[], Awaitable[None]]) -> None:
        """Run a background task. If it fails, the process fails."""
        self._tasks.append(self._run(duty))

    def _run(self, duty: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await duty()
            except Exception as error:
                self.driver.fail(error)

        return asyncio.create_task(run())

    async def _record_initial_model(self) -> None:
        """Record the initial model."""
        await self.driver.started.wait()
        assert self.initial_model is not None
        self.recorder.fact(self.initial_model.fact, 0)
        self.log.info("initial-model", model=self.initial_model.fact.model, sha256=self.initial_model.fact.sha256)

    async def _record_loss(self) -> None:
        """Record the updates that were lost because the server had no checkpoint to resume from."""
        if self._nothing_saved:
            await self.driver.started.wait()
            lost = self.recorder.resume(0)
            self.metrics.lost(lost)
            self.log.info("server-resumed", checkpoint=None, version=0, lost_updates=lost)

    async def _evaluate_regularly(self) -> None:
        """Evaluate the model at a fixed interval; skip an evaluation while another one runs."""
        interval = self.config.scenario.evaluation.interval
        await self.driver.started.wait()
        if not self.learns:
            return  # the cloud is not evaluated
        while True:
            await self.evaluate()
            now = self.recorder.now
            await asyncio.sleep(interval - now % interval)

    async def evaluate(self) -> None:
        """Record the clients' evaluations and, with central test data, evaluate the present model in a thread."""
        if self.evaluated_by != SERVERS:
            by_clients = self.recorder.evaluated_by_clients(self._members())
            self.metrics.evaluated_by_clients(self.recorder.by_clients)
            if by_clients is not None:
                self.metrics.fact(by_clients)
                self.metrics.learning(self.recorder.warned)
        if self.evaluation is None:
            return
        weights = await self.driver.snapshot()
        t, updates = self.recorder.now, self.recorder.updates
        score = await asyncio.get_running_loop().run_in_executor(
            self._evaluation_thread, self.evaluation.evaluate, weights
        )
        self.metrics.fact(self.recorder.evaluated(t, updates, score))
        self.metrics.learning(self.recorder.warned)

    async def _stop_after_duration(self) -> None:
        duration = self.config.deploy.duration
        if duration is None:
            return
        await self.driver.started.wait()
        await asyncio.sleep(duration - self.recorder.now)
        self.finished = True
        self._stop.set()

    async def _sum_up(self) -> None:
        """Log suppressed counts periodically."""
        while True:
            await asyncio.sleep(WINDOW_SECONDS)
            self.driver.limited_log.sum_up()

    async def _settle(self) -> None:
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self.driver.settle()
        except TimeoutError:
            raise DeploymentError(f"server {self.driver.node.id} could not save its state; see its log") from None

    async def _drain(self, *, finished: bool) -> None:
        """Drain: accept no more updates, handle what has arrived, save, and inform the clients."""
        driver, node = self.driver, self.driver.node
        self.log.info("draining", finished=finished)
        driver.deliver(Drain(now=driver.now()))
        self.health.serving = False
        if node.server is not None:
            await self._settle()  # before the evaluation, which may fail
            if finished and self.learns and not driver.failed.done():
                try:
                    await self.evaluate()
                except Exception as error:
                    driver.fail(error)
                await self._settle()
            if driver.failed.done():
                return
        goodbye = pb.Goodbye(finished=finished, saved_version=node.saved_version)
        body = pb.Frame(goodbye=goodbye).SerializeToString()
        goodbyes = [asyncio.create_task(session.say_goodbye(body)) for session in list(self.port.live)]
        if goodbyes:
            await asyncio.wait(goodbyes, timeout=GOODBYE_SECONDS)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
