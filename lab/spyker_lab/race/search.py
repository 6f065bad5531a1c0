"""The search for an algorithm's settings in one world, with Optuna's TPE sampler and sequential trials.

A trial is one run on held-out data that ends at the target. It is cut off shortly after the time of the best trial so
far, which saves most of the cost. The value of a trial is the time at which it reached the target, interpolated
linearly between evaluations. If it did not, the value is the time of the cut plus a penalty for the missing points, so
that the sampler can rank failed trials.
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

SEED = 1000  # of the runs; not used in the race itself
SAMPLER_SEED = 7
RANDOM_TRIALS = 4  # before the sampler uses its model
MARGIN = INTERVAL
PENALTY = 20.0  # seconds for an accuracy of 0 instead of 1

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings and result of a trial."""

    settings: Settings
    value: float
    time: float | None
    """When it reached the target, or ``None``."""
    limit: float
    """Time of the cut."""


def search(algorithm: str, world: RaceWorld, course: Course, trials: int) -> Steps[list[Trial]]:
    """Run the trials of an algorithm in a world; a chain that returns them in order."""
    sampler = optuna.samplers.TPESampler(seed=SAMPLER_SEED, n_startup_trials=RANDOM_TRIALS)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial(dict(STARTS[algorithm]))
    done: list[Trial] = []
    for _ in range(trials):
        asked = study.ask(dict(SPACES[algorithm]))
        settings = {key: rounded(value) for key, value in asked.params.items()}
        limit = min([world.horizon, *(trial.time + MARGIN for trial in done if trial.time is not None)])
        run = yield scenario(algorithm, settings, world, course, limit)
        done.append(evaluate_trial(settings, run, world.target, limit))
        study.tell(asked, done[-1].value)
    return done


def scenario(algorithm: str, settings: Settings, world: RaceWorld, course: Course, limit: float) -> Scenario:
    """Return the scenario of a trial."""
    ending: Settings = {"evaluation.stop-at": world.target, "duration": limit, "seed": SEED}
    layers = [world.settings, course.held_back, {"algorithm": algorithm}, settings, ending]
    return resolve(load(None, {key: value for layer in layers for key, value in layer.items()}))


def evaluate_trial(settings: Settings, run: RunRecord | None, target: float, limit: float) -> Trial:
    """Return the result of a trial; a diverged run counts with a score of 0."""
    if run is None:
        return Trial(settings, limit + PENALTY * target, None, limit)
    found = curve(run)
    hit = found.reached(target)
    if hit is None:
        return Trial(settings, limit + PENALTY * (target - max(found.mean)), None, limit)
    return Trial(settings, crossing(found, target), hit[0], limit)


def crossing(found: Curve, target: float) -> float:
    """Return the time at which the target was first reached, interpolated between evaluations."""
    points = list(zip(found.time, found.mean, strict=True))
    for (t, score), (later, higher) in pairwise(points):
        if higher >= target > score:
            return t + (later - t) * (target - score) / (higher - score)
    return points[0][0]


def best(trials: list[Trial]) -> Trial:
    """Return the best trial; of ties, the first."""
    return min(trials, key=lambda trial: trial.value)


def rounded(value: object) -> object:
    """Round a setting to three digits."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
