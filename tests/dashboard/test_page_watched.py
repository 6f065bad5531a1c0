"""A run as the page watches it: the state at any time, what is under way, and what it costs to know."""

import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from recording import judged, started
from ring import LATENCY, round_of_the_token, start, update, write_crowd, write_ring

from spyker.dashboard.watched_run import EVENTS, WatchedRun
from spyker.protocol.facts import TokenArrived, UpdateApplied
from spyker.records import (
    FACTS,
    Evaluated,
    EvaluatedByClients,
    RecordWriter,
    RegionScore,
    ServerResumed,
    UnknownFact,
    first_fact,
    line,
    read,
)


def watched(*folders: Path, read_all: bool = True) -> WatchedRun:
    starts = [first_fact(folder) for folder in folders]
    run = WatchedRun(folders, [each for each in starts if each is not None])
    while read_all and run.advance():
        pass
    return run


def counted(folder: Path, t: float) -> dict[str, Any]:
    """What the facts up to a time say, the simple way."""
    said = [stated for stated in read(folder) if stated.t <= t]
    updates = [stated.fact for stated in said if isinstance(stated.fact, UpdateApplied)]
    tokens = [stated.fact.server for stated in said if isinstance(stated.fact, TokenArrived)]
    scores = [stated.fact.mean for stated in said if isinstance(stated.fact, Evaluated)]
    return {"updates": len(updates), "token": tokens[-1] if tokens else 0, "mean": scores[-1] if scores else None}


@pytest.mark.parametrize("t", [0.05, 0.95, 1.0, 1.999, 2.0, 3.55, 9.0])
def test_the_state_at_a_time_is_what_the_facts_say(tmp_path: Path, t: float) -> None:
    folder = write_ring(tmp_path / "run")
    found = watched(folder).at(t)
    assert {key: found[key] for key in ("updates", "token")} == {
        key: value for key, value in counted(folder, t).items() if key != "mean"
    }
    assert found["mean"] == pytest.approx(counted(folder, t)["mean"], abs=1e-6)
    assert sum(found["staleness"]) == found["updates"]
    counts = found["counts"]
    assert [sum(region) for region in counts["regions"]] == [4, 4, 4], "clients, by their updates"
    assert counts["step"] == 1
    assert (
        sum((counts["low"] + i) * n for region in counts["regions"] for i, n in enumerate(region)) == found["updates"]
    )


def test_keyframes_change_nothing_but_the_effort(tmp_path: Path) -> None:
    folder = write_crowd(tmp_path / "run", 6000, clients=30)
    run = watched(folder)
    assert len(run._keyframes) > 5
    for t in (0.3, 2.0, 4.321, 5.9):
        assert run.at(t)["updates"] == counted(folder, t)["updates"]


def test_the_events_of_a_window_lead_from_its_state_to_the_next(tmp_path: Path) -> None:
    run = watched(write_ring(tmp_path / "run"))
    window = run.window(0.5, 2.5)
    servers = [list(server) for server in window["state"]["servers"]]
    token = window["state"]["token"]
    for event in window["events"]:
        if "now" in event:
            servers[event["server"]] = event["now"]
        token = event.get("token", token)
        if "scores" in event:
            for server, score in zip(servers, event["scores"][3:], strict=True):
                server[5] = score
    there = run.at(2.5)
    assert (servers, token) == (there["servers"], there["token"])
    assert window["events"][-1]["sums"][0] == there["updates"]


def test_the_token_travels_one_latency_before_it_arrives(tmp_path: Path) -> None:
    run = watched(write_ring(tmp_path / "run"))
    assert run.at(0.5)["token"] == 0, "its first holder is the one who started the first exchange"
    flights = [flight for flight in run.window(0.9, 2.1)["flights"] if flight[0] == "token"]
    assert flights == [
        ["token", "s0", "s1", pytest.approx(1.0 - LATENCY), 1.0],
        ["token", "s1", "s2", pytest.approx(2.0 - LATENCY), 2.0],
    ]
    early = run.window(0.8, 0.95)["flights"]
    assert any(flight[0] == "token" for flight in early), "it is under way before the fact that it arrived"


def test_models_travel_from_the_exchange_to_the_merge_and_ages_from_their_announcement(tmp_path: Path) -> None:
    flights = watched(write_ring(tmp_path / "run")).window(0.4, 0.8)["flights"]
    models = [flight for flight in flights if flight[0] == "model"]
    assert models == [["model", "s0", f"s{i}", 0.5, pytest.approx(0.6)] for i in (1, 2)]
    ages = [flight for flight in flights if flight[0] == "age"]
    assert [(flight[1], flight[2], flight[3]) for flight in ages] == [("s1", "s0", 0.7), ("s1", "s2", 0.7)]


def test_a_window_has_a_bounded_number_of_events_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    run = watched(write_crowd(tmp_path / "run", 9000, clients=30))
    window = run.window(0.0, 8.9)
    assert len(window["events"]) <= 2 * EVENTS
    assert window["every"] > 1
    assert sum(event["kind"] == "token" for event in window["events"]) == 10, "only updates are left out"
    assert run.window(1.0, None, 100)["every"] == 1, "without an end, all, but not many"


def test_looking_back_finds_the_last_events(tmp_path: Path) -> None:
    run = watched(write_ring(tmp_path / "run"))
    window = run.before(2.0, 5)
    times = [event["t"] for event in window["events"] if event["t"] < 2.0]
    assert len(times) >= 5
    assert times[-1] == 1.9


def test_what_is_kept_does_not_grow_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fewer in (
        ("watched_run.KEYFRAMES", 8),
        ("series.BINS", 64),
        ("watched_run.POINTS", 8),
        ("watched_run.MARKS", 4),
    ):
        monkeypatch.setattr(f"spyker.dashboard.{name}", fewer)
    sizes = []
    for each in write_crowd(tmp_path / "short", 6_000, 90), write_crowd(tmp_path / "long", 24_000, 90):
        tracemalloc.start()
        run = watched(each)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert len(run._keyframes) <= 8
        shown = run.timeline()
        assert (len(shown["t"]) <= 128, len(shown["scores"]) <= 18, len(shown["marks"]) <= 10) == (True, True, True)
    assert sizes[1] < 1.5 * sizes[0], "four times the facts"


@pytest.mark.slow  # compares times
def test_a_hundred_thousand_facts_are_read_in_a_few_times_what_parsing_takes(tmp_path: Path) -> None:
    folder = write_crowd(tmp_path / "run", 100_000)

    def cpu(work: Any) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    found: list[WatchedRun] = []
    parsing = cpu(lambda: sum(1 for _ in read(folder)))
    reading = cpu(lambda: found.append(watched(folder)))
    assert reading < 5 * parsing
    [run] = found
    assert cpu(lambda: run.window(50.0, 51.0)) < parsing, "a look at it reads a small part of it"


def test_a_run_that_goes_on_is_read_on(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n', at_once=True)
    writer.write(0.0, start())
    run = watched(tmp_path / "run")
    facts = round_of_the_token()
    for t, fact in facts[:10]:
        writer.write(t, fact)
    assert run.advance()
    assert not run.finished
    assert run.window(0.0, 9.0)["to"] < 1.0, "nobody knows yet what comes then"
    half = run.at(10.0)["updates"]
    for t, fact in facts[10:]:
        writer.write(t, fact)
    assert run.advance()
    assert run.at(10.0)["updates"] > half
    writer.close({})
    run.advance()
    assert run.finished


def test_a_record_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    run = watched(write_ring(tmp_path / "run"))
    assert not run.replaced()
    (tmp_path / "run" / FACTS).unlink()
    assert run.replaced()
    write_ring(tmp_path / "other")
    (tmp_path / "other" / FACTS).rename(tmp_path / "run" / FACTS)
    assert run.replaced()


def test_kinds_of_facts_that_nobody_knows_are_told(tmp_path: Path) -> None:
    folder = write_ring(tmp_path / "run", finished=False)
    with (folder / FACTS).open("a") as file:
        file.write(line(4.1, UnknownFact("client-quarantined", {"server": 1, "client": 5})))
        file.write(line(4.2, UnknownFact("peer-suspected", {"server": 0, "peer": 2})))
        file.write(line(4.3, UnknownFact("weather", {"region": "here", "rain": True})))
        file.write(line(4.4, ServerResumed(1, 3, 2)))
        file.write(line(4.5, UnknownFact("peer-trusted", {"peer": 2})))
    run = watched(folder)
    concerns = {concern["who"]: concern["what"] for concern in run.at(4.45)["concerns"]}
    assert concerns == {
        "client 5": "quarantined",
        "peer 2": "suspected",
        "server 1": "resumed from a checkpoint",
    }
    assert "peer 2" not in {concern["who"] for concern in run.present()["concerns"]}, "it is trusted again"
    texts = [event["text"] for event in run.window(4.05)["events"]]
    assert "weather: region here, rain True" in texts


def test_the_records_of_a_deployments_servers_are_one_run_on_one_clock(tmp_path: Path) -> None:
    folders = []
    for i in (1, 0):
        folder = tmp_path / f"server-{i}" / "record"
        writer = RecordWriter(folder, 'algorithm = "spyker"\n', at_once=True)
        writer.write(0.0, started(server=i, began=1000.0 + 5 * i))
        for k in range(4):
            writer.write(1.0 + k, update(i, 2 * i + k % 2, k + 1.0))
        writer.write(2.5, judged(2, 0.25 + 0.5 * i))  # when its score was there, later than the moment it is of
        writer.close({})
        folders.append(folder)
    run = watched(*folders)
    assert run.finished
    events = run.window(-1.0)["events"]
    times = [event["t"] for event in events if event["kind"] == "update"]
    assert times == sorted(times) == [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0]
    assert [round(point[0], 6) for point in run.timeline()["scores"]] == [2.5, 7.5]
    assert run.present()["mean"] == pytest.approx(0.5), "the mean of what the servers last said"


def test_scores_of_servers_that_judge_themselves_follow_each_other_in_time(tmp_path: Path) -> None:
    """A score is told when it is there: late, and in any order."""
    folders = []
    for server, began in ((0, 1000.0), (1, 1000.1)):
        writer = RecordWriter(tmp_path / str(server), 'algorithm = "spyker"\n', at_once=True)
        writer.write(0.0, started(server, began))
        for n in range(4):
            writer.write(n + 0.05, update(server, 0, float(n + 1)), 1)
            writer.write(n + (0.4 if server == 0 else 0.2), update(server, 1, float(n + 1)), 1)  # while it is judged
            writer.write(float(n), judged(n, 0.1 * (n + server)))
        writer.close({"finished": True})
        folders.append(tmp_path / str(server))
    scores = watched(*folders).timeline()["scores"]
    assert [point[0] for point in scores] == pytest.approx([0.1, 1.1, 2.1, 3.1])
    assert [point[3:] for point in scores] == [pytest.approx([0.1 * n, 0.1 * (n + 1)]) for n in range(4)]


def by_clients(clients: int, value: float, region: str = "here") -> EvaluatedByClients:
    where = [RegionScore(region, clients, value)]
    return EvaluatedByClients("accuracy", True, clients, 10 * clients, value, value, value, value / 2, 1, where)


def test_clients_evaluations_are_shown_at_any_time(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n', at_once=True)
    writer.write(0.0, started())
    for t in (1.0, 2.0, 3.0):
        writer.write(t, by_clients(4, t / 10))
        writer.write(t, EvaluatedByClients("loss", False, 4, 40, 9.0, 9.0, 9.0, 9.0, 1, []))
    writer.close({})
    run = watched(tmp_path / "run")
    assert run.timeline()["clientScores"] == [[t, t / 10, t / 20] for t in (1.0, 2.0, 3.0)]
    assert run.at(0.5)["byClients"] is None
    shown = run.at(2.5)["byClients"]
    assert (shown["weightedMean"], shown["worstDecile"], shown["clients"]) == (0.2, 0.1, 4)
    assert shown["regions"] == [["here", 4, 0.2]]
    events = [event for event in run.window(1.5, 2.5)["events"] if "byClients" in event]
    assert events[0]["byClients"] == shown
    assert events[0]["text"] == "4 clients evaluated accuracy: weighted mean 0.2000, worst tenth 0.1000"


def test_clients_of_several_servers_are_one_federation(tmp_path: Path) -> None:
    folders = []
    for server, clients, region in ((0, 3, "here"), (1, 1, "there")):
        writer = RecordWriter(tmp_path / str(server), 'algorithm = "spyker"\n', at_once=True)
        writer.write(0.0, started(server, 1000.0))
        writer.write(1.0 + 0.1 * server, by_clients(clients, 0.4 + 0.4 * server, region))
        writer.close({"finished": True})
        folders.append(tmp_path / str(server))
    run = watched(*folders)
    shown = run.present()["byClients"]
    assert (shown["clients"], shown["weightedMean"]) == (4, 0.5)
    assert [region[:2] for region in shown["regions"]] == [["here", 3], ["there", 1]]
    assert [point[:2] for point in run.timeline()["clientScores"]] == [[1.1, 0.5]]
