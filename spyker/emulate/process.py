"""One life of an emulated server process, and the disk that outlives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from spyker.emulate.clock import Clock
from spyker.emulate.processor import Service
from spyker.emulate.timers import Timers
from spyker.host.effects import Effect, Save
from spyker.host.host import Host
from spyker.protocol.forms import Array
from spyker.protocol.messages import StartTimer, StopTimer
from spyker.protocol.server import Server, Work


class Disk:
    """What a server has on its disk: who it is, and the last checkpoint."""

    def __init__(self, server: int, seconds: float) -> None:
        self.server = server
        self.seconds = seconds
        """How long a checkpoint takes."""
        self.full = False
        self.incarnation = 0
        self._losses = 0
        self._checkpoint: tuple[str, dict[str, Array]] | None = None

    @property
    def lineage(self) -> str:
        """A name for the states that follow from each other here."""
        return f"{self.server}.{self._losses}"

    @property
    def secret(self) -> bytes:
        """Nobody looks for it here, so it need not be hard to guess."""
        return self.lineage.encode()

    def write(self, checkpoint: Save) -> None:
        """Keep a checkpoint in place of the last: text and copies, so that it shares nothing with the process."""
        numbers = json.dumps(checkpoint.numbers, allow_nan=False)
        self._checkpoint = numbers, {name: array.copy() for name, array in checkpoint.vectors.items()}

    def read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The last checkpoint, if there is one."""
        if self._checkpoint is None:
            return None
        numbers, vectors = self._checkpoint
        return json.loads(numbers), {name: array.copy() for name, array in vectors.items()}

    def lose(self) -> None:
        """Everything on it is gone. The server will be another one under the same number."""
        self._checkpoint = None
        self._losses += 1


class Surroundings(Protocol):
    """What a process needs of its world."""

    clock: Clock
    costs: Mapping[Work, float]

    def carry_out(self, process: Process, effect: Effect) -> None:
        """Do what concerns others than the process itself."""


class Process(Service):
    """Drives a host until it is killed."""

    def __init__(self, world: Surroundings, host: Host, disk: Disk, blank: Server) -> None:
        """``blank`` stands for the server while it waits for its first clients."""
        super().__init__(world.clock, world.costs)
        self.world, self.host, self.disk = world, host, disk
        self.alive = True
        self.timers = Timers(world.clock, self._ring)
        self._blank = blank

    @property
    def server(self) -> Server:
        """The server as it is, or was when the process was killed."""
        return self.host.server or self._blank

    def kill(self) -> None:
        """Nothing happens here any more."""
        self.alive = False
        self.timers.stop_all()

    def go_on(self) -> None:
        """The host was told something: do what it asks for, and serve what waits."""
        self.longest = max(self.longest, self.host.waiting)
        self._carry_out()
        if not self.busy:
            self._serve()

    def _ring(self, timer: str) -> None:
        self.host.expire(timer)
        self.go_on()

    def _next(self) -> Work | None:
        return self.host.work() if self.host.ready else None

    def _handle(self) -> None:
        self.host.finish(self.host.compute())
        self.longest = max(self.longest, self.host.waiting)
        self._carry_out()

    def done(self, _a: None, _b: None) -> None:
        """The cost of the first message has elapsed, if the process is still there."""
        if self.alive:
            super().done(None, None)

    def _carry_out(self) -> None:
        while effects := self.host.take():
            for effect in effects:
                if isinstance(effect, Save):
                    self._save(effect)
                elif isinstance(effect, StartTimer):
                    self.timers.start(effect.timer, effect.seconds)
                elif isinstance(effect, StopTimer):
                    self.timers.stop(effect.timer)
                else:
                    self.world.carry_out(self, effect)

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def _save(self, checkpoint: Save) -> None:
        if self.disk.seconds > 0:
            self.clock.at(self.clock.now + self.disk.seconds, self._written, checkpoint, None)
        else:
            self._write(checkpoint)

    def _written(self, checkpoint: Save, _b: None) -> None:
        if self.alive:  # one that was being written when the process was killed is none
            self._write(checkpoint)
            self.go_on()

    def _write(self, checkpoint: Save) -> None:
        if self.disk.full:
            self.host.save_failed()
        else:
            self.disk.write(checkpoint)
            self.host.saved()
