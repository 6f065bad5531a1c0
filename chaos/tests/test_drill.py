"""The checks of a drill on made-up records, which violate each guarantee once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.drill.checks import breaks, one_token, trainings_counted
from chaos.drill.drills import judge_losses
from chaos.drill.report import Loss, Report, document
from chaos.drill.server_records import ServerRecords, TimedFact
from spyker.protocol.facts import ClientReported, Fact, Merged, SyncStarted, TokenArrived, UpdateApplied
from spyker.records import Follower, ServerResumed


def records(**told: list[tuple[float, Fact]]) -> ServerRecords:
    """Return records with these facts; ``s0=[…]`` are those of server 0."""
    made = ServerRecords()
    for name, facts in told.items():
        record = made.begin(int(name[1]), Path("nowhere"))
        record.facts_read = [TimedFact(at, fact) for at, fact in facts]
        assert isinstance(record.follower, Follower)
    return made


def update(client: int, version: int, step: int) -> list[tuple[float, Fact]]:
    at = float(version)
    applied = UpdateApplied(0, client, 0.0, 1.0, at, version, 0.1)
    return [(at, applied), (at, ClientReported(0, client, version - 1, None, {"step": float(step)}))]


def merge(server: int, peer: int, bid: int) -> Merged:
    return Merged(server, peer, bid, 0.5, 1.0)


def test_a_merge_counts_only_if_its_synchronisation_began_after_the_fault_and_among_the_others() -> None:
    found = records(
        s0=[(1.0, SyncStarted(0, 1)), (6.0, SyncStarted(0, 2))],
        s1=[(5.5, merge(1, 0, 1)), (6.5, merge(1, 2, 2)), (7.0, merge(1, 0, 2))],
        s2=[],
    )
    assert found.synchronised([0, 1], 5.0) == 7.0
    assert found.synchronised([0, 1, 2], 5.0) == 6.5
    assert found.synchronised([0, 1], 6.1) is None


def test_news_that_came_by_a_third_server() -> None:
    """Server 2 merges a model of server 0 in synchronisation 1, so its model in synchronisation 2 contains that."""
    thirds: list[tuple[float, Fact]] = [(1.0, merge(2, 0, 1)), (2.0, merge(2, 1, 2)), (3.0, merge(2, 1, 3))]
    found = records(s0=[], s1=[(1.1, merge(1, 2, 1)), (2.1, merge(1, 2, 2)), (3.1, merge(1, 2, 3))], s2=thirds)
    assert found.carried(0, 1, [2], 0.0, 9.0) == 1
    assert found.carried(1, 0, [2], 0.0, 9.0) == 0


def test_two_servers_with_one_token() -> None:
    arrived, started = (1.0, TokenArrived(0, 7)), (2.0, SyncStarted(0, 7))
    for found, kept in ((records(s0=[arrived, started]), True), (records(s0=[arrived], s1=[started]), False)):
        report = Report()
        one_token(found, report)
        assert report.kept == kept


def test_versions_that_are_missing_or_come_twice() -> None:
    one, two, three = (update(0, v, v)[:1] for v in (1, 2, 3))
    restart: list[tuple[float, Fact]] = [(4.0, ServerResumed(0, 1, 1))]
    assert breaks(records(s0=one + two + three).of(0)) == []
    assert breaks(records(s0=one + two + restart + two).of(0)) == []
    assert breaks(records(s0=one + three).of(0))
    assert breaks(records(s0=one + one).of(0))


def counted(tmp_path: Path, found: ServerRecords, *arrivals: float) -> tuple[int, int, int]:
    lines = [json.dumps({"time": at, "event": "attending", "client": 0}) for at in arrivals]
    (tmp_path / "clients-0.log").write_text("\n".join(lines))
    deployed: Any = SimpleNamespace(
        records=found, folder=tmp_path, log=lambda name, event: [json.loads(line) for line in lines]
    )
    return trainings_counted(deployed)


def test_trainings_that_are_applied_twice_or_vanish(tmp_path: Path) -> None:
    assert counted(tmp_path, records(s0=update(0, 1, 0) + update(0, 2, 1)), 0.0) == (0, 0, 2)
    assert counted(tmp_path, records(s0=update(0, 1, 0) + update(0, 2, 0)), 1.5)[0] == 1
    assert counted(tmp_path, records(s0=update(0, 10, 0) + update(0, 20, 2)), 0.0) == (0, 1, 3)
    assert counted(tmp_path, records(s0=update(0, 10, 0) + update(0, 20, 2)), 15.0) == (0, 0, 3)  # given up, knowingly


def test_trainings_are_counted_where_updates_are_written_down_at_the_end_of_a_round() -> None:
    """The last client of a round reports after its update, all others before."""
    rounds: list[tuple[float, Fact]] = []
    for n in range(3):
        (_, early), (_, its) = update(0, 2 * n + 1, n)
        (_, late), (_, report) = update(1, 2 * n + 2, n + 5)
        rounds += [(n, its), (n, early), (n, late), (n, report)]
    held = records(s0=rounds).of(0).applied_updates()
    assert [(update.client, step) for _, update, step in held] == [(0, 0), (1, 5), (0, 1), (1, 6), (0, 2), (1, 7)]


@pytest.mark.parametrize("took", [12.0, 31.0, None])
def test_the_verdict_and_the_page(tmp_path: Path, took: float | None) -> None:
    report = Report()
    report.losses.append(Loss(1, 2, True, took, 9.0, 21.0, 5.0, 90.0, 100.0, 20.0, 3, 3))
    judge_losses(report)
    assert report.kept == (took == 12.0)
    page = tmp_path / "page.md"
    document(page, "Spyker", Report(), "Long ago, on", "spyker.png")
    for _ in range(2):  # its own section is replaced, and the other's is kept
        document(page, "Stride", report, "A word, on", "stride.png")
    text = page.read_text()
    assert text.count("## With Spyker\n\nEvery promise was kept. Long ago, on Linux") == text.count("Long ago") == 1
    assert text.count("## With Stride\n") == 1
    text = text.partition("## With Stride")[2]
    assert ("Every promise was kept." in text) == report.kept
    assert "| 1 | 2 | yes |" in text
