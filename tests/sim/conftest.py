from collections.abc import Callable
from typing import Any

import pytest

from spyker.config.scenario import from_table
from spyker.engines.start_engine import start_engine
from spyker.records import RunStarted
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve

Emulate = Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]


@pytest.fixture(scope="session")
def emulate() -> Emulate:
    """Run a scenario given as a table; return its facts, as dictionaries, and its summary.

    With ``faults`` servers are processes; see :func:`spyker.sim.simulate.simulate`.
    """

    def emulate(table: dict[str, Any], faults: Any = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        scenario = resolve(from_table(table))
        task, engine = start_engine(scenario)
        facts: list[dict[str, Any]] = []

        def sink(t: float, fact: Any, queue: int | None) -> None:
            if isinstance(fact, RunStarted):
                return
            fields = {name: getattr(fact, name) for name in fact.__dataclass_fields__}
            facts.append({"t": t, "kind": fact.kind, **fields} | ({} if queue is None else {"queue": queue}))

        with engine:
            summary = simulate(scenario, task, engine, sink, faults=faults)
        return facts, summary

    return emulate


def one_region(clients: int, **sections: Any) -> dict[str, Any]:
    """Spyker in a world of one region whose links are 10 ms long and so fast that sizes do not matter."""
    world = {"regions": ["here"], "clients": [clients], "latency-ms": [[10.0]], "bandwidth-mbit": 1e12}
    table = {
        "algorithm": "spyker",
        "task": {"name": "quadratic", "optima": [[1.0]] * clients},
        "world": world | sections.pop("world", {}),
        "training": {"rate": 0.5, "delay-ms": [100.0] * clients} | sections.pop("training", {}),
    }
    return table | sections


@pytest.fixture(name="one_region")
def one_region_fixture() -> Callable[..., dict[str, Any]]:
    return one_region
