"""Updates per second of one deployed server over a bare gRPC echo of the same bytes, by model size and algorithm.

As in ``deploy``: all clients are one process, nobody trains, and the server does all that it does by default. The echo
and both algorithms are measured in turn. With Stride the clients wait for the others of their round.
"""

from __future__ import annotations

import os
import statistics

from benchmarks.deploy import echo_rate, spyker_rate
from benchmarks.measure import Result

# parameters: (name, clients, seconds, bar)
SIZES = {1_250: ("5 kB", 8, 5.0, 0.45), 21_840: ("87 kB", 8, 5.0, 0.6), 1_200_000: ("4.8 MB", 4, 6.0, 0.7)}
ALGORITHMS, TIMES = ("spyker", "stride"), 3


def measure() -> list[Result]:
    results = []
    for parameters, (name, clients, seconds, bar) in SIZES.items():
        rates: dict[str, list[float]] = {side: [] for side in ("echo", *ALGORITHMS)}
        for _ in range(TIMES):
            rates["echo"].append(echo_rate(parameters, clients, seconds))
            for algorithm in ALGORITHMS:
                rates[algorithm].append(spyker_rate(parameters, clients, seconds, {"algorithm": algorithm}))
        echo = statistics.median(rates["echo"])
        for algorithm in ALGORITHMS:
            rate = statistics.median(rates[algorithm])
            details = {"updates_per_s": rate, "echo_updates_per_s": echo, "load_average": os.getloadavg()[0]}
            results.append(Result(f"{algorithm}, deployed / bare echo, {name}", rate / echo, bar, details=details))
    return results
