"""Calls of a ``ClientApp`` as Flower would make them: a message and a context in, a message out.

Apps with ``@app.train()`` and ``@app.evaluate()`` and apps with a ``client_fn`` are called in the same way; only the
names of the records differ.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictBytes

from spyker.errors import FlowerError
from spyker.flower.arrays import NDArray
from spyker.flower.project import Config

RUN, SERVER_NODE = 1, 0
LIFETIME = 43_200.0  # seconds; Flower's own
EXAMPLES = "num-examples"
NEW_NAMES = ("arrays", "config")


@dataclass(frozen=True, slots=True)
class ClientReply:
    """The reply of a ClientApp."""

    arrays: Mapping[str, NDArray]
    metrics: Mapping[str, float]
    examples: int | None
    state: bytes | None
    """The serialised ``context.state``; ``None`` if it is empty."""


@dataclass(slots=True)
class ClientAppCaller:
    """Calls one ClientApp on behalf of any client."""

    app: ClientApp
    clients: int
    seed: int
    run_config: Config
    node_config: Config
    names: tuple[str, str] = NEW_NAMES
    """Names of the records with arrays and configuration in messages to an app with ``@app.train()``."""
    legacy: bool = field(init=False)

    def __post_init__(self) -> None:
        self.legacy = self.app._call is not None

    def call(
        self,
        client: int,
        kind: str,
        arrays: Mapping[str, NDArray],
        config: Mapping[str, Any],
        step: int,
        state: bytes | None = None,
        run_config: Mapping[str, Any] | None = None,
    ) -> ClientReply:
        """Call the app for a client with a model; random numbers depend on seed, client and step.

        ``run_config`` overrides entries of the app's run config.
        """
        content = self.content(kind, arrays, config)
        context = self.context(client, state)
        context.run_config.update(run_config or {})
        seed_all(self.seed, client, step)
        reply = self.app(message(kind, content, client, str(step)), context)
        if not isinstance(reply, Message):
            raise FlowerError(f"the app returned {type(reply).__name__}. Return a Message(content, reply_to=message)")
        if reply.has_error():
            raise FlowerError(f"the app answered with error {reply.error.code}: {reply.error.reason}")
        kept = recorddict_to_proto(context.state).SerializeToString(deterministic=True) if context.state else None
        return read(reply.content, kept)

    def content(self, kind: str, arrays: Mapping[str, NDArray], config: Mapping[str, Any]) -> RecordDict:
        """Return the content of a message."""
        names = (f"{INS[kind]}.parameters", f"{INS[kind]}.config") if self.legacy else self.names
        return RecordDict({names[0]: as_record(arrays), names[1]: ConfigRecord(dict(config))})

    def context(self, client: int, state: bytes | None = None) -> Context:
        """Return the context of a client; its partition id is its number, as in Flower's simulation."""
        kept = RecordDict() if state is None else recorddict_from_proto(RecordDictBytes.FromString(state))
        here: Config = {"partition-id": client, "num-partitions": self.clients}
        return Context(RUN, node_of(client), here | self.node_config, kept, dict(self.run_config))


INS = {MessageType.TRAIN: "fitins", MessageType.EVALUATE: "evaluateins"}


def node_of(client: int) -> int:
    """Return the node id of a client; 0 is the server."""
    return client + 1


def as_record(arrays: Mapping[str, NDArray]) -> ArrayRecord:
    """Convert arrays to an ``ArrayRecord``."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def message(kind: str, content: RecordDict, client: int, group: str) -> Message:
    """Return a message from the server to a client. Flower derives its time to live from the wall clock."""
    metadata = Metadata(RUN, f"{kind}-{group}", SERVER_NODE, node_of(client), "", group, time.time(), LIFETIME, kind)
    return Message(content=content, metadata=metadata)


def read(content: RecordDict, state: bytes | None) -> ClientReply:
    """Parse a reply. Each number is a metric; a list of numbers is one metric per entry."""
    arrays = [dict(record) for record in content.array_records.values()]
    if len(arrays) > 1:
        raise FlowerError(f"the app returned {len(arrays)} ArrayRecords. Return one, with the whole model")
    metrics: dict[str, float] = {}
    for record in (*content.metric_records.values(), *legacy_metrics(content)):
        for name, value in record.items():
            listed = isinstance(value, list)
            values = {f"{name}.{i}": v for i, v in enumerate(value)} if listed else {name: value}
            metrics |= {name: float(v) for name, v in values.items() if isinstance(v, Real)}
    examples = metrics.pop(EXAMPLES, metrics.pop("num_examples", None))
    return ClientReply(
        {name: array.numpy() for name, array in arrays[0].items()} if arrays else {},
        metrics,
        None if examples is None else int(examples),
        state,
    )


def legacy_metrics(content: RecordDict) -> list[ConfigRecord]:
    """Return the metrics of an app with ``client_fn``, which Flower stores in config records."""
    names = [f"{res}.metrics" for res in ("fitres", "evaluateres")]
    return [record for name, record in content.config_records.items() if name in names]


def seed_all(*numbers: int) -> None:
    """Seed the global random number generators. PyTorch is seeded as in every other task."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - what is drawn without a generator comes from there
    torch.manual_seed(seed)
