"""Client processes: each client attends a server, trains what it is given and answers, for as long as it is wanted.

A client keeps what it was given until its answer is known to have arrived. If the connection breaks, or the server is
restarted, the training goes on, and when the client comes back it offers what it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from spyker.config.scenario import Scenario
from spyker.config.sections import ScenarioError
from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.buffers import Buffers
from spyker.deploy.certificates import CA, CREDENTIAL, load_credential
from spyker.deploy.channels import ATTEND, channel, open_stream, read_file, refuse_remote
from spyker.deploy.config import check_address, layout_digest, learning_digest
from spyker.deploy.errors import NotWantedError
from spyker.deploy.frames import PROTOCOL, Refusal, in_one_piece, receive, send, split
from spyker.deploy.log import Log
from spyker.deploy.nearest import Ranking
from spyker.learn.engine import Here, TrainJob, keep_memory, single_threaded
from spyker.learn.registry import recipe
from spyker.learn.speeds import delays
from spyker.learn.task import Task
from spyker.protocol.client import Client
from spyker.protocol.messages import Model, ToServer, Train, Update
from spyker.vectors import Vector

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds between two attempts to connect
WELCOME_SECONDS = 60.0
LEAVE_SECONDS = 2.0
NEARER = 0.7  # of the round-trip time is worth a change; measurements vary
RECEIVE_MEMORY = 1 << 30  # bytes of buffers that are kept for the next model
FINAL = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)  # trying again would not help


class Ended(Exception):  # noqa: N818 - no error: every stream ends some day
    """The server ended the stream."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError, Refusal, Ended)


@dataclass(frozen=True, slots=True)
class Attendance:
    """How the clients of a process behave."""

    servers: tuple[str, ...]
    credentials: grpc.ChannelCredentials | None = None
    keepalive: float = 10.0
    stall: float = 300.0
    """Seconds after which a server that takes nothing is left; a busy one may well let its clients wait."""
    patience: float = 15.0
    """Seconds for which a client waits for its server to come back before it turns to another one."""
    return_after: float = 30.0
    """Seconds after which a client that had to turn to another server looks whether a nearer one is back."""
    give_up: float | None = None
    """Seconds without any server after which a client ends; None: never."""


@dataclass(slots=True, eq=False)
class Job:
    """A task that a client holds: at work, or done and not known to have arrived."""

    address: str
    ticket: pb.Ticket
    result: asyncio.Future[Update]
    offered: bool = False
    """Whether the answer went out on the present connection."""


@dataclass(slots=True)
class Trainer:
    """Trains for all clients of a process, one training at a time. More processes use more cores."""

    task: Task
    delays: Sequence[float] | None = None
    """How long the training of each client takes at least, if it is to be paced."""
    states: dict[int, bytes | None] = field(default_factory=dict)
    """What clients keep from one training to the next, if the task wants that."""
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "training"))
    _engine: Here = field(init=False)

    @property
    def at_once(self) -> bool:
        """Whether a training is over before anybody could wait for it."""
        return self.task.trivial and self.delays is None

    def __post_init__(self) -> None:
        self._engine = Here(self.task)

    def train_now(self, client: int, order: Train) -> TrainJob:
        """Train, and stop everything else in the meantime."""
        job = TrainJob(client, order.weights, order.rate, order.step, self.states.get(client))
        self._engine.trained(job)
        if job.left is not job.state:
            self.states[client] = job.left
        return job

    async def train(self, client: int, order: Train) -> TrainJob:
        """Train, without stopping the streams of this process."""
        began = time.monotonic()
        if self.task.trivial:
            trained = self.train_now(client, order)
        else:
            trained = await asyncio.get_running_loop().run_in_executor(self._thread, self.train_now, client, order)
        if self.delays is not None:
            await asyncio.sleep(began + self.delays[client] - time.monotonic())
        return trained


class Attendant:
    """Drives one client of the protocol."""

    def __init__(
        self,
        id: int,
        attendance: Attendance,
        trainer: Trainer,
        ranking: Ranking,
        connect: Callable[[str], grpc.aio.Channel],
        *,
        size: int,
        layout: bytes,
        learning: bytes,
        buffers: Buffers,
        credential: str | None,
        log: Log,
    ) -> None:
        self.id, self.attendance, self.trainer, self.ranking, self.connect = id, attendance, trainer, ranking, connect
        self.client = Client(id, 0)
        self.hello = pb.Hello(protocol=PROTOCOL, client=id, size=size, layout=layout, learning=learning)
        self.buffers, self.log = buffers, log
        self.metadata = () if credential is None else (("authorization", f"Bearer {credential}"),)
        self.job: Job | None = None
        self.saved_version = 0
        self._writing_since: float | None = None
        self._seen = time.monotonic()  # when a server last said anything
        self._wake = asyncio.Event()
        self._speaking = asyncio.Lock()
        self._stream: Any = None
        self._answering: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Attend one server after the other until one says that there is nothing left to do."""
        failures = 0
        address = await self.ranking.best()
        try:
            while True:
                seen = self._seen
                try:
                    if await self._attend(address):
                        return
                except BROKEN as error:
                    code, said = what_happened(error)
                    self.log.warning("disconnected", client=self.id, address=address, code=code.name, error=said)
                    if code in FINAL:
                        raise NotWantedError(f"client {self.id}: {address} refused it: {said}") from None
                    if code is grpc.StatusCode.INVALID_ARGUMENT:
                        self._drop()  # it was refused, and would be again
                failures = 0 if self._seen > seen else failures + 1
                await asyncio.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**failures) * random.uniform(0.5, 1.5))
                address = await self._next(address)
        finally:
            self._drop()

    async def _next(self, address: str) -> str:
        """Where to go after a connection broke: back, for some time, then to the nearest one that answers."""
        away, give_up = time.monotonic() - self._seen, self.attendance.give_up
        if give_up is not None and away > give_up:
            raise NotWantedError(f"client {self.id}: no server has answered for {give_up:g} s")
        if len(self.attendance.servers) == 1 or (self.job is not None and away < self.attendance.patience):
            return address
        return await self.ranking.best(fresh=True)

    async def leave(self) -> None:
        """Tell the server that this client will not come back."""
        stream = self._stream
        if stream is None:
            return
        if self._answering is not None:
            self._answering.cancel()
        with contextlib.suppress(*BROKEN):
            async with asyncio.timeout(LEAVE_SECONDS):
                await stream.write(pb.Frame(goodbye=pb.Goodbye()).SerializeToString())
                await stream.done_writing()
                await stream.code()

    # --- One connection --------------------------------------------------------------------------------------------

    async def _attend(self, address: str) -> bool:
        """One stream, from Hello to its end. True if there is nothing to come back for."""
        stream = open_stream(self.connect(address), ATTEND, self.metadata)
        watch = asyncio.create_task(self._watch(stream))
        self._stream = stream
        try:
            if self.job is not None and self.job.address != address:
                self._drop()  # another server knows nothing of it
            self.hello.ClearField("holding")
            if self.job is not None:
                self.hello.holding.CopyFrom(self.job.ticket)
                self.job.offered = False
            await stream.write(pb.Frame(hello=self.hello).SerializeToString())
            async with asyncio.timeout(WELCOME_SECONDS):
                _, frame = split(await self._read(stream))
            if frame is None or frame.WhichOneof("body") != "welcome":
                raise Refusal("malformed", "the server did not say Welcome")
            welcome = frame.welcome
            if welcome.protocol != PROTOCOL:
                raise Refusal("protocol", f"the server speaks version {welcome.protocol}, not {PROTOCOL}")
            self.client.server = welcome.server
            self.saved_version = welcome.saved_version
            self.log.info("attending", client=self.id, address=address, server=welcome.server, kept=welcome.keep)
            if not welcome.keep:
                self._drop()
            self._answering = asyncio.create_task(self._answer_all(stream))
            self._answering.add_done_callback(lambda task: stream.cancel())
            look = time.monotonic() + self.attendance.return_after
            while True:
                chunk, frame = split(await self._read(stream))
                kind = None if frame is None else frame.WhichOneof("body")
                if frame is not None and kind == "goodbye":
                    self.saved_version = frame.goodbye.saved_version
                    self.log.info(
                        "goodbye", client=self.id, finished=frame.goodbye.finished, saved_version=self.saved_version
                    )
                    return bool(frame.goodbye.finished)
                if frame is None or kind != "task":
                    raise Refusal("malformed", "neither a task nor a goodbye")
                self._drop()  # the server has the answer, or does not want it; and the new model needs the room
                weights = await self._receive(stream, chunk)
                self.saved_version = frame.task.saved_version
                if time.monotonic() >= look:
                    look = time.monotonic() + self.attendance.return_after
                    if await self._nearer(address):
                        await self.leave()
                        return False
                self._begin(address, frame.task, weights)
                del weights, chunk
                if self.job is not None and self.job.result.done():
                    await self._answer(stream, self.job, self.job.result.result())
                else:
                    self._wake.set()
        except asyncio.CancelledError:
            answering = self._answering
            if answering is not None and answering.done() and not answering.cancelled():
                error = answering.exception()
                if error is not None:
                    raise error from None  # that is why the stream was cancelled
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Ended(grpc.StatusCode.CANCELLED, "the connection was given up") from None
        finally:
            self._stream = None
            watch.cancel()
            if self._answering is not None:
                self._answering.cancel()
                self._answering = None
            stream.cancel()

    async def _nearer(self, address: str) -> bool:
        """Whether a server that is clearly nearer than this one can be reached again."""
        if len(self.attendance.servers) == 1:
            return False
        best = await self.ranking.best(fresh=True)
        here, there = self.ranking.seconds.get(address), self.ranking.seconds.get(best)
        return here is not None and there is not None and there < NEARER * here

    async def _read(self, stream: Any) -> bytes:
        data = await stream.read()
        if data is grpc.aio.EOF:
            raise Ended(await stream.code(), await stream.details())
        self._seen = time.monotonic()
        return bytes(data)

    async def _receive(self, stream: Any, chunk: memoryview | None) -> Vector:
        if chunk is not None and len(chunk) == 4 * self.buffers.parameters:
            return in_one_piece(chunk)
        vector = self.buffers.vector()
        await receive(lambda: self._read(stream), chunk, vector)
        return vector

    # --- Training and answering ------------------------------------------------------------------------------------

    def _begin(self, address: str, task: pb.Task, weights: Vector) -> None:
        """Begin with a new task."""
        ticket = task.ticket
        [order] = self.client.handle(self.client.server, Model(weights, ticket.age, ticket.version, task.rate))
        assert isinstance(order, Train)
        result: asyncio.Future[Update]
        if self.trainer.at_once:
            result = asyncio.get_running_loop().create_future()
            result.set_result(self._trained(self.trainer.train_now(self.id, order)))
        else:
            result = asyncio.ensure_future(self._train(order))
        self.job = Job(address, ticket, result)

    async def _train(self, order: Train) -> Update:
        return self._trained(await self.trainer.train(self.id, order))

    def _trained(self, job: TrainJob) -> Update:
        assert job.result is not None
        [action] = self.client.trained(job.result, job.examples, job.metrics)
        assert isinstance(action, ToServer)
        assert isinstance(action.message, Update)
        return action.message

    def _drop(self) -> None:
        """Hold nothing any more."""
        if self.job is not None:
            self.job.result.cancel()
            self.job = None

    async def _answer_all(self, stream: Any) -> None:
        """Send every answer as soon as it is there."""
        while True:
            job = self.job
            if job is None or job.offered:
                del job  # its model may be large, and is not wanted once the next one comes
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                update = await asyncio.shield(job.result)
            except asyncio.CancelledError:
                if job.result.cancelled():
                    continue  # another task took its place
                raise
            if job is self.job and not job.offered:
                await self._answer(stream, job, update)
            del update

    async def _answer(self, stream: Any, job: Job, update: Update) -> None:
        async def write(frame: bytes) -> None:
            self._writing_since = time.monotonic()
            await stream.write(frame)
            self._writing_since = None

        job.offered = True
        async with self._speaking:  # the answer to a task that was superseded may be on its way
            body = pb.Frame(answer=pb.Answer(ticket=job.ticket)).SerializeToString()
            await send(write, body, update.weights)

    async def _watch(self, stream: Any) -> None:
        """End a connection whose other side has stopped reading."""
        self._writing_since = None
        stall = self.attendance.stall
        while True:
            await asyncio.sleep(min(1.0, stall / 4))
            since = self._writing_since
            if since is not None and time.monotonic() - since > stall:
                self.log.warning("stalled", client=self.id)
                stream.cancel()


class Connections(dict[str, grpc.aio.Channel]):
    """One client's connections by address, made when they are first asked for.

    Clients of one process do not share any: what is large and slow on the way to one would hold up all the others.
    """

    def __init__(self, attendance: Attendance) -> None:
        super().__init__()
        self._attendance = attendance

    def __missing__(self, address: str) -> grpc.aio.Channel:
        self[address] = channel(address, self._attendance.keepalive, self._attendance.credentials)
        return self[address]


def what_happened(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """Why a connection ended, as the server put it, if it could."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code(), str(error.details())
    if isinstance(error, Ended):
        return error.code, str(error)
    return grpc.StatusCode.UNKNOWN, repr(error)


async def attend_all(
    clients: Sequence[int],
    attendance: Attendance,
    trainer: Trainer,
    *,
    layout: bytes,
    learning: bytes,
    parameters: int,
    credentials: Mapping[int, str] | None,
    log: Log,
) -> bool:
    """Be these clients until they are not wanted any more, or somebody ends this process: then return False."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connections = [Connections(attendance) for _ in range(len(clients) + 1)]
    ranking = Ranking(attendance.servers, connections[-1].__getitem__)
    buffers = Buffers(parameters, max(RECEIVE_MEMORY, 4 * parameters * len(clients)))  # each will hold one, after all
    attendants = [
        Attendant(
            k,
            attendance,
            trainer,
            ranking,
            own.__getitem__,
            size=trainer.task.size(k),
            layout=layout,
            learning=learning,
            buffers=buffers,
            credential=None if credentials is None else credentials[k],
            log=log,
        )
        for k, own in zip(clients, connections, strict=False)
    ]
    running = [asyncio.create_task(attendant.run()) for attendant in attendants]
    stopped = asyncio.create_task(stop.wait())
    everybody = asyncio.gather(*running, return_exceptions=True)
    await asyncio.wait((everybody, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await asyncio.gather(*(attendant.leave() for attendant in attendants))
        for task in running:
            task.cancel()
    outcomes = await everybody
    stopped.cancel()
    for own in connections:
        for each in own.values():
            await each.close()
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return not stop.is_set()


async def attend_scenario(
    scenario: Scenario,
    clients: Sequence[int],
    servers: tuple[str, ...],
    *,
    certs: Path | None = None,
    ca: Path | None = None,
    credential: Path | None = None,
    insecure: bool = False,
    paced: bool = False,
    **behaviour: Any,
) -> bool:
    """Be some clients of a scenario. ``behaviour`` goes into :class:`Attendance`."""
    for address in servers:
        check_address(address, "--server")
    secrets = channel_credentials = None
    if insecure:
        refuse_remote(servers)
    else:
        secrets, authority = read_secrets(clients, certs, ca, credential)
        channel_credentials = grpc.ssl_channel_credentials(authority)
    keep_memory()
    task = recipe(scenario).make()
    single_threaded()
    gc.freeze()  # what is here stays, and need not be looked through time and again
    parameters = task.initial().size
    return await attend_all(
        clients,
        Attendance(servers, channel_credentials, **behaviour),
        Trainer(task, delays(scenario) if paced else None),
        layout=layout_digest(task, parameters),
        learning=learning_digest(scenario),
        parameters=parameters,
        credentials=secrets,
        log=Log(),
    )


def read_secrets(
    clients: Sequence[int], certs: Path | None, ca: Path | None, credential: Path | None
) -> tuple[dict[int, str], bytes]:
    """The credentials of clients, and the authority by which they know their servers."""
    if certs is not None:
        folders = {k: certs / f"client-{k}" for k in clients}
        authority = ca or folders[clients[0]] / CA
        return {k: load_credential(folder / CREDENTIAL) for k, folder in folders.items()}, read_file(
            authority, "--certs"
        )
    if ca is None or credential is None:
        raise ScenarioError("--certs", "is missing", "Name the folder that spyker certs made, or --ca and --credential")
    if len(clients) > 1:
        raise ScenarioError("--credential", "is for one client", "Give --certs a folder with one client-K for each")
    return {clients[0]: load_credential(credential)}, read_file(ca, "--ca")
