"""A simulated server process and its disk, which survives it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spyker.node.control_messages import succession_statement
from spyker.node.effects import Effect, SaveCheckpoint
from spyker.node.events import CheckpointFailed, CheckpointSaved, TimerFired
from spyker.node.node import Node
from spyker.node.node_driver import NodeDriver
from spyker.protocol.codec import Array
from spyker.protocol.server import Server, Work
from spyker.sim.clock import Clock
from spyker.sim.processor import QueueServer
from spyker.sim.sim_keys import SimKeys
from spyker.sim.timers import SimTimers

SYNC_SHARE = 0.2  # of the time that a checkpoint takes
ENCODER = json.JSONEncoder(allow_nan=False, check_circular=False)


class SimDisk:
    """The disk of a server: its identity and last checkpoint.

    A write is visible at once, also to the next process, and survives a power cut only once it is synced.
    """

    def __init__(self, server: int, seconds: float) -> None:
        self.server = server
        self.seconds = seconds
        """Duration of writing a checkpoint."""
        self.full = False
        self.incarnation = 0
        self.former = ""
        self.joins = False
        """Whether the server joins running servers and needs a model from them."""
        self._losses = 0
        self._checkpoint: tuple[str, dict[str, Array]] | None = None
        self._synced: tuple[int, tuple[str, dict[str, Array]] | None] = 0, None  # survives a power cut

    @property
    def lineage(self) -> str:
        """The lineage of the server's state."""
        return f"{self.server}.{self._losses}"

    @property
    def succession(self) -> bytes:
        """The signature of the former lineage on the present one."""
        if not self.former:
            return b""
        former = SimKeys(self.former, self.server)
        return former.sign(succession_statement(former.federation, self.server, self.lineage))

    @property
    def secret(self) -> bytes:
        """The secret of the task tokens; it need not be random in a simulation."""
        return self.lineage.encode()

    def write(self, checkpoint: SaveCheckpoint) -> None:
        """Replace the checkpoint; the copy shares no memory with the process."""
        numbers = ENCODER.encode(checkpoint.numbers)
        self._checkpoint = numbers, {name: array.copy() for name, array in checkpoint.vectors.items()}

    def begin_incarnation(self) -> None:
        """Write the number of a new process, and sync the disk."""
        self.incarnation += 1
        self.sync()

    def sync(self) -> None:
        """Make everything that was written durable."""
        self._synced = self.incarnation, self._checkpoint

    def cut_power(self) -> None:
        """Lose unsynced writes."""
        self.incarnation, self._checkpoint = self._synced

    def read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Return the last checkpoint, or ``None``."""
        if self._checkpoint is None:
            return None
        numbers, vectors = self._checkpoint
        return json.loads(numbers), {name: array.copy() for name, array in vectors.items()}

    def lose(self) -> None:
        """Lose all data; the server gets a new lineage."""
        self._checkpoint, self.former, self.joins = None, "", False
        self._losses += 1
        self.sync()

    def copied(self) -> SimDisk:
        """Return a copy of the disk."""
        return copy.copy(self)  # checkpoints are immutable

    def begin_anew(self) -> None:
        """Drop an outdated state, and start a new lineage that names the former one."""
        former = self.lineage
        self.lose()
        self.former, self.joins = former, True


class ProcessEnvironment(Protocol):
    """The interface of a simulation to its processes."""

    clock: Clock
    costs: Mapping[Work, float]

    def now_at(self, server: int) -> Callable[[], float]:
        """Return the clock of a server."""

    def carry_out(self, process: SimProcess, effect: Effect) -> None:
        """Carry out an effect that concerns clients or other processes."""


class SimProcess(QueueServer, NodeDriver):
    """Drives a node in virtual time until it is killed."""

    def __init__(self, world: ProcessEnvironment, node: Node, disk: SimDisk, blank: Server) -> None:
        """Create the process; ``blank`` replaces the server while it waits for its first clients."""
        QueueServer.__init__(self, world.clock, world.costs)
        NodeDriver.__init__(self, node)
        self.world, self.disk = world, disk
        self._now = world.now_at(node.id)
        self.alive = True
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None  # calls while it is paused
        self.timers = SimTimers(world.clock, self._ring)
        self._blank = blank
        self._visible = False  # whether the checkpoint under way was written, and not yet synced

    @property
    def server(self) -> Server:
        """The server, in its last state if the process was killed."""
        return self.node.server or self._blank

    def now(self) -> float:
        """Return the time on this server's clock."""
        return self._now()

    def kill(self) -> None:
        """Kill the process."""
        self.alive = False
        self.timers.stop_all()

    def stop(self) -> None:
        """Pause the process, as if its machine were suspended; calls are queued."""
        if self.backlog is None:
            self.backlog = []

    def wake(self) -> None:
        """Resume the process with the queued calls, in order."""
        backlog, self.backlog = self.backlog or [], None
        for do, arguments in backlog:
            if self.alive and self.backlog is None:
                do(*arguments)

    def later(self, do: Callable[..., None], *arguments: Any) -> bool:
        """Queue a call if the process is paused; return whether it was queued."""
        if self.backlog is not None:
            self.backlog.append((do, arguments))
        return self.backlog is not None

    def go_on(self) -> None:
        """Carry out the node's effects and process its inbox."""
        if self.later(self.go_on):
            return
        self.longest = max(self.longest, self.node.waiting)
        self.carry_out()
        if not self.busy:
            self._serve()

    def _ring(self, timer: str) -> None:
        if self.later(self._ring, timer):
            return
        self.step(TimerFired(timer, now=self.now()))
        self.go_on()

    def _next(self) -> Work | None:
        return self.node.work() if self.node.ready else None

    def _handle(self) -> None:
        self.handle_next()
        self.longest = max(self.longest, self.node.waiting)
        self.carry_out()

    def done(self, _a: None, _b: None) -> None:
        """Process the first message after its cost has elapsed, unless the process was killed."""
        if self.alive and not self.later(self.done, None, None):
            super().done(None, None)

    def start_timer(self, timer: str, seconds: float) -> None:
        """Start or restart a timer on the virtual clock."""
        self.timers.start(timer, seconds)

    def stop_timer(self, timer: str) -> None:
        """Stop a timer."""
        self.timers.stop(timer)

    def perform(self, effect: Effect) -> None:
        """Pass an effect to the simulation."""
        self.world.carry_out(self, effect)

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def save(self, checkpoint: SaveCheckpoint) -> None:
        """Write and sync a checkpoint, which takes ``disk.seconds``."""
        now, seconds = self.clock.now, self.disk.seconds
        if seconds > 0:
            self.clock.at(now + (1 - SYNC_SHARE) * seconds, self._written, checkpoint, None)
            self.clock.at(now + seconds, self._synced, None, None)
        else:
            self._write(checkpoint)
            self._sync()

    def _written(self, checkpoint: SaveCheckpoint, _b: None) -> None:
        if self.alive and not self.later(self._written, checkpoint, None):
            self._write(checkpoint)  # a kill discards a checkpoint that is being written

    def _synced(self, _a: None, _b: None) -> None:
        if self.alive and not self.later(self._synced, None, None):
            self._sync()
            self.go_on()

    def _write(self, checkpoint: SaveCheckpoint) -> None:
        self._visible = not self.disk.full
        if self._visible:
            self.disk.write(checkpoint)

    def _sync(self) -> None:
        """Report the checkpoint as saved once it is synced; one that is only visible may be lost."""
        if self._visible:
            self.disk.sync()
            self.step(CheckpointSaved(now=self.now()))
        else:
            self.step(CheckpointFailed(now=self.now()))
