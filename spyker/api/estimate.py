"""How long a run will take, and how much memory: said before it begins if it is much, and refused if it cannot be.

How often clients train follows from the scenario; how long that takes, from a trial of two trainings and two
evaluations where the run's own will be. A run of few trainings is not worth a trial.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spyker.config.scenario import Scenario
from spyker.engines.engine import Engine, EvaluateJob, TrainJob
from spyker.errors import TaskError, UsageError
from spyker.records.run_warnings import slow_links
from spyker.sim.round_times import WEIGHT_BYTES, round_durations, round_times
from spyker.tasks.memory_check import CLIENT_BYTES, machine_bytes
from spyker.tasks.registry import rate_of
from spyker.tasks.task import Task

LONG = 60.0  # seconds: what takes longer is announced
ENOUGH = 100  # trainings: a trial of two is then a fiftieth of the run at most
UPDATE_SECONDS = 40e-6  # what it costs to emulate an update, whatever was learnt: measured with the task quadratic
LEAST, MOST = 0.5, 2.0  # models per client that are under way at the same time: measured 0.6 to 0.95 without workers
YEAR = 365 * 86_400.0  # seconds
COUNTABLE = 1e15  # what is more is written with an exponent


@dataclass(frozen=True, slots=True)
class Estimate:
    """What some runs, one after the other, will take."""

    trainings: float
    evaluations: float
    training_seconds: float
    evaluation_seconds: float
    workers: int
    model_bytes: float
    """What models under way may take at most."""

    @property
    def seconds(self) -> float:
        """Of real time."""
        computing = self.trainings * self.training_seconds + self.evaluations * self.evaluation_seconds
        return computing / self.workers + self.trainings * UPDATE_SECONDS

    def __str__(self) -> str:
        takes = length(self.seconds) if self.seconds > YEAR else f"about {length(self.seconds)}"
        by = "one process" if self.workers == 1 else f"{self.workers} processes"
        return (
            f"this takes {takes} and up to {size(self.model_bytes)} for models: some "
            f"{rounded(self.trainings)} trainings of {length(self.training_seconds)} and {rounded(self.evaluations)} "
            f"evaluations of {length(self.evaluation_seconds)}, in {by}"
        )


def foresee(scenarios: Sequence[Scenario], task: Task, engine: Engine) -> None:
    """Print the task's notes and what its runs will take, if that is much; refuse what does not fit into memory."""
    for note in task.notes:
        print(f"spyker: {note}", file=sys.stderr)
    parameters = task.initial().size
    check_models(scenarios[0].client_count, parameters)
    found = estimate(scenarios, task, engine)
    if found is not None and (found.seconds > LONG or found.model_bytes > machine_bytes() / 2):
        print(f"spyker: {found}", file=sys.stderr)
    for warning in dict.fromkeys(text for scenario in scenarios for text in expected_problems(scenario, parameters)):
        print(f"spyker: warning: {warning}", file=sys.stderr)


def expected_problems(scenario: Scenario, parameters: int) -> list[str]:
    """Why little or nothing will be learnt, as far as the scenario and the size of the model tell."""
    times, rounds = round_times(scenario, parameters), scenario.duration / round_durations(scenario, parameters)
    found = [str(warning) for warning in slow_links(times)]
    late, count = int((rounds < 1).sum()), scenario.client_count
    if late > count / 2:
        who = "no client finishes" if late == count else f"{late:,} of {count:,} clients do not finish"
        need = scenario.duration / float(np.median(rounds))
        found.append(
            f"{scenario.chosen.title}: {who} a single round in {scenario.duration:g} s, because a round takes "
            f"{need:,.3g} s. Run at least {np.ceil(10 * need):,.0f} s (--duration)."
        )
    return found


def check_models(clients: int, parameters: int) -> None:
    """Refuse more models at once than this machine can hold."""
    each = CLIENT_BYTES + LEAST * parameters * WEIGHT_BYTES
    there = machine_bytes()
    if clients * each > there:
        raise UsageError(
            "world.clients",
            f"adds up to {clients:,}, whose models of {parameters:,} parameters take at least {size(clients * each)} "
            f"of memory, and this machine has {size(there)}",
            f"Emulate at most {int(there / each):,} of them",
        )


def estimate(scenarios: Sequence[Scenario], task: Task, engine: Engine) -> Estimate | None:
    """What runs of a task will take, unless they are too short for the question."""
    parameters = task.initial().size
    trainings = sum(expected_trainings(scenario, parameters) for scenario in scenarios)
    evaluations = sum(
        (s.duration / s.evaluation.interval + 1) * (len(s.placement().learners) + 1) for s in scenarios
    )  # of every server, and of their mean
    if trainings < ENOUGH:
        return None
    try:
        training, evaluation = (0.0, 0.0) if task.trivial else trial(scenarios[0], task, engine)
    except TaskError:
        return None  # the run will say so, and leave a record
    workers = len(getattr(engine, "workers", ())) or 1
    bytes_ = MOST * scenarios[0].client_count * parameters * WEIGHT_BYTES
    return Estimate(trainings, evaluations, training, evaluation, workers, bytes_)


def expected_trainings(scenario: Scenario, parameters: int) -> float:
    """How many trainings a run has at most."""
    return float((scenario.duration / np.maximum(round_durations(scenario, parameters), 1e-6)).sum())


def trial(scenario: Scenario, task: Task, engine: Engine) -> tuple[float, float]:
    """Seconds per training and per evaluation; of two each, since a first one may have to wait for a worker."""
    start = task.initial()
    client = int(np.argsort([task.size(k) for k in range(min(scenario.client_count, 1000))])[-1])

    def train() -> None:
        job = TrainJob(client, start, rate_of(scenario.training, task), 0)
        engine.submit(job, 0.0)
        engine.trained(job)

    def evaluate() -> None:
        job = EvaluateJob(start)
        engine.submit(job, 0.0)
        engine.score(job)

    return second(train), second(evaluate)


def second(work: Callable[[], None]) -> float:
    """How long something takes the second time."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rounded(number: float) -> str:
    """Two digits are more than an estimate knows."""
    return f"{float(f'{number:.2g}'):,.0f}" if number < COUNTABLE else f"{number:.2g}"


def length(seconds: float) -> str:
    """A time for people."""
    if seconds > YEAR:
        return "more than a year"
    for unit, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds * 1000:.2g} ms" if seconds < 0.1 else f"{seconds:.1f} s"


def size(count: float) -> str:
    """Bytes for people."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"
