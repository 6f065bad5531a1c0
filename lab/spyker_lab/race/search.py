"""The search for an algorithm's settings in one world: Optuna's TPE, one trial after the other.

A trial is one run on held-back data that ends at the target. Whoever is later than the best trial before it is not of
interest: a trial is cut off a moment after that, which saves most of the cost, and everybody is treated alike. What a
trial is worth is when it reached the target, between two evaluations by the straight line between them; of one that did
not, when it was cut off and a penalty for what was missing, so that the sampler sees which of two failures was nearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import optuna

from spyker.config.scenario import Scenario, load
from spyker.plots.curves import Curve, curve
from spyker.records import RunRecord
from spyker.tasks.registry import resolve
from spyker_lab.chains import Steps
from spyker_lab.paper.item import Settings
from spyker_lab.race.spaces import SPACES, STARTS
from spyker_lab.race.worlds import INTERVAL, Course, RaceWorld

SEED = 1000  # of the runs: none of the race's own
SAMPLER_SEED = 7
RANDOM_TRIALS = 4  # before the sampler begins to model what it saw
MARGIN = INTERVAL
PENALTY = 20.0  # seconds for an accuracy of 0 instead of 1

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True, slots=True)
class Trial:
    """What was tried, and what came of it."""

    settings: Settings
    value: float
    time: float | None
    """When it reached the target, if it did."""
    limit: float
    """When it would have been cut off."""


def search(algorithm: str, world: RaceWorld, course: Course, trials: int) -> Steps[list[Trial]]:
    """All trials of an algorithm in a world, in their order."""
    sampler = optuna.samplers.TPESampler(seed=SAMPLER_SEED, n_startup_trials=RANDOM_TRIALS)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial(dict(STARTS[algorithm]))
    done: list[Trial] = []
    for _ in range(trials):
        asked = study.ask(dict(SPACES[algorithm]))
        settings = {key: rounded(value) for key, value in asked.params.items()}
        limit = min([world.horizon, *(trial.time + MARGIN for trial in done if trial.time is not None)])
        run = yield scenario(algorithm, settings, world, course, limit)
        done.append(judged(settings, run, world.target, limit))
        study.tell(asked, done[-1].value)
    return done


def scenario(algorithm: str, settings: Settings, world: RaceWorld, course: Course, limit: float) -> Scenario:
    """The run of a trial."""
    ending: Settings = {"evaluation.stop-at": world.target, "duration": limit, "seed": SEED}
    layers = [world.settings, course.held_back, {"algorithm": algorithm}, settings, ending]
    return resolve(load(None, {key: value for layer in layers for key, value in layer.items()}))


def judged(settings: Settings, run: RunRecord | None, target: float, limit: float) -> Trial:
    """What a trial is worth; a training that diverged has learnt nothing."""
    if run is None:
        return Trial(settings, limit + PENALTY * target, None, limit)
    found = curve(run)
    hit = found.reached(target)
    if hit is None:
        return Trial(settings, limit + PENALTY * (target - max(found.mean)), None, limit)
    return Trial(settings, crossing(found, target), hit[0], limit)


def crossing(found: Curve, target: float) -> float:
    """When the straight lines between evaluations first reach a target that is reached."""
    points = list(zip(found.time, found.mean, strict=True))
    for (t, score), (later, higher) in pairwise(points):
        if higher >= target > score:
            return t + (later - t) * (target - score) / (higher - score)
    return points[0][0]


def best(trials: list[Trial]) -> Trial:
    """The trial that won; the first of equals."""
    return min(trials, key=lambda trial: trial.value)


def rounded(value: object) -> object:
    """Three digits are enough, and can be read."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
