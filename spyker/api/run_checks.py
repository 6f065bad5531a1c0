"""Checks before a run: expected problems of the scenario, and memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from spyker.config.client_privacy import check_noise
from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.records.run_warnings import slow_links
from spyker.sim.round_times import WEIGHT_BYTES, round_durations, round_times
from spyker.tasks.memory_check import CLIENT_BYTES
from spyker.tasks.task import Task
from spyker.untrusted_files import machine_bytes

MODELS_PER_CLIENT = 0.5  # lower bound of models in memory at the same time: measured 0.6 to 0.95 without workers


def warn_before(scenarios: Sequence[Scenario], task: Task) -> None:
    """Print notes and expected problems; raise a ``UsageError`` if the models do not fit into memory."""
    if note := left_out(scenarios[0]):
        print(f"spyker: {note}", file=sys.stderr)
    for note in task.notes:
        print(f"spyker: {note}", file=sys.stderr)
    parameters = task.initial().size
    check_models(scenarios[0].client_count, parameters)
    for warning in dict.fromkeys(text for scenario in scenarios for text in expected_problems(scenario, parameters)):
        print(f"spyker: warning: {warning}", file=sys.stderr)


def left_out(scenario: Scenario) -> str:
    """Return a note about regions that are left out for lack of clients, or an empty string."""
    *others, last = scenario.left_out or ("",)
    if not last:
        return ""
    names = f"the regions {', '.join(others)} and {last} are" if others else f"the region {last} is"
    count = scenario.client_count
    return f"{count} client{'s' * (count > 1)}: {names} left out"


def expected_problems(scenario: Scenario, parameters: int) -> list[str]:
    """Return warnings about runs that will learn little, derived from the scenario and the size of the model."""
    times, rounds = round_times(scenario, parameters), scenario.duration / round_durations(scenario, parameters)
    found = [str(warning) for warning in slow_links(times)]
    if (noise := check_noise(scenario, parameters)) is not None:
        found.append(noise)
    late, count = int((rounds < 1).sum()), scenario.client_count
    if late > count / 2:
        clients = "no client finishes" if late == count else f"{late:,} of {count:,} clients do not finish"
        need = scenario.duration / float(np.median(rounds))
        found.append(
            f"{scenario.chosen.title}: {clients} a single round in {scenario.duration:g} s, because a round takes "
            f"{need:,.3g} s. Run at least {np.ceil(10 * need):,.0f} s (--duration)."
        )
    return found


def check_models(clients: int, parameters: int) -> None:
    """Raise a ``UsageError`` if the models of all clients do not fit into this machine's memory."""
    each = CLIENT_BYTES + MODELS_PER_CLIENT * parameters * WEIGHT_BYTES
    memory = machine_bytes()
    if clients * each > memory:
        raise UsageError(
            "world.clients",
            f"adds up to {clients:,}, whose models of {parameters:,} parameters take at least "
            f"{clients * each / 2**30:,.1f} GiB of memory, and this machine has {memory / 2**30:,.1f} GiB",
            f"Emulate at most {int(memory / each):,} of them",
        )
