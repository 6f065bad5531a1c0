"""The emulated world against hand calculation: when things happen, and in what order."""

from typing import Any

import pytest

from spyker.algorithms.spyker import Spyker
from spyker.config.scenario import load
from spyker.tasks.client_delays import delays


def times(facts: list[dict[str, Any]], kind: str, **fields: int) -> list[float]:
    return [
        round(f["t"], 9) for f in facts if f["kind"] == kind and all(f[name] == value for name, value in fields.items())
    ]


def test_a_cycle_takes_both_links_the_training_and_the_mix(emulate: Any, one_region: Any) -> None:
    # One parameter: a message is 4 + 64 = 68 bytes, which occupy a link of 0.1 Mbit/s for 544 / 100,000 s = 5.44 ms.
    # Down 5.44 + 10, training 100, up 5.44 + 10, mix 2: 132.88 ms per cycle.
    facts, _ = emulate(one_region(1, duration=0.4, world={"bandwidth-mbit": 0.1}))
    assert times(facts, "update") == [0.13288, 0.26576, 0.39864]


def test_a_server_serves_one_message_at_a_time_in_the_order_of_arrival(emulate: Any, one_region: Any) -> None:
    # Three answers arrive at 120 ms and are done with at 122, 124 and 126 ms. While the first takes effect, three are
    # queued (itself included).
    facts, summary = emulate(one_region(3, duration=0.13))
    updates = [f for f in facts if f["kind"] == "update"]
    assert [(round(f["t"], 9), f["client"], f["queue"]) for f in updates] == [
        (0.122, 0, 3),
        (0.124, 1, 2),
        (0.126, 2, 1),
    ]
    assert summary["longest_queue"] == 3


def test_nothing_happens_after_the_end_but_what_is_due_at_the_end_does(emulate: Any, one_region: Any) -> None:
    # Numbers that a float holds exactly: no latency, no cost, training for an eighth of a second.
    exact = {"latency-ms": [[0.0]], "mix-ms": 0.0, "bandwidth-mbit": 1e30}
    for duration, expected in ((0.125, [0.125]), (0.1249, [])):
        table = one_region(1, duration=duration, world=exact, training={"delay-ms": [125.0]})
        assert times(emulate(table)[0], "update") == expected


def test_the_model_after_two_updates_by_hand(emulate: Any, one_region: Any) -> None:
    # Both start from W = 0 with η = 0.5 towards 1, so both answer 0.5. The first is fresh: W = 0.6 · 0.5 = 0.3, A = 1.
    # The second is one update old: s = 2^-0.5 = 0.70711, W = 0.3 + 0.6 · 0.70711 · (0.5 - 0.3) = 0.38485, A = 2.
    facts, summary = emulate(one_region(2, duration=0.125))
    assert [f["staleness"] for f in facts if f["kind"] == "update"] == [0, 1]
    assert summary["servers"][0]["weights"] == pytest.approx([0.3848528], rel=1e-6)
    assert (summary["servers"][0]["age"], summary["servers"][0]["version"]) == (2, 2)


def test_an_update_says_what_the_training_said_besides_weights(
    emulate: Any, one_region: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[Any] = []
    handle = Spyker.handle

    def listen(self: Spyker, sender: int, message: Any) -> Any:
        handled.append((sender, message.examples, message.metrics))
        return handle(self, sender, message)

    monkeypatch.setattr(Spyker, "handle", listen)
    emulate(one_region(2, duration=0.25, task={"name": "remembering_task:make"}))
    assert handled == [(k, 10 + k, {"count": n}) for n in (1.0, 2.0) for k in (0, 1)]


def test_fedavg_waits_for_the_slowest_and_pays_once_a_round(emulate: Any, one_region: Any) -> None:
    # Down 10, the slower training 200, up 10, aggregation 15: 235 ms a round. Both answer 0.5, then 0.75.
    table = one_region(2, algorithm="fedavg", duration=0.48, training={"delay-ms": [100.0, 200.0]})
    facts, summary = emulate(table)
    assert times(facts, "round", server=0) == [0.235, 0.47]
    assert times(facts, "update", client=0) == [0.235, 0.47]
    assert summary["servers"][0]["weights"] == [0.75]


TWO_REGIONS = {
    "regions": ["a", "b"],
    "clients": [1, 1],
    "latency-ms": [[1.0, 30.0], [40.0, 2.0]],
    "bandwidth-mbit": 1e12,
}


def two_regions(**top: Any) -> dict[str, Any]:
    return {
        "algorithm": "spyker",
        "task": {"name": "quadratic", "optima": [[1.0], [2.0]]},
        "world": TWO_REGIONS | top.pop("world", {}),
        "training": {"rate": 0.5, "delay-ms": [100.0, 100.0]},
        **top,
    }


def test_hierfavg_edges_wait_for_the_cloud(emulate: Any) -> None:
    # Edge a: rounds of 1 + 100 + 1 + 15 = 117 ms, the second ends at 234; its model reaches the cloud, in the same
    # region, at 235. Edge b: 2 + 100 + 2 + 15 = 119, 238; its model is there at 278. The cloud is done at 293; edge a
    # hears of it at 294 and ends its third round at 411, edge b at 323 and 442.
    facts, summary = emulate(two_regions(algorithm="hierfavg", duration=0.45))
    assert times(facts, "round", server=0) == [0.117, 0.234, 0.411]
    assert times(facts, "round", server=1) == [0.119, 0.238, 0.442]
    assert times(facts, "cloud-round") == [0.293]
    assert summary["synchronisations"] == 1
    assert summary["messages"] == {"model": 8, "update": 6, "peer-model": 2, "edge-model": 2}


@pytest.mark.parametrize(("region", "first", "second"), [(0, 0.104, 0.172), (1, 0.172, 0.106)])
def test_a_single_server_stands_where_it_is_told(emulate: Any, region: int, first: float, second: float) -> None:
    # In region a: client 0 needs 1 + 100 + 1 + 2 = 104 ms, client 1, far away, 30 + 100 + 40 + 2 = 172.
    # In region b: client 0 needs 40 + 100 + 30 + 2 = 172, client 1 is near: 2 + 100 + 2 + 2 = 106.
    facts, _ = emulate(two_regions(algorithm="fedasync", duration=0.18, world={"server-region": region}))
    assert times(facts, "update", client=0) == [first]
    assert times(facts, "update", client=1) == [second]


def test_sync_spyker_stops_for_all_models_and_then_serves_what_it_stored(emulate: Any) -> None:
    # Server a applies client 0's first update at 104 ms and stops, since h_intra = 1. Its model is at b at 134
    # and counts at 136; b has applied client 1's update at 106 and stopped by itself, and b's model is at a at 146 and
    # counts at 148, when server a folds. Its client's next answer, to the reply of 104, arrives at 206: applied at 208.
    facts, summary = emulate(two_regions(algorithm="sync-spyker", duration=0.21, spyker={"h-intra": 1.0}))
    assert times(facts, "sync", server=0)[0] == 0.104
    assert times(facts, "sync", server=1)[0] == 0.106
    assert times(facts, "merge", server=0) == [0.148]
    assert times(facts, "merge", server=1) == [0.136]
    assert times(facts, "update", server=0) == [0.104, 0.208]
    assert summary["messages"]["peer-model"] >= 2


def test_an_update_that_was_stored_is_applied_right_after_the_fold(emulate: Any) -> None:
    # Training takes 10 ms, so client 0's second answer is at server a at 14 + 1 + 10 + 1 = 26 ms, in the middle of the
    # synchronisation: a stopped at 14, b's model (sent at 16) is here at 56 and counts at 58. The stored update is
    # served from 58 to 60 ms.
    table = two_regions(algorithm="sync-spyker", duration=0.061, spyker={"h-intra": 1.0})
    table["training"]["delay-ms"] = [10.0, 10.0]
    facts, _ = emulate(table)
    assert times(facts, "merge", server=0) == [0.058]
    assert times(facts, "update", server=0) == [0.014, 0.06]


def test_spyker_serves_its_clients_while_servers_exchange_models(emulate: Any) -> None:
    # The same world: in Spyker the exchange takes as long, but updates are applied every 14 ms all along.
    table = two_regions(algorithm="spyker", duration=0.06, spyker={"h-intra": 1.0})
    table["training"]["delay-ms"] = [10.0, 10.0]
    facts, _ = emulate(table)
    assert times(facts, "sync", server=0) == [0.014]
    assert times(facts, "update", server=0) == [0.014, 0.028, 0.042, 0.056]


def test_a_long_message_delays_the_one_behind_it_on_the_same_link(emulate: Any) -> None:
    # h_inter = 1 and client 0 only: server b never updates, so a synchronises at its first update, at 14 ms. Its model
    # (68 bytes over 0.1 Mbit/s: 5.44 ms) and everything after it share one link; the token follows the models.
    table = two_regions(algorithm="spyker", duration=0.3, spyker={"h-inter": 1.0}, world={"bandwidth-mbit": 0.1})
    table["training"]["delay-ms"] = [10.0, 10_000.0]
    facts, _ = emulate(table)
    # Down 5.44 + 1, training 10, up 5.44 + 1, mix 2.
    assert times(facts, "sync", server=0)[0] == 0.02488
    # a's model is at b at 24.88 + 5.44 + 30 = 60.32 and merged by 62.32, when b's own leaves; that is at a at
    # 62.32 + 5.44 + 40 = 107.76, merged by 109.76 at the earliest (a may be serving its client).
    assert times(facts, "merge", server=1)[0] == 0.06232
    assert times(facts, "merge", server=0)[0] >= 0.10976


def test_evaluation_happens_at_fixed_times_and_at_the_end(emulate: Any, one_region: Any) -> None:
    facts, _ = emulate(one_region(1, duration=0.35, evaluation={"interval": 0.1}))
    assert times(facts, "evaluation") == [0.0, 0.1, 0.2, 0.3, 0.35]
    assert [f["updates"] for f in facts if f["kind"] == "evaluation"] == [0, 0, 1, 2, 2]


def test_facts_are_in_the_order_of_time(emulate: Any) -> None:
    facts, _ = emulate({"task": {"name": "quadratic"}, "duration": 3.0, "evaluation": {"interval": 0.01}})
    assert [f["t"] for f in facts] == sorted(f["t"] for f in facts)


def test_every_byte_is_counted_once_by_link_class(emulate: Any, one_region: Any) -> None:
    # Two models down and one update up are on their way after 130 ms: 68 bytes each.
    _, summary = emulate(one_region(1, duration=0.13))
    assert summary["bytes"] == {"total": 204, "server-to-client": 136, "client-to-server": 68, "server-to-server": 0}
    assert summary["messages"] == {"model": 2, "update": 1}


def test_client_speeds_follow_from_the_seed_alone() -> None:
    one, two = load(None, {"algorithm": "spyker"}), load(None, {"algorithm": "fedavg", "duration": 5.0})
    assert delays(one) == delays(two)
    assert delays(one) != delays(load(None, {"seed": 2}))
    assert min(delays(load(None, {"training.delay-ms": {"mean": 10, "std": 5}}))) == 0.015  # the floor


def test_uniform_latency_gives_every_client_the_same_distance(emulate: Any) -> None:
    # The mean of 1, 30, 40 and 2 ms is 18.25: 18.25 + 100 + 18.25 + 2 = 138.5 ms for both.
    facts, _ = emulate(two_regions(duration=0.139, world={"uniform-latency": True}))
    assert times(facts, "update") == [0.1385, 0.1385]
