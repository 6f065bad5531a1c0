"""Selection of trackers: ``trackers=["tensorboard=logs"]`` and ``--tracker``, checked before a run starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from spyker.config.suggest import suggest
from spyker.errors import TrackerError, UsageError
from spyker.plots.trackers.mlflow import MLflow
from spyker.plots.trackers.tensorboard import TensorBoard
from spyker.plots.trackers.tracker import Tracker
from spyker.plots.trackers.wandb import WandB
from spyker.records import Fact, Follower

TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (TensorBoard, MLflow, WandB)}
FORMS = ", ".join(f"{name}={tracker.meaning}" for name, tracker in TRACKERS.items())


def choose_trackers(texts: Sequence[str]) -> list[Tracker]:
    """Return the trackers that strings such as ``tensorboard=DIR`` name.

    Raises:
        UsageError: a tracker is unknown or cannot be used.

    """
    if isinstance(texts, str):
        raise UsageError("trackers", f"{texts!r} is not allowed: it must be a list", f"Give a list: [{texts!r}]")
    chosen: list[Tracker] = []
    for text in texts:
        name, _, place = text.partition("=")
        if name not in TRACKERS:
            raise UsageError(f"--tracker {text}", "unknown tracker", suggest(name, TRACKERS))
        if not place:
            raise UsageError(f"--tracker {text}", "has no destination", f"Write {name}={TRACKERS[name].meaning}")
        chosen.append(TRACKERS[name](place))
    for text, tracker in zip(texts, chosen, strict=True):
        try:
            tracker.check()
        except TrackerError as error:
            raise UsageError(f"--tracker {text}", error.problem, error.remedy) from None
    return chosen


def facts_up_to(folder: Path, size: int) -> Iterator[tuple[float, Fact]]:
    """The facts in the first ``size`` bytes of a record: those that a run which is resumed goes on from."""
    follower = Follower(folder)
    for t, fact, _ in follower.poll():
        if follower.offset > size:
            return
        yield t, fact
