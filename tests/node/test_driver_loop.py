"""The loop that the package's documentation shows to whoever writes a driver."""

import textwrap
from collections import deque
from typing import Any

import numpy as np

import spyker.node
from spyker.algorithms.builtin import ALGORITHMS
from spyker.node import effects, events
from spyker.node.effects import SaveCheckpoint
from spyker.node.events import Resume
from spyker.node.inbox import SAVE, NodeOptions
from spyker.node.node import Node
from spyker.node.task_tokens import TaskTokens
from spyker.protocol.messages import Model, StartTimer, Update
from spyker.protocol.server import Setup


def documented_loop() -> Any:
    """The function ``run`` as the documentation has it."""
    assert spyker.node.__doc__ is not None
    _, _, after = spyker.node.__doc__.partition("no time::\n")
    code, _, _ = after.partition("\nAfter a crash")
    names: dict[str, Any] = {**vars(events), **vars(effects), "deque": deque, "StartTimer": StartTimer}
    exec(textwrap.dedent(code), names)
    return names["run"]


def make_node(incarnation: int = 1) -> Node:
    fedasync = ALGORITHMS["fedasync"]
    setup = Setup(1, 1, np.zeros(2, np.float32), 0.1, fedasync.Parameters())
    tokens = TaskTokens(b"secret", incarnation)
    return Node(
        0, lambda roster: fedasync.build(0, setup, roster), tokens, NodeOptions(checkpoint_updates=2, min_clients=1)
    )


def test_the_documented_loop_trains_saves_and_resumes() -> None:
    left = list(range(5))
    timers: dict[str, float] = {}

    def train(model: Model) -> Update | None:
        return Update(model.weights + 1, model.age, model.version) if left and left.pop() is not None else None

    node = make_node()
    checkpoint = documented_loop()(node, timers, train)
    assert isinstance(checkpoint, SaveCheckpoint)
    assert (node.server and node.server.version, node.saved_version) == (5, 4)
    assert SAVE in timers
    again = make_node(2)
    again.step(Resume(checkpoint.numbers, checkpoint.vectors, now=0.0))
    assert again.server is not None
    assert again.server.version == 4
