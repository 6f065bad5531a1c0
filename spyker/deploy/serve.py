"""One server process, from its configuration to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from spyker.config.sections import ScenarioError
from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.buffers import Buffers
from spyker.deploy.certificates import load_credentials
from spyker.deploy.channels import ATTEND, LINK, handler, listen, options, read_file
from spyker.deploy.checkpoints import Checkpoint, CheckpointError, Checkpoints
from spyker.deploy.client_port import ClientPort, Limits
from spyker.deploy.config import (
    Config,
    check_insecure,
    deployment_digest,
    layout_numbers,
    learning_digest,
    wait_for,
)
from spyker.deploy.driver import Driver
from spyker.deploy.errors import DeploymentError
from spyker.deploy.frames import PROTOCOL
from spyker.deploy.identity import begin_life
from spyker.deploy.log import Log
from spyker.deploy.metrics import Metrics
from spyker.deploy.peer_link import PeerLink
from spyker.deploy.peer_port import PeerPort
from spyker.deploy.tally import Tally
from spyker.host.host import MOST_DATA, Host, Rules
from spyker.host.tickets import Ledger
from spyker.learn.engine import keep_memory, single_threaded
from spyker.learn.layout import layout_digest
from spyker.learn.registry import recipe
from spyker.protocol.forms import Sizes
from spyker.protocol.messages import PeerMessage
from spyker.protocol.server import Server, Setup
from spyker.vectors import Vector

GRACE_SECONDS = 2.0
FAREWELL_SECONDS = 5.0
SETTLE_SECONDS = 120.0  # to serve what has arrived and to write a last checkpoint


def serve(config: Config, *, resume: bool, insecure: bool, accept_rollback: bool) -> None:
    """Be a server until somebody ends it, or its time is up."""
    if insecure:
        check_insecure(config)
    asyncio.run(ServerProcess(config, resume=resume, insecure=insecure, accept_rollback=accept_rollback).run())


def refuse_rollback(checkpoint: Checkpoint) -> None:
    """Other servers may know of what a damaged checkpoint held; to go on from an older one is somebody's decision."""
    if checkpoint.damaged:
        problems = "\n".join(checkpoint.damaged)
        raise DeploymentError(
            f"{problems}\nAn older checkpoint, number {checkpoint.number}, can be read, but other servers may know of "
            "what came after it. Stop all servers and restore all from one backup; or add --accept-rollback to go on "
            "from the older one, which other servers may refuse to synchronise with"
        )


class ServerProcess:
    """Everything around the host: ports, links, evaluation and signals."""

    def __init__(self, config: Config, *, resume: bool, insecure: bool, accept_rollback: bool) -> None:
        self.config, self.insecure = config, insecure
        scenario, deploy = config.scenario, config.deploy
        self.places = scenario.placement()
        self.learns = deploy.server in self.places.learners
        self.peers = [j for j in self.places.servers if j != deploy.server]
        self.log = Log(server=deploy.server)
        self.log.speak_for_all()
        state = config.path(deploy.state)
        try:
            self.checkpoints = Checkpoints(state, deploy.keep)
            self.checkpoint = self.checkpoints.latest()
        except CheckpointError as error:
            raise DeploymentError(str(error)) from None
        if self.checkpoint is not None and not resume:
            raise ScenarioError(
                "deploy.state",
                f"{state} holds checkpoints",
                "Add --resume to go on from the last, or name another folder",
            )
        if self.checkpoint is not None and self.peers and not accept_rollback:
            refuse_rollback(self.checkpoint)
        self._nothing_saved = resume and self.checkpoint is None
        keep_memory()
        self.task = recipe(scenario).make()
        single_threaded()
        gc.freeze()  # what is here stays, and need not be looked through time and again
        self.tally = Tally(scenario, self.task, deploy.server, config.path(deploy.record), resume=resume, log=self.log)
        self.identity = begin_life(state)
        self.metrics = Metrics(deploy.server, scenario.algorithm)
        self._judge = ThreadPoolExecutor(1, "evaluation")
        self._tasks: list[asyncio.Task[None]] = []
        self._stop: asyncio.Event

    async def run(self) -> None:
        """Begin, go on until told to stop, and end in good order."""
        config, deploy = self.config, self.config.deploy
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self.driver = driver = self._drive()
        host = driver.host
        if self.checkpoint is not None:
            for damage in self.checkpoint.damaged:
                self.log.error("checkpoint-damaged", detail=damage)
            try:
                driver.resume(self.checkpoint)
            except (ValueError, KeyError, TypeError) as error:
                raise DeploymentError(
                    f"server {deploy.server} cannot go on from checkpoint {self.checkpoint.number}: {error}. Use the "
                    "version and the scenario that it was written with, or begin anew in another folder"
                ) from error
            self.checkpoint = None  # and let go of its vectors
        else:
            if self._nothing_saved:
                self.log.warning("nothing-to-resume", state=str(config.path(deploy.state)))
            driver.begin()
        if deploy.metrics is not None:
            address, _, port = deploy.metrics.rpartition(":")
            self.log.info("metrics", port=self.metrics.serve(address, int(port)))
        servers = await self._open_ports()
        self._link()
        for duty in (self._note_loss, self._evaluate_regularly, self._end_in_time, self.port.watch):
            self._watch_over(duty)
        finished = False
        try:
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait((stopped, driver.failed), return_when=asyncio.FIRST_COMPLETED)
            finished = self.finished and not driver.failed.done()
            if not driver.failed.done():
                await self._drain(finished=finished)
            if driver.failed.done():
                failure = driver.failed.exception()
                self.log.error("failed", error=repr(failure))
                raise DeploymentError(f"server {deploy.server} failed: {failure}") from failure
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*(server.stop(GRACE_SECONDS) for server in servers))
            self.tally.close(self._summary(finished=finished))
            driver.close()
            self._judge.shutdown()
            self.log.info("stopped", finished=finished, saved_version=host.saved_version)

    finished = False

    def _drive(self) -> Driver:
        """The host of this server, and what drives it."""
        config, scenario, deploy = self.config, self.config.scenario, self.config.deploy
        initial: list[Vector] = [self.task.initial()]
        parameters, memory = initial[0].size, int(deploy.receive_memory_mb * 1e6)
        self.sizes = Sizes(parameters, len(self.places.learners))
        models = Buffers(parameters, memory)  # for what mixes result in

        def build(roster: Mapping[int, int]) -> Server:
            setup = Setup(
                len(self.places.learners),
                scenario.client_count,
                initial.pop(),  # nobody else needs it, and it may be large
                scenario.training.rate,
                scenario.parameters,
                scenario.seed,
                self.task.mix,
                lambda vector: models.vector() if vector.size == parameters else np.empty_like(vector),
                time.monotonic,
            )
            return scenario.chosen.build(deploy.server, setup, roster)

        rules = Rules(
            clients=scenario.client_count if self.learns else 0,
            layout=layout_digest(self.task),
            learning=learning_digest(scenario),
            deployment=deployment_digest(scenario),
            lineage=self.identity.lineage,
            wait_for=wait_for(config),
            join_timeout=deploy.join_timeout,
            client_timeout=deploy.client_timeout,
            checkpoint_updates=deploy.checkpoint_updates,
            checkpoint_seconds=deploy.checkpoint_seconds,
            most_data=min(deploy.max_client_data or MOST_DATA, MOST_DATA),
        )
        ledger = Ledger(bytes.fromhex(self.identity.secret), self.identity.incarnation)
        return Driver(
            Host(deploy.server, build, ledger, rules, self.peers),
            parameters=parameters,
            buffers=Buffers(parameters, memory),
            layout=layout_numbers(self.task),
            checkpoints=self.checkpoints,
            tally=self.tally,
            metrics=self.metrics,
            log=self.log,
        )

    def _summary(self, *, finished: bool) -> dict[str, Any] | None:
        """The server's own numbers, for the record."""
        host = self.driver.host
        if host.server is None:
            return None
        members = sum(entry.member for entry in host.ledger.clients.values())
        return self.tally.summary(host.server, members, finished=finished)

    # --- Ports and links -------------------------------------------------------------------------------------------

    async def _open_ports(self) -> list[grpc.aio.Server]:
        config, deploy, scenario = self.config, self.config.deploy, self.config.scenario
        credentials = None
        mine = theirs = None
        self._credentials: grpc.ChannelCredentials | None = None
        if not self.insecure:
            chain = (
                read_file(config.path(deploy.key), "deploy.key"),
                read_file(config.path(deploy.certificate), "deploy.certificate"),
            )
            authority = read_file(config.path(deploy.ca), "deploy.ca")
            credentials = load_credentials(config.path(deploy.credentials))
            mine = grpc.ssl_server_credentials([chain])
            theirs = grpc.ssl_server_credentials([chain], root_certificates=authority, require_client_auth=True)
            self._credentials = grpc.ssl_channel_credentials(authority, *chain)
        limits = Limits(deploy.stall_timeout, deploy.slowest_mbit, deploy.max_norm)
        self.port = ClientPort(self.driver, self.sizes, scenario.chosen.answers, credentials, limits)
        self.health = health.aio.HealthServicer()
        front = grpc.aio.server(options=options(deploy.keepalive))
        front.add_generic_rpc_handlers((handler(ATTEND, self.port.attend),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, front)
        servers = [front]
        port = listen(front, deploy.listen_clients, mine)
        back_port = None
        if self.peers:
            peers = PeerPort(self.driver, self.sizes, lambda j: self._may_say(j, deploy.server), secure=bool(theirs))
            back = grpc.aio.server(options=options(deploy.keepalive))
            back.add_generic_rpc_handlers((handler(LINK, peers.link),))
            back_port = listen(back, deploy.listen_peers, theirs)
            servers.append(back)
        for server in servers:
            await server.start()
        await self.health.set("", health_pb2.HealthCheckResponse.SERVING)
        self.log.info("listening", clients=port, peers=back_port, insecure=self.insecure)
        return servers

    def _may_say(self, sender: int, receiver: int) -> tuple[type[PeerMessage], ...]:
        return self.config.scenario.chosen.between(sender, receiver, self.sizes.servers)

    def _link(self) -> None:
        deploy, rules = self.config.deploy, self.driver.host.rules
        hello = pb.PeerHello(
            protocol=PROTOCOL,
            server=deploy.server,
            layout=rules.layout,
            deployment=rules.deployment,
            lineage=rules.lineage,
        )
        for j in self.peers:
            if self._may_say(deploy.server, j):
                link = PeerLink(
                    self.driver,
                    j,
                    deploy.peers[j],
                    hello,
                    credentials=self._credentials,
                    keepalive=deploy.keepalive,
                    stall=deploy.stall_timeout,
                )
                self._watch_over(link.run)

    # --- Duties ----------------------------------------------------------------------------------------------------

    def _watch_over(self, duty: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the rest; if it fails, so does the process."""

        async def run() -> None:
            try:
                await duty()
            except Exception as error:
                self.driver.fail(error)

        self._tasks.append(asyncio.create_task(run()))

    async def _note_loss(self) -> None:
        """A server that was to be resumed and had saved nothing has lost all that it had applied."""
        if self._nothing_saved:
            await self.driver.started.wait()
            lost = self.tally.resume(0)
            self.metrics.lost(lost)
            self.log.info("resumed", checkpoint=None, version=0, lost=lost)

    async def _evaluate_regularly(self) -> None:
        """Judge the model at fixed times; a time that comes while another evaluation is under way is left out."""
        interval = self.config.scenario.evaluation.interval
        await self.driver.started.wait()
        if not self.learns:
            return  # the cloud is not judged
        while True:
            await self.evaluate()
            now = self.tally.now
            await asyncio.sleep(interval - now % interval)

    async def evaluate(self) -> None:
        """Judge the model as it is now, in a thread."""
        weights = await self.driver.snapshot()
        t, updates = self.tally.now, self.tally.updates
        score = await asyncio.get_running_loop().run_in_executor(self._judge, self.task.evaluate, weights)
        self.metrics.fact(self.tally.evaluated(t, updates, score))

    async def _end_in_time(self) -> None:
        duration = self.config.deploy.duration
        if duration is None:
            return
        await self.driver.started.wait()
        await asyncio.sleep(duration - self.tally.now)
        self.finished = True
        self._stop.set()

    async def _settle(self) -> None:
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self.driver.settle()
        except TimeoutError:
            raise DeploymentError(f"server {self.driver.host.id} could not save its state; see its log") from None

    async def _drain(self, *, finished: bool) -> None:
        """Take no more answers, serve what is there, save, and tell the clients."""
        driver, host = self.driver, self.driver.host
        self.log.info("draining", finished=finished)
        host.draining = True
        await self.health.enter_graceful_shutdown()
        if host.server is not None:
            await self._settle()  # whatever becomes of the evaluation
            if finished and self.learns and not driver.failed.done():
                try:
                    await self.evaluate()
                except Exception as error:
                    driver.fail(error)
                await self._settle()
            if driver.failed.done():
                return
        goodbye = pb.Goodbye(finished=finished, saved_version=host.saved_version)
        body = pb.Frame(goodbye=goodbye).SerializeToString()
        farewells = [asyncio.create_task(session.farewell(body)) for session in list(self.port.live)]
        if farewells:
            await asyncio.wait(farewells, timeout=FAREWELL_SECONDS)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
