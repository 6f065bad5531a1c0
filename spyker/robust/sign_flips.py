"""Detect sign-flipped updates: those of a client that sends the opposite of what it trained.

Two statistics are kept for each client. *Heading* is the cosine between its update and the mean direction of all
updates. Where clients have similar data, it is positive for nearly all of them, and a client with a negative heading is
an outlier. Where data differ, honest updates point everywhere, and the heading says nothing.

*Pull* is about how updates change. Training pulls a model towards where the client's loss is small. When the model has
moved by dW from one task to the next, an honest update, divided by the learning rate that it was trained with, has
therefore changed by some dΔ that points back: the cosine between the two is negative, however odd the data (for a
convex loss it is never positive: its gradient is monotone). Of a client that flips the sign it is positive. Early in a
run, where losses are not convex, the signs may be the other way around, and are so for everybody. Where trainings are
short and their batches noisy, it takes the mean of many updates to see that.

Only what tells something is counted. If the model has not moved since the client's last task, or by no more than
rounding, there is no dΔ to look at. An update that was trained with less than half of the highest learning rate in use
(Spyker slows down clients that are ahead) is much shorter than others for a reason that is not its client's.

In both, a client is an outlier only if nearly all others agree; the heading counts only for clients whose pull is known
and neither agrees nor disagrees with that of the others. Sketches of each client's task and update are kept for that, a
few kilobytes; of models, none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spyker.protocol.state import Stateful
from spyker.robust.order_statistics import OrderStatistics, OutlierStatistic
from spyker.robust.sketch import NUMBERS, Sketcher, cosine, size
from spyker.vectors import Vector

RECENT = 25  # updates that the mean direction is taken over, about
ROUNDING = 1e-5  # of the model's norm: a shorter movement may be nothing but rounded float32 numbers


class AssignedTask(NamedTuple):
    """What is remembered of a task that a client was given."""

    version: int
    rate: float
    sketch: Vector


class SignFlipDetector(Stateful):
    """What a server knows of the directions of its clients' updates."""

    def __init__(self) -> None:
        self.given: dict[int, AssignedTask] = {}
        self.rates = OrderStatistics()  # the learning rate of each client's last task
        self.before: dict[int, tuple[Vector, Vector]] = {}  # sketches of its last task and update
        self.heading = OutlierStatistic(window=8, known=5, clear=0.2)
        self.pull = OutlierStatistic(window=8, known=5, clear=0.1)
        self.faint_pull = OutlierStatistic(
            window=32, known=16, clear=0.02
        )  # where trainings are short and batches noisy
        self.direction, self.count = np.zeros(NUMBERS, np.float32), 0  # the mean of all, of so many
        self._sketcher = Sketcher(0)
        self._last: tuple[Vector, Vector] | None = None  # a vector and its sketch: many are given the same

    def gave(self, client: int, version: int, rate: float, weights: Vector) -> None:
        """A client is given a task."""
        self.given[client] = AssignedTask(version, rate, self._sketch_of_model(weights))
        self.rates.put(client, rate)

    def answered(self, client: int, version: int) -> AssignedTask | None:
        """Return the task that an update answers; None if it is not known, as after a restart."""
        task = self.given.pop(client, None)
        return task if task is not None and task.version == version else None

    def full(self, task: AssignedTask) -> bool:
        """Whether the task's learning rate is at least half of the highest in use."""
        return 2 * task.rate >= self.rates.at(1.0)

    def drift(self, task: AssignedTask, model: Vector) -> float:
        """How far the server's model has moved since it was given as this task."""
        return size(self._sketch_of_model(model) - task.sketch)

    def sign_flipped(self, client: int, task: AssignedTask, weights: Vector, *, difference: bool) -> bool:
        """Take an update in; whether its client does the opposite of what the others do."""
        if not self.full(task):
            return False
        update = self._sketch(weights)
        if not difference:
            update = update - task.sketch
        update = update / np.float32(task.rate or 1.0)
        if not np.isfinite(update).all():
            return False  # too long to point anywhere; its norm gives it away
        towards = cosine(update, self.direction)
        self._note(update)
        before = self.before.get(client)
        if before is None:
            self.before[client] = task.sketch, update
            return False
        heading = self.heading.compare(client, towards)
        moved, change = task.sketch - before[0], None
        if size(moved) > ROUNDING * size(task.sketch):
            change = cosine(update - before[1], moved)
            self.before[client] = task.sketch, update
        pulls = self.pull.compare(client, change), self.faint_pull.compare(client, change)
        return min(pulls) < 0 or (heading < 0 and max(pulls) == 0 and client in self.pull.known.numbers)

    def _note(self, update: Vector) -> None:
        norm = size(update)
        if norm > 0:
            self.count = min(RECENT, self.count + 1)
            self.direction = self.direction + (update / np.float32(norm) - self.direction) / np.float32(self.count)

    def part(self, client: int) -> None:
        """A client has left; what it did, as far as that is small, is remembered."""
        self.given.pop(client, None)
        self.rates.drop(client)
        self.before.pop(client, None)

    def forget(self, client: int) -> None:
        """Know nothing of a client."""
        self.part(client)
        for habit in (self.heading, self.pull, self.faint_pull):
            habit.forget(client)

    def _sketch_of_model(self, weights: Vector) -> Vector:
        if self._last is None or self._last[0] is not weights:
            self._last = weights, self._sketch(weights)
        return self._last[1]

    def _sketch(self, weights: Vector) -> Vector:
        if self._sketcher.size != weights.size:
            self._sketcher = Sketcher(weights.size)
        return self._sketcher.sketch(weights)

    # --- A restart -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """For a checkpoint: of all sketches, three arrays."""
        tasks_given = {k: (task.version, task.rate) for k, task in self.given.items()}
        given = stack(task.sketch for task in self.given.values())
        tasks = stack(task for task, _ in self.before.values())
        updates = stack(update for _, update in self.before.values())
        means = [self.heading, self.pull, self.faint_pull, self.direction, self.count]
        return [tasks_given, given, self.rates.numbers, list(self.before), tasks, updates, *means]

    def restore(self, kept: Any) -> None:
        """Go on from there."""
        given, sketches, rates, clients, tasks, updates, heading, pull, faint_pull, self.direction, self.count = kept
        tasks_given = zip(given.items(), rows(sketches), strict=True)
        self.given = {k: AssignedTask(version, rate, sketch) for (k, (version, rate)), sketch in tasks_given}
        self.rates = OrderStatistics(rates)
        self.before = {k: (task, update) for k, task, update in zip(clients, rows(tasks), rows(updates), strict=True)}
        self.heading.restore(heading)
        self.pull.restore(pull)
        self.faint_pull.restore(faint_pull)


def stack(sketches: Iterable[Vector]) -> Vector:
    """Sketches as one array."""
    return np.concatenate([np.empty(0, np.float32), *sketches])


def rows(stacked: Vector) -> Sequence[Vector]:
    """The sketches back again."""
    return list(stacked.reshape(-1, NUMBERS))
