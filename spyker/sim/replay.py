"""Replay of an event log: the state of a server process, rebuilt from its events without sockets, threads or clocks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509

from spyker.config.client_privacy import client_privacy
from spyker.config.masking import masking_setup
from spyker.config.scenario import Scenario, from_table
from spyker.errors import RecordError
from spyker.node.effects import SaveCheckpoint
from spyker.node.event_codec import PREFIX, LogHeader, decode_event, records
from spyker.node.events import CheckpointSaved, Handled, HandleNext
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.secret_noise import secret_noise
from spyker.node.task_tokens import TaskTokens
from spyker.node.x25519_seals import X25519Opener
from spyker.protocol.codec import Sizes
from spyker.protocol.messages import Action
from spyker.protocol.server import Server, Setup
from spyker.tasks.registry import resolve
from spyker.untrusted_files import read_bytes
from spyker.vectors import mix


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """The result of replaying an event log."""

    header: LogHeader
    node: Node
    """The node after the last event."""
    events: int
    checkpoint: SaveCheckpoint | None
    """The requested checkpoint, or the last one that the process reported as saved."""
    torn: int
    """Bytes of an incomplete record at the end, which were ignored."""


def replay(path: Path, checkpoint: int | None = None) -> Replay:
    """Replay an event log.

    Args:
        path: The log.
        checkpoint: Number of a checkpoint in its lineage, counted from 1; by default the last that was saved.

    Raises:
        RecordError: if the file is not an event log, or is damaged anywhere but at its end.

    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Name an event log") from None
    payloads = records(data)
    first = next(payloads, None)
    if first is None:
        raise RecordError(f"{path} is not an event log. Name a file in the folder deploy.event-log")
    header = LogHeader.decode(first)
    scenario = resolve(from_table(tomllib.loads(header.scenario)))
    node = make_node(header, scenario)
    sizes = Sizes(header.weights.array().size, len(scenario.placement().learners), header.buffers)
    resumed = None
    if header.numbers is not None:
        resumed = json.loads(header.numbers), {name: each.array() for name, each in header.vectors.items()}
    used, events = PREFIX.size + len(first), 0
    actions: list[Action] = []
    begun: SaveCheckpoint | None = None
    found: SaveCheckpoint | None = None
    for payload in payloads:
        event = decode_event(payload, scenario.chosen.kinds(), sizes, resumed)
        if isinstance(event, CheckpointSaved) and checkpoint is None:
            found = begun
        if isinstance(event, Handled):
            event = Handled(actions, now=event.now)
        for effect in node.step(event):
            if isinstance(effect, SaveCheckpoint):
                begun = effect
                if effect.numbers["membership"]["checkpoints"] == checkpoint:
                    found = effect
        if isinstance(event, HandleNext):
            actions = node.compute()
        used, events = used + PREFIX.size + len(payload), events + 1
    return Replay(header, node, events, found, len(data) - used)


def make_node(header: LogHeader, scenario: Scenario) -> Node:
    """Make the node of the process that wrote a log, as it was before its first event."""
    clock = NodeClock(header.started_at)
    member = header.membership
    opener = None
    if scenario.privacy.masking:
        opener = X25519Opener(header.secret, member.federation, x509.load_pem_x509_certificates(member.authorities))
    setup = Setup(
        len(scenario.placement().learners),
        scenario.client_count,
        header.weights.array(),
        header.rate,
        scenario.parameters,
        scenario.seed,
        mix,
        np.empty_like,
        clock.handling,
        scenario.robust.on(deployed=True),
        header.buffers,
        header.client_metrics,
        masking=masking_setup(scenario, opener),
        client_privacy=client_privacy(
            scenario, header.weights.array().size, header.buffers, secret_noise(header.secret)
        ),
        compression=scenario.compression,
    )

    def build(roster: Mapping[int, int]) -> Server:
        return scenario.chosen.create(header.membership.server, setup, roster)

    tokens = TaskTokens(header.secret, header.membership.incarnation.incarnation)
    membership = header.membership.make(clock, header.secret)
    return Node(membership.id, build, tokens, header.options, membership=membership, clock=clock)


def differences(replayed: SaveCheckpoint, numbers: Mapping[str, Any], vectors: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts of a saved checkpoint whose bytes differ from the replayed one.

    A process adds its own parts to a checkpoint (``layout``, ``identity``, ``recorder``); these are not compared.
    """
    parts = [name for name, value in replayed.numbers.items() if json.dumps(value) != json.dumps(numbers.get(name))]
    names = replayed.vectors.keys() | vectors.keys()
    return parts + [
        name
        for name in sorted(names)
        if name not in vectors
        or name not in replayed.vectors
        or np.asarray(vectors[name]).tobytes() != np.asarray(replayed.vectors[name]).tobytes()
    ]
