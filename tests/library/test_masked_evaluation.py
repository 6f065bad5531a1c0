"""Evaluation by clients whose scores ride along with masked updates."""

import statistics
from pathlib import Path
from typing import Any

import pytest
from evaluating_task import Means

import spyker
from spyker.errors import UsageError
from spyker.plots.figures import describe_lines
from spyker.plots.run_groups import group_runs
from spyker.protocol.facts import ClientEvaluated, SumEvaluated
from spyker.records import FACTS, Evaluated, EvaluatedByClients

SETTINGS = {"training.rate": 0.2, "evaluation.interval": 0.5, "privacy.masking": True}


def run(folder: Path, **named: Any) -> spyker.Run:
    settings = SETTINGS | named.pop("settings", {})
    named = {"clients": 12, "duration": 4, "workers": 0, "progress": False} | named
    return spyker.run(task=Means, out=folder, settings=settings, **named)


def mean_of_servers(run: spyker.Run) -> float:
    """The mean of servers, because masks limit the weights of clients more than their evaluations do."""
    return statistics.fmean(list(run.facts(Evaluated))[-1].fact.servers)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> spyker.Run:
    return run(tmp_path_factory.mktemp("masked") / "run")


def test_clients_evaluate_together_where_nobody_has_central_test_data(masked: spyker.Run) -> None:
    assert masked.record.evaluated_by == "clients"
    sums = list(masked.facts(SumEvaluated))
    assert {stated.fact.server for stated in sums} == {0, 1, 2, 3}
    assert all(stated.fact.clients >= 3 for stated in sums)
    assert not list(masked.facts(ClientEvaluated)), "nobody sees what one client evaluated"
    assert list(masked.facts(Evaluated))


def test_regions_and_totals_are_known_and_the_worst_decile_is_not(masked: spyker.Run) -> None:
    last = list(masked.facts(EvaluatedByClients))[-1].fact
    assert last.clients == 12
    assert [each.clients for each in last.regions] == [3, 3, 3, 3]
    assert last.worst_decile_clients == 0
    summary = masked.summary["evaluation_by_clients"]["closeness"]  # type: ignore[index]
    values = [each.value for each in last.regions]
    assert min(values) < summary["weighted_mean"] < max(values)
    assert summary["worst_decile"] is summary["mean"] is summary["median"] is None
    assert describe_lines(group_runs([masked.record]).lines, ())


def test_targets_follow_what_clients_evaluate_together(masked: spyker.Run) -> None:
    hit = masked.reached(0.5)
    assert hit is not None
    assert masked.summary["time_to_target"]["0.5"] == hit.time  # type: ignore[index]


def test_the_bytes_do_not_depend_on_the_number_of_workers(masked: spyker.Run, tmp_path: Path) -> None:
    again = run(tmp_path / "again", workers=2)
    assert (again.folder / FACTS).read_bytes() == (masked.folder / FACTS).read_bytes()


def test_clear_evaluations_are_still_possible_and_have_the_same_means(masked: spyker.Run, tmp_path: Path) -> None:
    clear = run(tmp_path / "clear", settings={"privacy.report-metrics": True})
    assert list(clear.facts(ClientEvaluated))
    assert not list(clear.facts(SumEvaluated))
    assert mean_of_servers(masked) == pytest.approx(mean_of_servers(clear), abs=0.03)


def test_scores_of_clients_that_protect_examples_do_not_ride_along(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"evaluation\.by|privacy\.unit"):
        run(tmp_path / "both", settings={"privacy.unit": "example", "privacy.epsilon": 8.0, "privacy.trainings": 9})
