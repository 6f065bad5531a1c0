"""Detection of sign-flipped updates: those of a client that sends the opposite of what it trained.

Two statistics are kept for each client. *Heading* is the cosine between its update and the mean direction of all
updates. Where clients have similar data, it is positive for nearly all of them, and a client with a negative heading is
an outlier. Where data differ, honest updates point everywhere, and the heading says nothing.

*Pull* is about how updates change. Training pulls a model towards where the client's loss is small. When the model has
moved by dW from one task to the next, an honest update, divided by the learning rate that it was trained with, has
therefore changed by some dΔ that points back: the cosine between the two is negative, however odd the data (for a
convex loss it is never positive: its gradient is monotone). For a client that flips the sign it is positive. Early in a
run, where losses are not convex, the signs may be the other way around, and are so for all clients. Where trainings are
short and their batches noisy, only the mean over many updates shows it.

An update counts only if it is informative. If the model has not moved since the client's last task, or by no more than
rounding, there is no dΔ. An update that was trained with less than half of the highest learning rate in use (Spyker
slows down clients that are ahead) is much shorter than others for a reason that is not its client's.

In both, a client is an outlier only if nearly all others agree; the heading counts only for clients whose pull is known
and neither agrees nor disagrees with that of the others. The detector keeps sketches of each client's task and update,
a few kilobytes, and no models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spyker.robust.order_statistics import OrderStatistics, OutlierStatistic
from spyker.robust.sketch import NUMBERS, Direction, Sketcher, size
from spyker.vectors import Vector

RECENT = 25  # updates that the mean direction is taken over, about
ROUNDING = 1e-5  # of the model's norm: a shorter movement may be nothing but rounded float32 numbers


class AssignedTask(NamedTuple):
    """A task that a client was assigned: version, learning rate and sketch of its model."""

    version: int
    rate: float
    sketch: Vector


class SignFlipDetector:
    """Keeps the directions of the clients' updates, and finds clients whose updates are sign-flipped."""

    def __init__(self) -> None:
        self.given: dict[int, AssignedTask] = {}
        self.rates = OrderStatistics()  # the learning rate of each client's last task
        self.before: dict[int, tuple[Vector, Vector]] = {}  # sketches of its last task and update
        self.heading = OutlierStatistic(window=8, known=5, clear=0.2)
        self.pull = OutlierStatistic(window=8, known=5, clear=0.1)
        # for short trainings with noisy batches
        self.faint_pull = OutlierStatistic(window=32, known=16, clear=0.02)
        self.direction, self.count = np.zeros(NUMBERS, np.float32), 0  # the mean direction, and of how many updates
        self._sketcher = Sketcher(0)
        self._last: tuple[Vector, Vector] | None = None  # a model and its sketch: many clients are assigned the same

    def assigned(self, client: int, version: int, rate: float, weights: Vector) -> None:
        """Note the task that a client is assigned."""
        self.given[client] = AssignedTask(version, rate, self._sketch_of_model(weights))
        self.rates.put(client, rate)

    def pop_task(self, client: int, version: int) -> AssignedTask | None:
        """Return the task that an update of this version answers; None if it is not known, as after a restart."""
        task = self.given.pop(client, None)
        return task if task is not None and task.version == version else None

    def full_rate(self, task: AssignedTask) -> bool:
        """Return whether the task's learning rate is at least half of the highest in use."""
        return 2 * task.rate >= self.rates.at(1.0)

    def drift(self, task: AssignedTask, model: Vector) -> float:
        """Estimate the distance that the server's model has moved since the task was assigned."""
        return size(self._sketch_of_model(model) - task.sketch)

    def sign_flipped(self, client: int, task: AssignedTask, weights: Vector, *, difference: bool) -> bool:
        """Add an update to the statistics of its client.

        Args:
            client: the sender of the update.
            task: the task that it answers.
            weights: the update.
            difference: whether the update is a difference from the task's model, and not a model.

        Returns:
            Whether the client's updates are sign-flipped.

        """
        if not self.full_rate(task):
            return False
        update = self._sketch(weights)
        if not difference:
            update = update - task.sketch
        update = update / np.float32(task.rate or 1.0)
        pointing = Direction(update)
        if not math.isfinite(pointing.norm):
            return False  # too long to point anywhere; its norm gives it away
        towards = pointing.cosine(Direction(self.direction))
        if pointing.norm > 0:
            self.count = min(RECENT, self.count + 1)
            change = update / np.float32(pointing.norm)
            change -= self.direction
            change /= np.float32(self.count)
            self.direction = self.direction + change
        before = self.before.get(client)
        if before is None:
            self.before[client] = task.sketch, update
            return False
        heading = self.heading.compare(client, towards)
        moved, pull = Direction(task.sketch - before[0]), None
        if moved.norm > ROUNDING * size(task.sketch):
            pull = Direction(update - before[1]).cosine(moved)
            self.before[client] = task.sketch, update
        pulls = self.pull.compare(client, pull), self.faint_pull.compare(client, pull)
        return min(pulls) < 0 or (heading < 0 and max(pulls) == 0 and client in self.pull.known.numbers)

    def left(self, client: int) -> None:
        """Drop the sketches of a client that left, and keep its means."""
        self.given.pop(client, None)
        self.rates.drop(client)
        self.before.pop(client, None)

    def forget(self, client: int) -> None:
        """Drop all that is known of a client."""
        self.left(client)
        for statistic in (self.heading, self.pull, self.faint_pull):
            statistic.forget(client)

    def _sketch_of_model(self, weights: Vector) -> Vector:
        if self._last is None or self._last[0] is not weights:
            self._last = weights, self._sketch(weights)
        return self._last[1]

    def _sketch(self, weights: Vector) -> Vector:
        if self._sketcher.size != weights.size:
            self._sketcher = Sketcher(weights.size)
        return self._sketcher.sketch(weights)

    # --- Checkpoints -----------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the state for a checkpoint, with all sketches in three arrays."""
        tasks_given = {k: (task.version, task.rate) for k, task in self.given.items()}
        given = stack(task.sketch for task in self.given.values())
        tasks = stack(task for task, _ in self.before.values())
        updates = stack(update for _, update in self.before.values())
        means = [self.heading, self.pull, self.faint_pull, self.direction, self.count]
        return [tasks_given, given, self.rates.numbers, list(self.before), tasks, updates, *means]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        given, sketches, rates, clients, tasks, updates, heading, pull, faint_pull, self.direction, self.count = state
        tasks_given = zip(given.items(), rows(sketches), strict=True)
        self.given = {k: AssignedTask(version, rate, sketch) for (k, (version, rate)), sketch in tasks_given}
        self.rates = OrderStatistics(rates)
        self.before = {k: (task, update) for k, task, update in zip(clients, rows(tasks), rows(updates), strict=True)}
        self.heading.restore(heading)
        self.pull.restore(pull)
        self.faint_pull.restore(faint_pull)


def stack(sketches: Iterable[Vector]) -> Vector:
    """Concatenate sketches to one array."""
    return np.concatenate([np.empty(0, np.float32), *sketches])


def rows(stacked: Vector) -> Sequence[Vector]:
    """Split an array of :func:`stack` into sketches."""
    return list(stacked.reshape(-1, NUMBERS))
