"""Expected duration of a client's round, from the scenario and the size of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spyker.config.scenario import Scenario
from spyker.config.world import latency_seconds
from spyker.records.run_warnings import RoundTimes
from spyker.tasks.client_delays import delays

WEIGHT_BYTES = 4


def round_durations(scenario: Scenario, parameters: int) -> npt.NDArray[Any]:
    """Return the seconds per round of each client: training, transfers and mixing.

    A server processes one update at a time. In synchronous algorithms the slowest client decides.
    """
    places, latency = scenario.placement(), np.asarray(latency_seconds(scenario.world))
    there = np.asarray(places.client_regions)
    homes = np.asarray([0 if home is None else home for home in places.homes])
    at = np.asarray(places.server_regions)[homes]
    cycle = np.asarray(delays(scenario)) + latency[there, at] + latency[at, there] + 2 * transfer(scenario, parameters)
    if scenario.chosen.waits_for_all_clients:  # single updates cost nothing
        slowest = np.zeros(len(places.server_regions))
        np.maximum.at(slowest, homes, cycle)
        return np.asarray(slowest[homes])
    return np.asarray(np.maximum(cycle, np.bincount(homes)[homes] * scenario.world.mix_ms / 1000))


def transfer(scenario: Scenario, parameters: int) -> float:
    """Return the seconds to transfer the model, without latency."""
    return parameters * WEIGHT_BYTES * 8 / (scenario.world.bandwidth_mbit * 1e6)


def round_times(scenario: Scenario, parameters: int) -> RoundTimes:
    """Return the parts of a round."""
    return RoundTimes(
        transfer=transfer(scenario, parameters),
        training=float(np.median(delays(scenario))),
        shortest=float(round_durations(scenario, parameters).min()),
        megabytes=parameters * WEIGHT_BYTES / 1e6,
        mbit=scenario.world.bandwidth_mbit,
    )
