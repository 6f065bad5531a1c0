"""``follow=["tensorboard=logs"]`` and ``--follow``: who else is told a run, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence

from spyker.config.suggest import suggest
from spyker.errors import TrackerError, UsageError
from spyker.plots.trackers.mlflow import MLflow
from spyker.plots.trackers.tensorboard import TensorBoard
from spyker.plots.trackers.tracker import Tracker
from spyker.plots.trackers.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (TensorBoard, MLflow, WandB)}
FORMS = ", ".join(f"{name}={tracker.meaning}" for name, tracker in TRACKERS.items())


def choose_trackers(texts: Sequence[str]) -> list[Tracker]:
    """The trackers that texts such as ``tensorboard=DIR`` name, ready to be told runs."""
    if isinstance(texts, str):
        raise UsageError("follow", f"is {texts!r}", f"Give a list: [{texts!r}]")
    chosen: list[Tracker] = []
    for text in texts:
        name, _, place = text.partition("=")
        if name not in TRACKERS:
            raise UsageError(f"--follow {text}", "names no tracker", suggest(name, TRACKERS))
        if not place:
            raise UsageError(f"--follow {text}", "does not say where", f"Write {name}={TRACKERS[name].meaning}")
        chosen.append(TRACKERS[name](place))
    for text, tracker in zip(texts, chosen, strict=True):
        try:
            tracker.check()
        except TrackerError as error:
            raise UsageError(f"--follow {text}", error.problem, error.remedy) from None
    return chosen
