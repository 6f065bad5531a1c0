"""The model of how fast the published rules can be, beside worlds in which every training does the same."""

from pathlib import Path

import numpy as np
import pytest

from spyker.config.scenario import load
from spyker.engines.engine import InProcessEngine
from spyker.plots.samples import sample
from spyker.records import Evaluated, RunRecord
from spyker.sim.recording import record_run
from spyker.tasks.registry import resolve
from spyker.tasks.task import Task
from spyker.vectors import Vector
from spyker_lab.paper.speed import ObservedPace, gain, observed_pace, tokens

END = 16.0


class March(Task):
    """Every training takes a model one step further, in proportion to its rate; the score is how far it got."""

    def initial(self) -> Vector:
        return np.zeros(1, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        return weights + np.float32(rate / 0.05)

    def evaluate(self, weights: Vector) -> float:
        return float(weights[0])


@pytest.fixture(scope="module", params=["fedasync", "spyker", "spyker, uniform"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    algorithm, _, uniform = str(request.param).partition(", ")
    settings = {"algorithm": algorithm, "duration": END, "world.uniform-latency": bool(uniform)}
    folder = tmp_path_factory.mktemp("march") / "run"
    task = March()
    record_run(resolve(load(None, settings, task="quadratic")), task, InProcessEngine(task), folder)
    return RunRecord(folder)


def test_the_predicted_speed_is_that_of_the_servers(run: RunRecord) -> None:
    scores = {point.t: point.fact.mean for point in run.facts(Evaluated)}
    found = observed_pace(run)
    assert found is not None
    assert (scores[END] - scores[4.0]) / (END - 4.0) == pytest.approx(found.speed, rel=0.05)


def test_no_server_moves_faster_than_a_training_per_round_trip(run: RunRecord) -> None:
    found = observed_pace(run)
    assert found is not None
    assert found.speed < found.trips


def test_every_arrival_of_the_token_starts_a_synchronisation_in_the_papers_world(run: RunRecord) -> None:
    arrived, at_once = tokens(run)
    assert (arrived > 0) == (run.start.algorithm == "spyker")
    if not run.scenario["world"]["uniform-latency"]:
        assert arrived == at_once


def test_a_token_that_waits_is_counted(tmp_path: Path) -> None:
    task = March()
    settings = {"algorithm": "spyker", "duration": 4.0, "spyker.h-inter": 60.0}
    record_run(resolve(load(None, settings, task="quadratic")), task, InProcessEngine(task), tmp_path / "run")
    arrived, at_once = tokens(RunRecord(tmp_path / "run"))
    assert arrived > at_once


def test_a_gain_is_what_is_missing_to_the_other_time(run: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    paces = iter([ObservedPace(6.0, 0.2, 5.0), ObservedPace(3.0, 0.1, 3.0)])
    monkeypatch.setattr("spyker_lab.paper.speed.observed_pace", lambda _: next(paces))
    found = gain([run], [run], sample([30.0]), 61.0)
    assert found.predicted.numbers[0] == pytest.approx(40.0)
    assert found.limit.numbers[0] == pytest.approx(50.0)
