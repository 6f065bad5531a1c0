"""What it costs a deployed server to bound what its clients send: updates per second with bounds over those without.

As in ``deploy.py`` nobody trains, so that the server is all that there is to wait for: with real clients it costs less.
"""

from __future__ import annotations

from benchmarks.deploy import SIZES, TIMES, spyker_rate
from benchmarks.measure import Result, in_turn

MEASURED = (21_840, 5_500_000)  # parameters


def measure() -> list[Result]:
    results = []
    for parameters in MEASURED:
        name, clients, seconds, *_ = SIZES[parameters]

        def rate(when: str, parameters: int = parameters, clients: int = clients, seconds: float = seconds) -> float:
            return spyker_rate(parameters, clients, seconds, {"robust.when": when})

        bounded, free = in_turn(lambda rate=rate: rate("deployed"), lambda rate=rate: rate("never"), TIMES)
        details = {"with_updates_per_s": bounded, "without_updates_per_s": free}
        results.append(Result(f"deployed server with bounds / without, {name}", bounded / free, None, details=details))
    return results
