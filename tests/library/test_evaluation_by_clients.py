"""Evaluation by clients in emulations: facts, targets, early stopping, tables and DataFrames."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from evaluating_task import Means, WithTest

import spyker
from spyker.api.callbacks import EarlyStopping
from spyker.cli.main import main
from spyker.errors import RecordError
from spyker.plots.figures import describe_lines
from spyker.plots.run_groups import group_runs
from spyker.plots.table import rows
from spyker.protocol.facts import ClientEvaluated
from spyker.records import FACTS, SCENARIO, Evaluated, EvaluatedByClients

SETTINGS = {"training.rate": 0.2, "evaluation.interval": 0.5}


def run(folder: Path, task: Any = Means, settings: dict[str, Any] | None = None, **named: Any) -> spyker.Run:
    named = {"clients": 8, "duration": 4, "workers": 0, "progress": False} | named
    return spyker.run(task=task, out=folder, settings=SETTINGS | (settings or {}), **named)


@pytest.fixture(scope="module")
def by_clients(tmp_path_factory: pytest.TempPathFactory) -> spyker.Run:
    return run(tmp_path_factory.mktemp("by-clients") / "run")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> spyker.Run:
    return run(tmp_path_factory.mktemp("both") / "run", WithTest, {"evaluation.by": "both"})


def test_clients_evaluate_where_nobody_has_central_test_data(by_clients: spyker.Run) -> None:
    """The task fails if it is asked to evaluate centrally."""
    assert by_clients.record.evaluated_by == "clients"
    assert 'by = "clients"' in (by_clients.folder / SCENARIO).read_text()
    points = list(by_clients.facts(Evaluated))
    assert points[0].t > 0, "nobody has evaluated before"
    assert [stated.t for stated in points] == [stated.t for stated in by_clients.facts(EvaluatedByClients)]
    assert by_clients.curve["mean"].iloc[-1] > by_clients.curve["mean"].iloc[0]


def test_an_evaluation_is_made_of_what_clients_said_before(by_clients: spyker.Run) -> None:
    last: dict[int, ClientEvaluated] = {}
    checked = 0
    for t, fact, _ in by_clients.facts(ClientEvaluated, Evaluated, EvaluatedByClients):
        if isinstance(fact, ClientEvaluated):
            last[fact.client] = fact
        elif isinstance(fact, EvaluatedByClients):
            value, weight = (
                {k: each.scores["closeness"] for k, each in last.items()},
                {k: each.examples for k, each in last.items()},
            )
            assert fact.clients == len(last)
            assert fact.mean == pytest.approx(sum(value.values()) / len(value))
            mean = sum(value[k] * weight[k] for k in value) / sum(weight.values())
            assert fact.weighted_mean == pytest.approx(mean)
            checked += 1
        else:
            assert not math.isnan(fact.mean), f"at {t}"
    assert checked > 5


def test_each_client_evaluates_at_most_once_per_interval(by_clients: spyker.Run) -> None:
    count: dict[int, int] = {}
    for _, fact, _ in by_clients.facts(ClientEvaluated):
        count[fact.client] = count.get(fact.client, 0) + 1
    updates = by_clients.summary["updates_per_client"]  # type: ignore[index]
    assert set(count) == set(range(8))
    assert max(count.values()) <= 4 / 0.5
    assert sum(count.values()) < sum(updates) / 2


def test_the_bytes_do_not_depend_on_the_number_of_workers(by_clients: spyker.Run, tmp_path: Path) -> None:
    again = run(tmp_path / "run", workers=2)
    assert (again.folder / FACTS).read_bytes() == (by_clients.folder / FACTS).read_bytes()


def test_targets_and_the_end_follow_what_clients_evaluate(by_clients: spyker.Run, tmp_path: Path) -> None:
    hit = by_clients.reached(0.5)
    assert hit is not None
    assert by_clients.summary["time_to_target"]["0.5"] == hit.time  # type: ignore[index]
    stopped = run(tmp_path / "stop-at", settings={"evaluation.stop-at": 0.5})
    assert stopped.summary["time"] == pytest.approx(hit.time + 0.5), "one evaluation later"  # type: ignore[index]
    patient = run(tmp_path / "patience", duration=60, settings={"evaluation.patience": 2.0})
    assert patient.summary["time"] < 60  # type: ignore[index]
    early = EarlyStopping(2.0)
    run(tmp_path / "callback", duration=60, callbacks=[early])
    assert early.stopped is not None


def test_central_and_clients_evaluations_stand_side_by_side(both: spyker.Run) -> None:
    assert both.curve.index[0] == 0, "the servers evaluate as ever"
    servers = run_of_servers(both)
    assert [fact.mean for _, fact, _ in both.facts(Evaluated)] == servers
    heads, (cells,) = rows(group_runs([both.record]))
    at = heads.index("final closeness on clients")
    assert heads[at + 1] == "worst tenth"
    summary = both.summary["evaluation_by_clients"]["closeness"]  # type: ignore[index]
    assert [float(cell) for cell in cells[at : at + 2]] == [
        pytest.approx(summary["weighted_mean"], abs=5e-4),
        pytest.approx(summary["worst_decile"], abs=5e-4),
    ]
    assert both.metrics["closeness on clients"].iloc[-1] == summary["weighted_mean"]
    shown = group_runs([both.record]).of("closeness on clients")
    assert "dashed: mean over servers on central test data" in describe_lines(shown.lines, ())
    central = shown.first.central
    assert central is not None
    assert central[-1] == both.curve["mean"].iloc[-1]


def run_of_servers(both: spyker.Run) -> list[float]:
    """The scores of the same run without clients that evaluate."""
    alone = run(both.folder.parent / "servers", WithTest, {"evaluation.by": "servers"})
    assert alone.client_curve.empty
    return [fact.mean for _, fact, _ in alone.facts(Evaluated)]


def test_the_frame_has_regions_and_numbers_of_clients(by_clients: spyker.Run) -> None:
    frame = by_clients.client_curve
    last = frame.iloc[-1]
    assert (last["clients"], last["worst_decile_clients"], last["Paris clients"]) == (8, 1, 2)
    assert last["worst_decile"] <= last["Paris"] <= 1
    assert list(frame.index) == list(by_clients.curve.index)


def test_plots_table_and_json_have_them(by_clients: spyker.Run, tmp_path: Path, capsys: Any) -> None:
    assert main(["plot", str(by_clients.folder), "--out", str(tmp_path / "p"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["runs"]
    assert told["evaluation_by_clients"]["closeness"]["clients"] == 8
    assert (tmp_path / "p" / "closeness-on-clients-time.png").exists()
    said = describe_lines(group_runs([by_clients.record]).lines, ())
    assert said.startswith("Lines: mean of the clients' evaluations, weighted by examples; ")


@pytest.mark.parametrize("algorithm", ["stride", "fedavg"])
def test_the_score_is_the_mean_of_all_clients_however_many_servers_there_are(tmp_path: Path, algorithm: str) -> None:
    """One region has a client with many examples, the other one seven with few."""
    settings = {"algorithm": algorithm, "world.regions": ["Paris", "Sydney"], "world.clients": [7, 1]}
    found = run(tmp_path / "run", Means, settings)
    for _, evaluation, _ in found.facts(Evaluated):
        assert evaluation.mean == evaluation.averaged
    last = found.client_curve.iloc[-1]
    assert found.summary is not None
    assert found.summary["final"]["mean"] == last["weighted_mean"] == evaluation.mean


def test_a_run_that_ends_before_anybody_evaluated_says_so(tmp_path: Path) -> None:
    short = run(tmp_path / "run", duration=0.1)
    assert short.summary is not None
    assert short.summary["final"] == dict.fromkeys(("mean", "worst", "best", "averaged"))
    assert "no evaluations yet" in repr(short)
    assert short.curve.empty
    with pytest.raises(RecordError, match="no evaluation yet"):
        short.plot()


def test_runs_by_servers_and_by_clients_are_not_compared_as_they_stand(
    both: spyker.Run, by_clients: spyker.Run
) -> None:
    assert "evaluation.by" in group_runs([both.record, by_clients.record]).warning
