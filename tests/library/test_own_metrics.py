"""Several metrics, the training loss and each client's own test: in facts, summary, tables, plots and DataFrames."""

from pathlib import Path
from typing import Any

import measuring_task
import numpy as np
import pytest

import spyker
from spyker.api.read_scenario import read_scenario
from spyker.cli.main import main
from spyker.engines.engine import EvaluateJob
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.plots.figures import describe_lines
from spyker.plots.run_groups import group_runs
from spyker.plots.table import rows
from spyker.records import Evaluated, MetricEvaluated, RecordError
from spyker.tasks.registry import resolve, task_spec

SETTINGS = {"training.report-loss": True, "training.rate": 0.5}


def run(folder: Path, task: Any = measuring_task.make, **named: Any) -> spyker.Run:
    named = {"clients": 4, "duration": 2, "settings": SETTINGS, "workers": 0, "progress": False} | named
    return spyker.run(task=task, out=folder, overwrite=True, **named)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> spyker.Run:
    return run(tmp_path_factory.mktemp("measured") / "run")


def test_every_evaluation_is_followed_by_what_else_it_measured(measured: spyker.Run) -> None:
    judged = list(measured.facts(Evaluated, MetricEvaluated))
    assert [stated.fact.kind for stated in judged] == ["evaluation", "metric"] * 3
    assert all(a.t == b.t for a, b in zip(judged[::2], judged[1::2], strict=True))
    last = judged[-1].fact
    assert (last.name, last.higher_is_better, len(last.servers)) == ("accuracy", True, 4)
    assert last.worst == min(last.servers)
    assert last.mean == pytest.approx(sum(last.servers) / 4)


def test_the_summary_has_them(measured: spyker.Run) -> None:
    assert measured.summary is not None
    assert measured.summary["metrics"]["accuracy"]["mean"] > 0.8
    reported = measured.summary["reported"]
    assert list(reported) == ["training loss"]
    assert all(each["clients"] == 4 and each["least"] <= each["mean"] <= each["most"] for each in reported.values())
    by_clients = measured.summary["evaluation_by_clients"]
    assert list(by_clients) == ["loss", "accuracy"]
    assert all(each["clients"] == 4 for each in by_clients.values())


def test_a_run_that_measures_one_thing_is_written_as_ever(tmp_path: Path) -> None:
    plain = run(tmp_path / "r", task="quadratic", settings={})
    assert plain.summary is not None
    assert not plain.summary.keys() & {"metrics", "reported", "evaluation_by_clients"}
    assert not list(plain.facts("metric", "report", "client-evaluation", "evaluation-by-clients"))


def test_less_is_better_where_the_task_says_so(measured: spyker.Run, tmp_path: Path) -> None:
    """No target is reached at time 0 by a model that has learnt nothing."""
    assert measured.targets == [0.45]
    reached = measured.reached(0.45)
    assert reached is not None
    assert reached.time > 0
    assert measured.points.mean[0] > 0.45 >= measured.points.mean[-1]
    stopped = run(tmp_path / "r", duration=20, settings={**SETTINGS, "evaluation.stop-at": 0.45})
    assert stopped.summary is not None
    assert 0 < stopped.summary["time"] < 20


def test_frames_and_plots_have_them(measured: spyker.Run, tmp_path: Path) -> None:
    assert list(measured.metrics) == ["loss", "accuracy", "loss on clients", "accuracy on clients", "training loss"]
    assert measured.metrics["accuracy"].iloc[-1] == measured.summary["metrics"]["accuracy"]["mean"]  # type: ignore[index]
    assert measured.reports["training loss"].notna().all()
    measured.plot(tmp_path / "a.png", metric="training loss")
    said = describe_lines(group_runs([measured.record]).of("training loss").lines, ())
    assert said == "Lines: mean of the clients' last reports; shade: worst to best client."
    with pytest.raises(RecordError, match=r"'f1' is not in all of these runs\. Choose loss, accuracy"):
        measured.plot(metric="f1")
    assert main(["plot", str(measured.folder), "--out", str(tmp_path / "p")]) == 0
    drawn = {path.name for path in (tmp_path / "p").iterdir()}
    assert {"loss-time.png", "accuracy-time.png", "training-loss-time.png", "loss-on-clients-time.png"} <= drawn


def test_the_table_has_a_column_for_each(measured: spyker.Run) -> None:
    heads, (cells,) = rows(group_runs([measured.record]))
    assert heads[3:6] == ["final loss", "worst server", "final accuracy"]
    assert float(cells[5]) > 0.8
    assert float(cells[4]) >= float(cells[3])  # the worst server has the larger loss


def test_a_worker_measures_the_same() -> None:
    plan = task_spec(resolve(read_scenario(None, task="measuring_task:make", clients=4)))
    weights, job = np.ones(6, np.float32), EvaluateJob(np.ones(6, np.float32))
    expected = plan.make().evaluate(weights)
    with ProcessPoolEngine(plan, 6, 1) as workers:
        workers.submit(job, due=0)
        assert {"loss": workers.score(job), **(job.also or {})} == expected


def test_what_evaluate_returns_must_be_what_is_declared(tmp_path: Path) -> None:
    class Talkative(spyker.Task):
        trivial = True

        def initial(self) -> Any:
            return np.zeros(1, np.float32)

        def size(self, client: int) -> int:
            return 1

        def train(self, client: int, weights: Any, rate: float, step: int) -> Any:
            return weights

        def evaluate(self, weights: Any) -> Any:
            return {"score": 1.0, "f1": 0.5}

    with pytest.raises(RuntimeError, match=r"returned a dict of 'score', 'f1'\. Return a dict of 'score': what"):
        run(tmp_path / "r", Talkative())


# --- Divergence ------------------------------------------------------------------------------------------------------


def test_a_nan_in_the_data_is_told_by_client_and_minibatch(tmp_path: Path) -> None:
    (failed,) = run(tmp_path / "goes-on", settings={"task.broken": 2}).summary["failed_clients"]
    assert failed["client"] == 2
    assert "an input in its minibatch 1 is NaN or infinite" in failed["reason"]
    with pytest.raises(RuntimeError) as error:
        run(tmp_path / "stops", settings={"task.broken": 2, "training.on-client-error": "stop"})
    text = str(error.value)
    assert "First at client 2, at t = " in text
    assert "in its training number 0 (from 0) at the rate 0.05, of a model whose norm was " in text
    assert "an input in its minibatch 1 is NaN or infinite (inputs float32 (12, 2), targets int64 (12,))" in text
    assert "Lower training.rate" not in text


def test_a_rate_that_is_too_high_is_told_with_loss_and_gradient(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"First at client \d") as error, np.errstate(all="ignore"):
        run(tmp_path / "r", measuring_task.line, settings={"training.rate": 1000, "training.epochs": 50})
    text = str(error.value)
    assert "at the rate 1000" in text
    assert "in its minibatch " in text
    assert "the gradient's norm " in text
    assert text.endswith("Lower training.rate, or set training.clip-norm")
