"""What Prometheus gets to see, asked for over HTTP as Prometheus does."""

import math
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spyker.errors import UsageError
from spyker.net.metrics import Metrics
from spyker.protocol.facts import (
    CloudRoundEnded,
    Merged,
    RoundEnded,
    SavingFailed,
    SavingResumed,
    SyncStarted,
    UpdateApplied,
)
from spyker.records import Evaluated, EvaluatedByClients


class Watch:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def scrape():
    """Ask for all metrics of a server; a function from name and labels to value."""

    def ask(metrics):
        port = metrics.serve("127.0.0.1", 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=200) as answer:
            text = answer.read().decode()
        samples = {
            (s.name, *sorted(s.labels.items())): s.value
            for f in text_string_to_metric_families(text)
            for s in f.samples
        }

        def value(name, server="1", **labels):
            return samples[(f"spyker_{name}", *sorted({"server": server, **labels}.items()))]

        return value

    return ask


def update(staleness=0.0, age=1.0, version=1):
    return UpdateApplied(1, 7, staleness, 1.0, age, version, 0.05)


def test_updates_show_in_age_version_queue_and_staleness(scrape):
    metrics = Metrics(1, "spyker")
    metrics.fact(update(staleness=0.0), 3)
    metrics.fact(update(staleness=4.0, age=2.5, version=2), 1)
    value = scrape(metrics)
    assert (value("updates_total"), value("age"), value("version"), value("queue_length")) == (2, 2.5, 2, 1)
    assert (value("staleness_bucket", le="0.0"), value("staleness_bucket", le="5.0")) == (1, 2)
    assert value("staleness_sum") == 4


def test_warnings_are_a_gauge_by_kind(scrape):
    metrics = Metrics(1, "spyker")
    metrics.learning(frozenset({"no-progress"}))
    value = scrape(metrics)
    kinds = ("no-updates", "no-progress", "collapsed")
    assert [value("learning_warnings", kind=kind) for kind in kinds] == [0, 1, 0]


def test_the_algorithm_can_be_read(scrape):
    assert scrape(Metrics(1, "fedavg"))("server_info", algorithm="fedavg") == 1


def test_bytes_and_messages_are_counted_by_kind_and_direction(scrape):
    metrics = Metrics(1, "spyker")
    for size in (100, 50):
        metrics.sent("model", size)
    metrics.received("update", 7)
    value = scrape(metrics)
    assert (value("sent_bytes_total", kind="model"), value("sent_messages_total", kind="model")) == (150, 2)
    assert (value("received_bytes_total", kind="update"), value("received_messages_total", kind="update")) == (7, 1)


def test_spykers_synchronisation_lasts_until_the_token_is_passed_on(scrape, watch):
    metrics = Metrics(1, "spyker", clock=watch)
    metrics.token(held=True)
    metrics.fact(SyncStarted(1, 2))
    watch.now += 0.5
    metrics.fact(Merged(1, 0, 2, 0.5, 9.0))
    watch.now += 0.25
    metrics.token(held=False)
    metrics.token(held=False)
    value = scrape(metrics)
    assert (value("synchronisations_total"), value("merges_total"), value("age")) == (1, 1, 9)
    assert (value("synchronisation_seconds_count"), value("synchronisation_seconds_sum")) == (1, 0.75)


def test_sync_spykers_synchronisation_lasts_until_the_models_are_folded(scrape, watch):
    metrics = Metrics(1, "sync-spyker", clock=watch)
    metrics.fact(SyncStarted(1, 2))
    watch.now += 0.5
    for peer in (1, 2):
        metrics.fact(Merged(1, peer, 2, 0.5, 9.0))
    value = scrape(metrics)
    assert (value("synchronisation_seconds_count"), value("synchronisation_seconds_sum")) == (1, 0.5)


@pytest.mark.parametrize("fact", [RoundEnded(1, 1), CloudRoundEnded(1)])
def test_rounds_are_counted_and_timed(scrape, watch, fact):
    metrics = Metrics(1, "hierfavg", clock=watch)
    watch.now += 2
    metrics.fact(fact)
    value = scrape(metrics)
    assert (value("rounds_total"), value("round_seconds_sum")) == (1, 2)


def test_a_server_that_cannot_save_is_marked_until_it_can(scrape):
    metrics = Metrics(1, "spyker")
    metrics.fact(SavingFailed(1))
    assert scrape(metrics)("cannot_save") == 1
    metrics.fact(SavingResumed(1))
    assert scrape(metrics)("cannot_save") == 0


def test_what_only_the_host_knows(scrape):
    metrics = Metrics(1, "spyker")
    metrics.rejected("replayed")
    metrics.rejected("replayed")
    metrics.rejected("not-finite")
    metrics.clients(12)
    metrics.saved(340, 0.02)
    metrics.lost(5)
    value = scrape(metrics)
    assert (value("rejections_total", reason="replayed"), value("rejections_total", reason="not-finite")) == (2, 1)
    assert (value("connected_clients"), value("saved_version"), value("lost_updates_total")) == (12, 340, 5)
    assert (value("checkpoint_seconds_count"), value("checkpoint_seconds_sum")) == (1, 0.02)


def test_the_score_is_that_of_the_last_evaluation(scrape):
    metrics = Metrics(1, "spyker")
    assert math.isnan(scrape(metrics)("score"))
    for score in (0.25, 0.75):
        metrics.fact(Evaluated(9, 100, score, score, score, score, [score]))
    assert scrape(metrics)("score") == 0.75


def test_two_servers_in_one_process_do_not_mix(scrape):
    first, second = Metrics(1, "spyker"), Metrics(1, "spyker")
    first.fact(update())
    assert scrape(second)("updates_total") == 0


def test_an_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"cannot listen on 127.0.0.1:{port}"):
            Metrics(1, "spyker").serve("127.0.0.1", port)


def test_clients_evaluations_have_a_series_per_metric_that_ends_with_them(scrape):
    metrics = Metrics(1, "spyker")
    accuracy = EvaluatedByClients("accuracy", True, 12, 90, 0.75, 0.7, 0.8, 0.25, 1, [])
    loss = EvaluatedByClients("loss", False, 3, 9, 2.0, 2.5, 2.25, 4.0, 1, [])
    metrics.evaluated_by_clients([accuracy, loss])
    metrics.evaluated_by_clients([accuracy])
    value = scrape(metrics)
    assert value("client_score_weighted_mean", metric="accuracy") == 0.75
    assert value("client_score_mean", metric="accuracy") == 0.7
    assert value("client_score_median", metric="accuracy") == 0.8
    assert value("client_score_worst_decile", metric="accuracy") == 0.25
    assert value("evaluating_clients", metric="accuracy") == 12
    with pytest.raises(KeyError):
        value("client_score_mean", metric="loss")
