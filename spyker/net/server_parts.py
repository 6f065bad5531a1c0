"""What a server process consists of: model, task, state folder, record, node and driver."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography import x509

from spyker.config.client_privacy import check_noise, client_privacy
from spyker.config.masking import masking_setup
from spyker.config.scenario import CLIENTS, SERVERS, dump
from spyker.engines.process_settings import keep_memory, share_memory, single_threaded
from spyker.errors import UsageError
from spyker.net.buffer_pool import BufferPool
from spyker.net.driver import Driver
from spyker.net.event_log import EventLog
from spyker.net.identity import start_incarnation
from spyker.net.json_log import JsonLog
from spyker.net.member_identity import member_options
from spyker.net.metrics import Metrics
from spyker.net.recorder import Recorder
from spyker.net.revocations import Revocations
from spyker.net.server_config import ServerConfig, deployment_digest, layout_numbers, learning_digest, min_clients
from spyker.net.state_folder import open_state
from spyker.node.event_codec import FORMAT, LoggedArray, LogHeader, MembershipOptions
from spyker.node.inbox import NodeOptions
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.secret_noise import secret_noise
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import first_view
from spyker.node.x25519_seals import X25519Opener
from spyker.protocol.codec import Sizes
from spyker.protocol.server import Server, Setup
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.initial_model import InitialModelFile
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import evaluated_by_deployed, rate_of, task_spec
from spyker.tasks.served_model import ServedModel, read_served_model
from spyker.tasks.task import Task, limits_by_name
from spyker.vectors import Vector, mix
from spyker.version import __version__


def load_model(config: ServerConfig) -> tuple[Task | None, ServedModel]:
    """Return the initial model of a server and, if the server evaluates or has no model file, its task.

    Raises:
        UsageError: the model file cannot be used, or it is not of the task.

    """
    deploy, scenario = config.deploy, config.scenario
    if deploy.model is None:
        task = task_spec(scenario).make()
        return task, ServedModel.of(task)
    served = read_served_model(config.path(deploy.model))
    if not config.needs_task:
        return None, served
    task = task_spec(scenario).make()
    if layout_digest(task) != served.spec.digest:
        problem = f"{deploy.model} is not a model of the task {scenario.task.name}"
        raise UsageError("deploy.model", problem, "Give the model that was written for this task")
    return task, served


class ServerParts:
    """The parts of a server process, from its configuration. :mod:`~spyker.net.server_process` runs them."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        resume: bool,
        insecure: bool,
        join: bool = False,
        log: JsonLog | None = None,
        initial_model: InitialModelFile | None = None,
    ) -> None:
        self.config, self.insecure = config, insecure
        scenario, deploy = config.scenario, config.deploy
        self.places = scenario.placement()
        added = deploy.server not in self.places.servers
        self.learns = added or deploy.server in self.places.learners
        self.peers = [j for j in range(max(len(self.places.servers), len(deploy.peers))) if j != deploy.server]
        self.log = log or JsonLog(server=deploy.server)
        self.log.capture_all()
        state = open_state(config, resume=resume, alone=not self.peers)
        self.checkpoints, self.checkpoint = state.checkpoints, state.checkpoint
        self._new = self.checkpoint is None and (join or added or state.reset)
        self._nothing_saved = resume and self.checkpoint is None and not self._new
        keep_memory()
        share_memory()
        self.task, served = load_model(config)
        self.spec = served.spec
        self.initial_model = None if initial_model is None else initial_model.fit(self.spec.layout)
        self._weights = served.weights if self.initial_model is None else self.initial_model.weights
        single_threaded()
        gc.freeze()  # exclude long-lived objects from garbage collections
        self.metrics = Metrics(deploy.server, scenario.algorithm)
        for note in self.task.notes if self.task is not None else ():
            self.log.info("task", note=note)
        self.evaluated_by = CLIENTS if self.task is None else evaluated_by_deployed(scenario.evaluation, self.task)
        self.recorder = self._begin_record(resume=resume or self._new)
        try:
            self.identity = start_incarnation(self.checkpoints.folder)
        except OSError as error:
            raise UsageError(
                "deploy.state",
                f"{self.checkpoints.folder} cannot be written ({error.strerror})",
                "Free space there, or give another folder",
            ) from None
        central = self.task is not None and self.evaluated_by != CLIENTS
        self.evaluation = CheckedTask(self.task) if central and self.task is not None else None
        self._evaluation_thread = ThreadPoolExecutor(1, "evaluation")
        self._tasks: list[asyncio.Task[None]] = []
        self._stop: asyncio.Event

    def _begin_record(self, *, resume: bool) -> Recorder:
        deploy, folder = self.config.deploy, self.config.path(self.config.deploy.record)
        try:
            return Recorder(
                self.config.scenario,
                self.spec,
                deploy.server,
                folder,
                resume=resume,
                log=self.log,
                limit=int(deploy.record_mb * 1e6),
                dropped=self.metrics.dropped,
                region=deploy.region,
                evaluated_by=self.evaluated_by,
            )
        except OSError as error:
            raise UsageError(
                "deploy.record",
                f"{folder} cannot be used ({error.strerror})",
                "Give a folder that this user may write to",
            ) from None

    def _drive(self) -> Driver:
        """Make the node and its driver."""
        config, scenario, deploy = self.config, self.config.scenario, self.config.deploy
        clock = NodeClock(time.monotonic())
        initial: list[Vector] = [self._weights]
        del self._weights  # the list has the only reference: the model may be large
        rate = rate_of(scenario.training, self.spec)
        parameters, memory = initial[0].size, int(deploy.receive_memory_mb * 1e6)
        self.sizes = Sizes(parameters, len(self.places.learners), self.spec.buffers)
        models = BufferPool(parameters, memory)  # for the results of mixes
        secret = bytes.fromhex(self.identity.secret)
        privacy = client_privacy(scenario, parameters, self.spec.buffers, secret_noise(secret))
        if (noise := check_noise(scenario, parameters)) is not None:
            self.log.warning("noise", warning=noise)

        def build(roster: Mapping[int, int]) -> Server:
            setup = Setup(
                len(self.places.learners),
                scenario.client_count,
                initial.pop(),
                rate,
                scenario.parameters,
                scenario.seed,
                mix,
                lambda vector: models.vector() if vector.size == parameters else np.empty_like(vector),
                clock.handling,
                scenario.robust.on(deployed=True),
                self.spec.buffers,
                self._client_metrics(),
                masking_setup(scenario, opener),
                privacy,
                scenario.compression,
            )
            return scenario.chosen.create(deploy.server, setup, roster)

        options = NodeOptions(
            clients=None if self.learns else 0,
            layout=self.spec.digest,
            learning=learning_digest(scenario),
            deployment=deployment_digest(scenario),
            lineage=self.identity.lineage,
            min_clients=min_clients(config),
            join_timeout=deploy.join_timeout,
            client_timeout=deploy.client_timeout,
            checkpoint_updates=deploy.checkpoint_updates,
            checkpoint_seconds=deploy.checkpoint_seconds,
            heartbeat_interval=deploy.heartbeat,
            most_booked=None if privacy is None else privacy.participations,
        )
        task_tokens = TaskTokens(secret, self.identity.incarnation)
        view = first_view(self.places.learners, self.places.servers)
        membership = member_options(config, self.identity, view, new=self._new, insecure=self.insecure)
        membership_of_process = membership.make(clock, secret)
        opener = None
        if scenario.privacy.masking:
            revocations = Revocations(config.path(deploy.revoked))
            opener = X25519Opener(
                secret,
                membership.federation,
                x509.load_pem_x509_certificates(membership.authorities),
                lambda client: revocations.revoked(client.number, client.serial),
            )
        event_log = self._begin_event_log(membership, options, clock(), initial[0], rate)
        return Driver(
            Node(deploy.server, build, task_tokens, options, membership=membership_of_process, clock=clock),
            parameters=parameters,
            buffers=BufferPool(parameters, memory),
            layout=layout_numbers(self.spec),
            identity=self.identity.numbers,
            checkpoints=self.checkpoints,
            recorder=self.recorder,
            metrics=self.metrics,
            log=self.log,
            event_log=event_log,
        )

    def _client_metrics(self) -> dict[str, tuple[float, float]]:
        """Return the metrics that clients evaluate, and the limits of their values."""
        return {} if self.evaluated_by == SERVERS else limits_by_name((self.spec.metric, *self.spec.also))

    def _begin_event_log(
        self, membership: MembershipOptions, options: NodeOptions, started_at: float, weights: Vector, rate: float
    ) -> EventLog | None:
        """Begin the event log with the configuration and the state from which this process starts."""
        deploy, checkpoint = self.config.deploy, self.checkpoint
        if deploy.event_log is None:
            return None
        header = LogHeader(
            format=FORMAT,
            version=__version__,
            scenario=dump(self.config.scenario),
            membership=membership,
            options=options,
            secret=bytes.fromhex(self.identity.secret),
            started_at=started_at,
            weights=LoggedArray.of(weights),
            rate=rate,
            buffers=self.spec.buffers,
            numbers=None if checkpoint is None else json.dumps(checkpoint.numbers).encode(),
            vectors={} if checkpoint is None else {n: LoggedArray.of(v) for n, v in checkpoint.vectors.items()},
            client_metrics=self._client_metrics(),
        )
        folder, limit = self.config.path(deploy.event_log), int(deploy.event_log_mb * 1e6)
        try:
            return EventLog(folder, self.identity.incarnation, header, limit, self.log)
        except OSError as error:
            raise UsageError(
                "deploy.event-log",
                f"cannot write to {folder} ({error.strerror})",
                "Give a folder that this user may write to",
            ) from None
