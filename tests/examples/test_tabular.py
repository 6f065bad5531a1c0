"""The example with a table and scikit-learn."""

import sys
from pathlib import Path

import numpy as np
import pytest

import spyker
from spyker.config.scenario import Training
from spyker.vectors import Vector

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import tabular  # noqa: E402


def test_clinics_learn_together_what_none_knows_alone(tmp_path: Path) -> None:
    settings = {"training.rate": 0.01}
    run = spyker.run(
        task=tabular.clinics,
        clients=16,
        duration=2,
        settings=settings,
        out=tmp_path / "run",
        workers=0,
        progress=False,
    )
    assert run.summary is not None
    assert run.summary["final"]["mean"] > 0.9
    reports = [fact for _, fact, _ in run.facts("report")]
    assert reports
    assert all(0 <= report.metrics["own accuracy"] <= 1 for report in reports)


def test_sorted_clinics_see_one_kind_of_patients() -> None:
    task = tabular.clinics(16, 1, Training(), mixed=0.0)
    shares = [float(labels.mean()) for _, labels in task.patients]
    assert max(shares) == 1
    assert min(shares) == 0
    assert sum(task.size(client) for client in range(16)) + len(task.test[1]) == 569


def test_a_training_starts_from_what_it_is_given_and_repeats() -> None:
    task = tabular.clinics(4, 1, Training())

    def train(weights: Vector, step: int = 0) -> Vector:
        return task.train(2, weights, 0.01, step).weights

    start = np.linspace(-1, 1, 31, dtype=np.float32)
    assert np.array_equal(train(start), train(start))
    assert not np.array_equal(train(start), train(start, 1))
    tiny = task.train(2, start, 1e-7, 0).weights
    assert tiny == pytest.approx(start, abs=1e-3), "and goes no further than its rate"
