"""A run that was interrupted and goes on is, to the byte, the one that never was."""

from pathlib import Path
from typing import Any

import pytest

from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.scenario import Scenario, load
from spyker.engines.engine import InProcessEngine
from spyker.records import RecordError
from spyker.records.resume_point import SAVE, read_resume_point
from spyker.sim.autosave import Autosave
from spyker.sim.clock import Clock, StopRequest
from spyker.sim.recording import record_run
from spyker.sim.timers import SimTimers
from spyker.tasks.registry import resolve, task_spec

SETTINGS: dict[str, Any] = {
    "duration": 3.0,
    "training.delay-ms": "heterogeneous",
    "world.clients": [9, 3, 3, 3],
    "evaluation.interval": 0.5,
    "world.bandwidth-mbit": 0.05,  # messages between servers wait for each other
    "spyker.h-intra": 20.0,
    "hierfavg.fraction": 0.5,
    "fedavg.fraction": 0.4,
}


MANY = {"stride.crowd": 3}  # four servers are many, then
GUARDED = {"robust.when": "always", "robust.quarantine": 0.7, "world.adversaries": {"share": 0.2, "kind": "huge"}}


def scenario_of(algorithm: str, **settings: Any) -> Scenario:
    return resolve(load(None, SETTINGS | {"algorithm": algorithm} | settings, task="quadratic"))


class Always:
    """Saves at every evaluation."""

    def due(self) -> bool:
        return True

    def done(self) -> None:
        pass


class Killed(BaseException):
    """What a kill would do, for a test."""


def until(time: float, how: str) -> Any:
    def watch(t: float, fact: object) -> bool:
        if t >= time and how == "kill":
            raise Killed
        return t >= time

    return watch


def go(scenario: Scenario, folder: Path, *watches: Any, resume: bool = False) -> None:
    task = task_spec(scenario).make()
    save = read_resume_point(folder) if resume else None
    saves = Autosave(folder, scenario, Always(), save)
    if save is not None:
        saves.check(scenario, task)
    record_run(scenario, task, InProcessEngine(task), folder, watches, models=True, saves=saves)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "stride of many servers", "spyker with liars"])
def test_it_goes_on_as_if_nothing_had_happened(tmp_path: Path, algorithm: str) -> None:
    name, _, special = algorithm.partition(" ")
    scenario = scenario_of(name, **{"": {}, "of many servers": MANY, "with liars": GUARDED}[special])
    task = task_spec(scenario).make()
    record_run(scenario, task, InProcessEngine(task), tmp_path / "whole", models=True)
    folder = tmp_path / "parts"
    go(scenario, folder, until(0.31, "stop"))
    assert (folder / SAVE).exists()
    with pytest.raises(Killed):
        go(scenario, folder, until(1.83, "kill"), resume=True)
    assert not (folder / "summary.json").exists()
    go(scenario, folder, until(2.27, "stop"), resume=True)
    go(scenario, folder, resume=True)
    assert files(folder) == files(tmp_path / "whole")


def test_a_world_that_breaks_is_not_saved_and_runs_all_the_same(tmp_path: Path) -> None:
    scenario = scenario_of("spyker", **{"world.outage": {"region": 1, "start": 1.0, "seconds": 1.0}})
    go(scenario, tmp_path / "a", until(2.0, "stop"))
    assert not (tmp_path / "a" / SAVE).exists()
    with pytest.raises(RecordError, match="a holds nothing to go on from"):
        go(scenario, tmp_path / "a", resume=True)


def test_timers_go_on_running_and_stopped_ones_stay_so() -> None:
    clock, rung = Clock(10.0), []
    timers = SimTimers(clock, rung.append)
    timers.start("a", 2.0)
    timers.start("a", 5.0)
    events = [(t, n, timers.runs(a, b)) for t, n, _, a, b in clock.pending()]
    assert events == [(2.0, 1, False), (5.0, 2, True)]
    other = SimTimers(later := Clock(10.0), rung.append)
    later.go_on(1.0, 7, 2, [(t, n, other.due, "a", other.mark("a", runs=runs)) for t, n, runs in events])
    assert later.run(StopRequest())
    assert (rung, later.happened, later.scheduled) == (["a"], 9, 2)
