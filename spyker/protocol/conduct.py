"""What tells a client's answers from their opposite, whatever data is behind them.

Two habits of each client are known. *Heading* is the cosine between its answer and the mean direction of all. Where
clients have similar data, it is positive for nearly all of them, and who heads the other way sticks out. Where they
differ, honest answers point everywhere, and it says nothing.

*Pull* is about how answers change. Training pulls a model towards where the client's loss is small. When the model has
moved by dW from one task to the next, an honest answer has therefore changed by some dΔ that points back: the cosine
between the two is negative, however odd the data (for a convex loss it is never positive: its gradient is monotone). Of
a client that answers with the opposite of its training it is positive. Early in a run, where losses are not convex,
signs may be the other way around, and are so for everybody.

Where trainings are short and their batches noisy, it takes the mean of many answers to see that.

In both, a client is unlike the others only if nearly all of them are alike; and who pulls as they do may head wherever
its data is. Sketches of each client's task and answer
are kept for that, a few kilobytes; of models, none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spyker.protocol.ranks import Habit
from spyker.protocol.saving import Kept
from spyker.protocol.sketch import NUMBERS, Sketcher, cosine, size
from spyker.vectors import Vector

RECENT = 25  # answers that the mean direction is taken over, about


class Conduct(Kept):
    """What a server knows of the way its clients answer."""

    def __init__(self) -> None:
        self.given: dict[int, tuple[int, Vector]] = {}  # the version of each client's task, and its sketch
        self.before: dict[int, tuple[Vector, Vector]] = {}  # sketches of its last task and answer
        self.heading = Habit(window=8, known=5, clear=0.2)
        self.pull = Habit(window=8, known=5, clear=0.1)
        self.faint_pull = Habit(window=32, known=16, clear=0.02)  # where trainings are short and batches noisy
        self.direction, self.count = np.zeros(NUMBERS, np.float32), 0  # the mean of all, of so many
        self._sketcher = Sketcher(0)
        self._last: tuple[Vector, Vector] | None = None  # a vector and its sketch: many are given the same

    def gave(self, client: int, version: int, weights: Vector) -> None:
        """A client is given a task."""
        if self._last is None or self._last[0] is not weights:
            self._last = weights, self._sketch(weights)
        self.given[client] = version, self._last[1]

    def contrary(self, client: int, version: int, weights: Vector, *, difference: bool) -> bool:
        """Take an answer in; whether its client does the opposite of what the others do."""
        given = self.given.pop(client, None)
        before = self.before.pop(client, None)
        if given is None or given[0] != version:
            return False  # it answers a task of which nothing is known
        task, answer = given[1], self._sketch(weights)
        if not difference:
            answer = answer - task
        if not np.isfinite(answer).all():
            return False  # it goes too far to go anywhere
        self.before[client] = task, answer
        towards = cosine(answer, self.direction)
        self._note(answer)
        if before is None:
            return False
        heading = self.heading.compare(client, towards)
        change = cosine(answer - before[1], task - before[0])
        pulls = self.pull.compare(client, change), self.faint_pull.compare(client, change)
        return min(pulls) < 0 or (heading < 0 and max(pulls) == 0)

    def _note(self, answer: Vector) -> None:
        far = size(answer)
        if far > 0:
            self.count = min(RECENT, self.count + 1)
            self.direction = self.direction + (answer / np.float32(far) - self.direction) / np.float32(self.count)

    def part(self, client: int) -> None:
        """A client has left; what it did, as far as that is small, is remembered."""
        self.given.pop(client, None)
        self.before.pop(client, None)

    def forget(self, client: int) -> None:
        """Know nothing of a client."""
        self.part(client)
        for habit in (self.heading, self.pull, self.faint_pull):
            habit.forget(client)

    def _sketch(self, weights: Vector) -> Vector:
        if self._sketcher.size != weights.size:
            self._sketcher = Sketcher(weights.size)
        return self._sketcher.sketch(weights)

    # --- A restart -------------------------------------------------------------------------------------------------

    def kept(self) -> Any:
        """For a checkpoint: of all sketches, three arrays."""
        versions = {k: version for k, (version, _) in self.given.items()}
        given = stack(sketch for _, sketch in self.given.values())
        tasks = stack(task for task, _ in self.before.values())
        answers = stack(answer for _, answer in self.before.values())
        means = [self.heading, self.pull, self.faint_pull, self.direction, self.count]
        return [versions, given, list(self.before), tasks, answers, *means]

    def put_back(self, kept: Any) -> None:
        """Go on from there."""
        versions, given, clients, tasks, answers, heading, pull, faint_pull, self.direction, self.count = kept
        self.given = {k: (version, row) for (k, version), row in zip(versions.items(), rows(given), strict=True)}
        self.before = {k: (task, answer) for k, task, answer in zip(clients, rows(tasks), rows(answers), strict=True)}
        self.heading.put_back(heading)
        self.pull.put_back(pull)
        self.faint_pull.put_back(faint_pull)


def stack(sketches: Iterable[Vector]) -> Vector:
    """Sketches as one array."""
    return np.concatenate([np.empty(0, np.float32), *sketches])


def rows(stacked: Vector) -> Sequence[Vector]:
    """The sketches back again."""
    return list(stacked.reshape(-1, NUMBERS))
