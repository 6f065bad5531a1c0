"""Aggregates of what clients evaluate, with numbers worked out by hand."""

import json
import math
from typing import Any

import pytest
from recording import started

from spyker.protocol.facts import ClientEvaluated, ClientQuarantined, SumEvaluated
from spyker.records import ClientFailed, EvaluatedByClients, ServerPlace
from spyker.records.client_scores import LIFETIME, ClientScores, combined_by_clients

EVERY = {0: 2, 1: 2}  # clients of each server


def scores(**changes: Any) -> ClientScores:
    """Of two servers, in the regions here and there, with two clients each."""
    return ClientScores(started(**changes), [2, 2])


def told(
    table: ClientScores, *values: tuple[int, int, float], t: float = 1.0, server: int | None = None
) -> ClientScores:
    """Clients evaluate: number, examples, accuracy."""
    for client, examples, value in values:
        home = client // 2 if server is None else server
        table.fact(t, ClientEvaluated(home, client, examples, {"accuracy": value}))
    return table


def only(table: ClientScores, t: float = 1.0) -> EvaluatedByClients:
    (found,) = table.aggregate(t)
    return found


def test_means_are_weighted_by_examples_and_counted() -> None:
    found = only(told(scores(), (0, 10, 0.5), (1, 30, 0.9), (2, 20, 0.2)))
    assert (found.clients, found.examples) == (3, 60)
    assert found.weighted_mean == pytest.approx((5 + 27 + 4) / 60)
    assert found.mean == pytest.approx(1.6 / 3)
    assert found.median == 0.5
    assert [(r.region, r.clients, r.value) for r in found.regions] == [
        ("here", 2, pytest.approx(32 / 40)),
        ("there", 1, pytest.approx(0.2)),
    ]


@pytest.mark.parametrize(("higher", "worst"), [(True, (0.0 + 0.01) / 2), (False, (0.24 + 0.23) / 2)])
def test_the_worst_decile_is_that_of_the_metrics_direction(higher: bool, worst: float) -> None:
    table = told(scores(higher_is_better=higher), *((k, 1, k / 100) for k in range(25)), server=0)
    found = only(table)
    assert (found.worst_decile, found.worst_decile_clients) == (pytest.approx(worst), 2)
    one = only(told(scores(higher_is_better=higher), (0, 1, 0.3), (1, 1, 0.6)))
    assert (one.worst_decile, one.worst_decile_clients) == (0.3 if higher else 0.6, 1), "at least one client"


def test_a_client_that_claims_many_examples_does_not_rule_the_mean() -> None:
    honest = [(k, 10, 0.5) for k in range(9)]
    found = only(told(scores(), *honest, (9, 2**50, 0.0), server=0))
    assert found.weighted_mean == pytest.approx(9 * 10 * 0.5 / (9 * 10 + 100)), "ten times the median, not more"
    two = only(told(scores(), (0, 10, 0.5), (1, 2**50, 0.0)))
    assert two.weighted_mean == pytest.approx(5 / 110), "nor of two"


def test_a_client_counts_once_where_it_evaluated_last() -> None:
    table = told(scores(), (0, 10, 0.5), (2, 10, 0.7))
    told(table, (0, 10, 0.9), t=2.0, server=1)
    found = only(table, 2.0)
    assert (found.clients, found.mean) == (2, pytest.approx(0.8))
    result = table.evaluation(2.0, 0, 0, {0: 1, 1: 2})
    assert result is not None
    assert math.isnan(result[0].servers[0])
    assert result[0].servers[1] == pytest.approx(0.8)


def test_evaluations_expire_unless_the_client_is_slow() -> None:
    table = told(scores(), (0, 10, 0.5), (1, 10, 0.7), t=0.5)
    told(table, (1, 10, 0.9), t=7.5)  # seven seconds later: it is slow
    assert only(table, 0.5 + LIFETIME).clients == 2
    assert only(table, 0.6 + LIFETIME).clients == 1
    assert only(table, 21.5).clients == 1, "twice the time between its evaluations"
    assert table.aggregate(21.6) == []


@pytest.mark.parametrize("out", [ClientFailed(0, 0, "no data"), ClientQuarantined(0, 0, "norm", 60.0)])
def test_who_failed_or_is_quarantined_counts_no_more(out: Any) -> None:
    table = told(scores(), (0, 10, 0.1), (1, 10, 0.9))
    table.fact(1.5, out)
    assert (only(table, 2.0).clients, only(table, 2.0).mean) == (1, 0.9)


def test_a_server_has_a_score_when_half_of_its_clients_have_evaluated() -> None:
    """One client with three examples may be right by chance: that must not reach a target."""
    table = told(scores(), (0, 3, 1.0))
    assert table.evaluation(1.0, 5, 6, {0: 3, 1: 3}) is None
    told(table, (1, 3, 0.5))
    result = table.evaluation(1.0, 5, 6, {0: 3, 1: 3})
    assert result is not None
    assert (result[0].updates, result[0].bytes, result[0].mean) == (5, 6, 0.75)
    assert math.isnan(result[0].servers[1])
    late = told(scores(), (0, 3, 1.0), t=LIFETIME).evaluation(LIFETIME, 5, 6, {0: 3, 1: 3})
    assert late is not None, "where most clients have no test data, those that have count in the end"


def test_the_evaluation_is_the_mean_of_the_servers() -> None:
    table = ClientScores(started(), [2, 2], {"loss": False})
    for client, accuracy, loss in ((0, 0.4, 3.0), (1, 0.6, 1.0), (2, 0.9, 0.5), (3, 0.9, 0.5)):
        table.fact(1.0, ClientEvaluated(client // 2, client, 5, {"accuracy": accuracy, "loss": loss}))
    result = table.evaluation(1.0, 0, 0, EVERY)
    assert result is not None
    evaluation, (loss,) = result
    assert evaluation.servers == [pytest.approx(0.5), pytest.approx(0.9)]
    assert (evaluation.mean, evaluation.worst, evaluation.best) == tuple(map(pytest.approx, (0.7, 0.5, 0.9)))
    assert (loss.name, loss.mean, loss.worst) == ("loss", pytest.approx(1.25), 2.0)
    assert [each.name for each in table.aggregate(1.0)] == ["accuracy", "loss"]


def test_added_clients_are_in_the_region_of_their_server() -> None:
    table = told(scores(), (0, 1, 0.5))
    told(table, (17, 1, 0.7), server=1)
    assert [(r.region, r.clients) for r in only(table).regions] == [("here", 1), ("there", 1)]
    single = ClientScores(started(servers=[ServerPlace(0, "here", 4)]), [2, 2])
    told(single, (3, 1, 0.5), server=0)
    assert only(single).regions[0].region == "there", "a client of the scenario is where the scenario says"


def test_the_state_outlives_a_process() -> None:
    table = told(scores(), (0, 10, 0.5), (2, 20, 0.25))
    again = scores()
    again.restore(json.loads(json.dumps(table.state())))
    assert again.aggregate(1.0) == table.aggregate(1.0)
    assert again.evaluation(1.0, 0, 0, EVERY) == table.evaluation(1.0, 0, 0, EVERY)


def test_parts_of_servers_add_up_to_the_whole() -> None:
    values = [(0, 10, 0.5), (1, 30, 0.9), (2, 20, 0.2), (3, 20, 0.4)]
    whole = only(told(scores(), *values))
    parts = [only(told(scores(), *values[:2])), only(told(scores(), *values[2:]))]
    both = combined_by_clients(parts)
    assert (both.clients, both.examples) == (whole.clients, whole.examples)
    assert (both.weighted_mean, both.mean) == (pytest.approx(whole.weighted_mean), pytest.approx(whole.mean))
    assert [(r.region, r.clients, r.value) for r in both.regions] == [
        (r.region, r.clients, pytest.approx(r.value)) for r in whole.regions
    ]


def test_the_clients_of_a_sum_count_together() -> None:
    table = ClientScores(started(), [2, 3])
    table.fact(1.0, SumEvaluated(0, 2, 10, {"accuracy": 0.5}))
    table.fact(2.0, SumEvaluated(1, 3, 30, {"accuracy": 0.9}))
    table.fact(3.0, SumEvaluated(1, 3, 30, {"accuracy": 0.7}))
    (found,) = table.aggregate(4.0)
    assert (found.clients, found.examples, found.weighted_mean) == (5, 40, pytest.approx(0.65))
    assert [each.clients for each in found.regions] == [2, 3]
    assert [each.value for each in found.regions] == pytest.approx([0.5, 0.7])
    assert (found.worst_decile_clients, found.worst_decile) == (0, found.weighted_mean)
    both = combined_by_clients([found, found])
    assert (both.worst_decile_clients, both.clients) == (0, 10)
    again = ClientScores(started(), [2, 3])
    again.restore(json.loads(json.dumps(table.state())))
    assert again.aggregate(4.0) == [found]


def test_a_server_scores_once_half_of_its_clients_are_in_a_sum() -> None:
    table = ClientScores(started(), [2, 3])
    table.fact(0.1, SumEvaluated(0, 3, 10, {"accuracy": 0.5}))
    assert table.evaluation(0.2, 1, 1, {0: 7}) is None
    assert table.evaluation(0.2, 1, 1, {0: 6}) is not None
