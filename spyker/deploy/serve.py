"""One server process, from its configuration to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from spyker.config.sections import ScenarioError
from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.attend import Door
from spyker.deploy.certificates import load_credentials
from spyker.deploy.channels import ATTEND, LINK, handler, listen, options, read_file
from spyker.deploy.checkpoints import Checkpoint, CheckpointError, Checkpoints
from spyker.deploy.config import (
    Config,
    check_insecure,
    deployment_digest,
    layout_digest,
    learners,
    learning_digest,
    server_count,
    wait_for,
)
from spyker.deploy.errors import DeploymentError
from spyker.deploy.frames import PROTOCOL
from spyker.deploy.host import Host
from spyker.deploy.identity import begin_life
from spyker.deploy.log import Log
from spyker.deploy.metrics import Metrics
from spyker.deploy.peers import Link, Outbox
from spyker.deploy.reception import Reception
from spyker.deploy.tally import Tally
from spyker.deploy.tasks import Ledger
from spyker.learn.engine import keep_memory, single_threaded
from spyker.learn.registry import recipe
from spyker.placement import Topology

GRACE_SECONDS = 2.0
FAREWELL_SECONDS = 5.0
SETTLE_SECONDS = 120.0  # to serve what has arrived and to write a last checkpoint


def serve(config: Config, *, resume: bool, insecure: bool, accept_rollback: bool) -> None:
    """Be a server until somebody ends it, or its time is up."""
    if insecure:
        check_insecure(config)
    asyncio.run(Process(config, resume=resume, insecure=insecure, accept_rollback=accept_rollback).run())


def refuse_rollback(checkpoint: Checkpoint) -> None:
    """Other servers may know of what a damaged checkpoint held; to go on from an older one is somebody's decision."""
    if checkpoint.damaged:
        problems = "\n".join(checkpoint.damaged)
        raise DeploymentError(
            f"{problems}\nAn older checkpoint, number {checkpoint.number}, can be read, but other servers may know of "
            "what came after it. Stop all servers and restore all from one backup; or add --accept-rollback to go on "
            "from the older one, which other servers may refuse to synchronise with"
        )


class Process:
    """Everything around the host: ports, links, timers and signals."""

    def __init__(self, config: Config, *, resume: bool, insecure: bool, accept_rollback: bool) -> None:
        self.config, self.insecure = config, insecure
        scenario, deploy = config.scenario, config.deploy
        self.log = Log(server=deploy.server)
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
        if self.checkpoint is not None and server_count(scenario) > 1 and not accept_rollback:
            refuse_rollback(self.checkpoint)
        self.resumed = resume
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
        initial = self.task.initial()
        self.layout = layout_digest(self.task, initial.size)
        self.host = host = Host(
            config,
            self.task,
            initial,
            ledger=Ledger(bytes.fromhex(self.identity.secret), self.identity.incarnation),
            checkpoints=self.checkpoints,
            tally=self.tally,
            metrics=self.metrics,
            log=self.log,
        )
        del initial
        peers = [j for j in self._peers() if j != deploy.server]
        host.outboxes = {j: Outbox() for j in peers}
        if self.checkpoint is not None:
            for damage in self.checkpoint.damaged:
                self.log.error("checkpoint-damaged", detail=damage)
            host.resume(self.checkpoint)
            self.checkpoint = None  # and let go of its vectors
        elif self.resumed:
            self.log.warning("nothing-to-resume", state=str(config.path(deploy.state)))
        if deploy.metrics is not None:
            address, _, port = deploy.metrics.rpartition(":")
            self.log.info("metrics", port=self.metrics.serve(address, int(port)))
        servers = await self._open_ports(peers)
        self._link(peers)
        for duty in (self._begin, self._save_regularly, self._evaluate_regularly, self._end_in_time):
            self._watch_over(duty)
        self._watch_over(lambda: self.door.watch(deploy.stall_timeout))
        finished = False
        try:
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait((stopped, host.failed), return_when=asyncio.FIRST_COMPLETED)
            if host.failed.done():
                self.log.error("failed", error=repr(host.failed.exception()))
                raise DeploymentError(
                    f"server {deploy.server} failed: {host.failed.exception()}"
                ) from host.failed.exception()
            finished = self.finished
            await self._drain(finished=finished)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*(server.stop(GRACE_SECONDS) for server in servers))
            self.tally.close(host.summary(finished=finished))
            host.close()
            self._judge.shutdown()
            self.log.info("stopped", finished=finished, saved_version=host.saved_version)

    finished = False

    def _peers(self) -> range:
        """The servers that this one may have to talk to."""
        return range(server_count(self.config.scenario))

    # --- Ports and links -------------------------------------------------------------------------------------------

    async def _open_ports(self, peers: list[int]) -> list[grpc.aio.Server]:
        config, deploy, scenario = self.config, self.config.deploy, self.config.scenario
        credentials = None
        mine = theirs = None
        if not self.insecure:
            chain = (
                read_file(config.path(deploy.key), "deploy.key"),
                read_file(config.path(deploy.certificate), "deploy.certificate"),
            )
            authority = read_file(config.path(deploy.ca), "deploy.ca")
            credentials = load_credentials(config.path(deploy.credentials))
            mine = grpc.ssl_server_credentials([chain])
            theirs = grpc.ssl_server_credentials([chain], root_certificates=authority, require_client_auth=True)
            self._credentials: grpc.ChannelCredentials | None = grpc.ssl_channel_credentials(authority, *chain)
        else:
            self._credentials = None
        self.door = Door(
            self.host,
            clients=scenario.client_count if deploy.server < learners(scenario) else 0,
            credentials=credentials,
            layout=self.layout,
            learning=learning_digest(scenario),
        )
        self.health = health.aio.HealthServicer()
        front = grpc.aio.server(options=options(deploy.keepalive))
        front.add_generic_rpc_handlers((handler(ATTEND, self.door.attend),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, front)
        servers = [front]
        port = listen(front, deploy.listen_clients, mine)
        back_port = None
        if peers:
            reception = Reception(
                self.host,
                algorithm=scenario.algorithm,
                servers=server_count(scenario),
                layout=self.layout,
                deployment=deployment_digest(scenario),
                lineage=self.identity.lineage,
                secure=not self.insecure,
            )
            back = grpc.aio.server(options=options(deploy.keepalive))
            back.add_generic_rpc_handlers((handler(LINK, reception.link),))
            back_port = listen(back, deploy.listen_peers, theirs)
            servers.append(back)
        for server in servers:
            await server.start()
        await self.health.set("", health_pb2.HealthCheckResponse.SERVING)
        self.log.info("listening", clients=port, peers=back_port, insecure=self.insecure)
        return servers

    def _link(self, peers: list[int]) -> None:
        deploy = self.config.deploy
        hello = pb.PeerHello(
            protocol=PROTOCOL,
            server=deploy.server,
            layout=self.layout,
            deployment=deployment_digest(self.config.scenario),
            lineage=self.identity.lineage,
        )
        cloud = len(self._peers()) - 1 if self.config.scenario.chosen.topology is Topology.CLOUD else None
        for j in peers:
            if cloud is not None and cloud not in (j, deploy.server):
                continue  # edges talk to the cloud alone
            link = Link(
                j,
                deploy.peers[j],
                self.host.outboxes[j],
                hello,
                lineages=self.host.lineages,
                credentials=self._credentials,
                keepalive=deploy.keepalive,
                stall=deploy.stall_timeout,
                log=self.log,
                on_sent=self._sent_to_peer,
            )
            self._watch_over(link.run)

    def _sent_to_peer(self, kind: str, size: int) -> None:
        self.tally.carried("server-to-server", kind, size)
        self.metrics.sent(kind, size)

    # --- Duties ----------------------------------------------------------------------------------------------------

    def _watch_over(self, duty: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the rest; if it fails, so does the process."""

        async def run() -> None:
            try:
                await duty()
            except Exception as error:
                if not self.host.failed.done():
                    self.host.failed.set_exception(error)

        self._tasks.append(asyncio.create_task(run()))

    async def _begin(self) -> None:
        """Start once enough clients are there."""
        host, loop = self.host, asyncio.get_running_loop()
        if host.server is not None:
            return
        wanted, deadline = wait_for(self.config), loop.time() + self.config.deploy.join_timeout
        self.log.info("waiting", clients=wanted)
        while len(host.sessions) < wanted and not (host.sessions and loop.time() >= deadline):
            await asyncio.sleep(0.01)
        host.start()
        if self.resumed:  # nothing had been saved
            lost = self.tally.resume(0)
            self.metrics.lost(lost)
            self.log.info("resumed", checkpoint=None, version=0, lost=lost)

    async def _save_regularly(self) -> None:
        await self.host.started.wait()
        while True:
            await asyncio.sleep(self.config.deploy.checkpoint_seconds)
            self.host.save_soon()

    async def _evaluate_regularly(self) -> None:
        """Judge the model at fixed times; a time that comes while another evaluation is under way is left out."""
        host, interval = self.host, self.config.scenario.evaluation.interval
        await host.started.wait()
        if self.config.deploy.server >= learners(self.config.scenario):
            return  # the cloud is not judged
        while True:
            await self.evaluate()
            now = self.tally.now
            await asyncio.sleep(interval - now % interval)

    async def evaluate(self) -> None:
        """Judge the model as it is now, in a thread."""
        host, loop = self.host, asyncio.get_running_loop()
        taken: asyncio.Future[tuple[float, int, Any]] = loop.create_future()

        def take() -> None:
            assert host.server is not None
            if not taken.done():
                taken.set_result((self.tally.now, self.tally.updates, host.server.weights.snapshot()))

        host.when_idle(take)
        t, updates, weights = await taken
        score = await loop.run_in_executor(self._judge, self.task.evaluate, weights)
        self.tally.evaluated(t, updates, score)

    async def _end_in_time(self) -> None:
        duration = self.config.deploy.duration
        if duration is None:
            return
        await self.host.started.wait()
        await asyncio.sleep(duration - self.tally.now)
        self.finished = True
        self._stop.set()

    async def _drain(self, *, finished: bool) -> None:
        """Take no more answers, serve what is there, save, and tell the clients."""
        host = self.host
        self.log.info("draining", finished=finished)
        host.draining = True
        await self.health.enter_graceful_shutdown()
        if host.server is not None:
            if finished and self.config.deploy.server < learners(self.config.scenario):
                await self.evaluate()
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await host.settle()
            except TimeoutError:
                raise DeploymentError(f"server {host.id} could not save its state; see its log") from None
            if host.failed.done():
                raise DeploymentError(f"server {host.id} failed while it stopped: {host.failed.exception()}")
        goodbye = pb.Goodbye(finished=finished, saved_version=host.saved_version)
        body = pb.Frame(goodbye=goodbye).SerializeToString()
        farewells = [asyncio.create_task(session.farewell(body)) for session in list(self.door.live)]
        if farewells:
            await asyncio.wait(farewells, timeout=FAREWELL_SECONDS)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
