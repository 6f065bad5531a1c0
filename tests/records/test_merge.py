"""One record of many."""

import json
import math
import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recording import applied, judged, started, write

from spyker.cli.main import main
from spyker.plots.curves import curve
from spyker.protocol.facts import ClientEvaluated, ClientReported, CloudRoundEnded, Fact, UpdateApplied
from spyker.records import (
    FACTS,
    SUMMARY,
    Evaluated,
    EvaluatedByClients,
    MetricEvaluated,
    RecordError,
    RunRecord,
    RunStarted,
    ServerPlace,
    ServerResumed,
    UnknownFact,
    line,
    measured,
)
from spyker.records.client_scores import ClientScores
from spyker.records.merge import Merger, merge

CLOUD = {"servers": [ServerPlace(0, "here", 2), ServerPlace(1, "there", 2), ServerPlace(2, "here", None)]}


def totals(updates: int, **changes: Any) -> dict[str, Any]:
    """What a server's summary has."""
    return {
        "finished": True,
        "time": 10.0,
        "parameters": 3,
        "updates_per_client": [updates, 0, 0, 0],
        "synchronisations": 2,
        "longest_queue": 1,
        "bytes": {"total": 60, "server-to-client": 10, "client-to-server": 20, "server-to-server": 30},
        "messages": {"model": 1},
        "servers": [{"updates": updates}],
    } | changes


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "merge.json"}


def test_records_are_aligned_by_the_time_at_which_they_began(tmp_path: Path) -> None:
    first = [(0.0, judged(0, 0.0)), (1.0, applied(0, 1)), (2.0, judged(1, 0.5))]
    second = [(0.0, judged(0, 0.0)), (1.0, applied(1, 1)), (1.5, judged(1, 0.7))]
    one = write(tmp_path / "0", started(0, 1000.0), first)
    two = write(tmp_path / "1", started(1, 1000.5), second)
    merge([two, one], tmp_path / "all")
    run = RunRecord(tmp_path / "all")
    assert run.start == started(None, 1000.0)
    assert run.summary is None
    assert [(t, update.server, queue) for t, update, queue in run.updates()] == [(1.0, 0, 1), (1.5, 1, 1)]
    t, last, _ = list(run.facts(Evaluated))[-1]
    assert (t, last.updates, last.bytes) == (2.0, 2, 200)
    assert (last.worst, last.best) == (0.5, 0.7)
    assert last.mean == pytest.approx(0.6)
    assert curve(run).time == [0.5, 1.0, 2.0]


def test_regular_times_come_once(tmp_path: Path) -> None:
    facts = [(round(0.1 * n, 9), judged(n, 0.5)) for n in range(3, 12)]
    merge([write(tmp_path / "0", started(0, 1000.0, interval=0.1), facts)], tmp_path / "all")
    assert curve(RunRecord(tmp_path / "all")).time == [t for t, _ in facts]


def test_what_a_restart_made_void_is_kept_and_does_not_count(tmp_path: Path) -> None:
    facts: list[tuple[float, Fact]] = [
        (0.0, judged(0, 0.0)),
        (1.0, applied(0, 1)),
        (2.0, applied(0, 2)),
        (3.0, applied(0, 3)),
        (3.5, judged(3, 0.4)),
        (4.0, ServerResumed(0, 1, 2)),
        (5.0, applied(0, 2)),
        (6.0, judged(2, 0.5)),
    ]
    merge([write(tmp_path / "0", started(0, 1000.0), facts)], tmp_path / "all")
    run = RunRecord(tmp_path / "all")
    assert [(t, update.version) for t, update, _ in run.updates()] == [(1.0, 1), (5.0, 2)]
    assert sum(1 for _ in run.facts(UpdateApplied)) == 4
    assert [restart.lost_updates for _, restart, _ in run.facts(ServerResumed)] == [2]
    assert [point.updates for _, point, _ in run.facts(Evaluated)] == [0, 1, 2, 3, 1, 2, 2], "as many as held then"


def test_the_summary_is_made_of_the_servers_own(tmp_path: Path) -> None:
    facts = [(0.0, judged(0, 0.25)), (1.0, applied(0, 1)), (2.0, judged(1, 0.75))]
    one = write(tmp_path / "0", started(0, 1000.0, **CLOUD), facts, totals(1))
    two = write(tmp_path / "1", started(1, 1000.5, **CLOUD), [(0.0, judged(0, 0.25))], totals(0, finished=False))
    three = write(tmp_path / "2", started(2, 1000.0, **CLOUD), [(1.0, CloudRoundEnded(1))], totals(0))
    merge([one, two, three], tmp_path / "all")
    summary = RunRecord(tmp_path / "all").summary
    assert summary is not None
    assert (summary["finished"], summary["time"], summary["updates"]) == (False, 10.5, 1)
    assert (summary["updates_per_server"], summary["updates_per_client"]) == ([1, 0], [1, 0, 0, 0])
    assert (summary["bytes"]["total"], summary["bytes"]["client-to-server"]) == (180, 60)
    assert (summary["time_to_target"], summary["final"]["mean"]) == ({"0.5": 2.0}, 0.5)
    assert (summary["began"], summary["messages"], len(summary["servers"])) == (1000.0, {"model": 3}, 2)


class Server:
    """A server that writes down what happens to it at random, evaluations late, over some lives."""

    def __init__(self, folder: Path, start: RunStarted, seed: int) -> None:
        self.folder, self.id, self.random = folder, start.server or 0, random.Random(seed)
        self.cloud = start.servers[self.id].clients is None
        self.t, self.version, self.saved, self.pending = 0.0, 0, 0, None
        write(folder, start, [] if self.cloud else [(0.0, judged(0, 0.0))])

    def live(self, steps: int) -> None:
        """Go on for a while. What is written may end in the middle of a line, until the next time."""
        with (self.folder / FACTS).open("r+b") as file:
            whole = file.read().rpartition(b"\n")[0]
            file.truncate(len(whole) + 1)
            file.seek(0, os.SEEK_END)
            for _ in range(steps):
                self.t += self.random.choice((0.0, 0.07, 0.31))
                file.write(self.happen().encode())
            file.write(b'{"t": 1.5, "kin' if self.random.random() < 0.5 else b"")

    def happen(self) -> str:
        chance = self.random.random()
        if self.cloud:
            return line(self.t, CloudRoundEnded(1))
        if self.pending is not None and chance < 0.5:
            (t, version), self.pending = self.pending, None
            return line(t, judged(version, math.nan if chance < 0.1 else chance))
        if self.pending is None and chance < 0.2:
            self.pending = self.t, self.version
        if chance > 0.93:
            self.version, lost = self.saved, self.version - self.saved
            self.pending = None
            return line(self.t, ServerResumed(self.id, self.version, lost))
        if chance > 0.85:
            self.saved = self.version
        if chance > 0.8:
            return line(self.t, UnknownFact("of a plugin", {"x": [1, "é"]}))
        self.version += 1
        return line(self.t, applied(self.id, self.version), 2)

    def end(self) -> None:
        (self.folder / SUMMARY).write_text(json.dumps(totals(self.version)))

    def go_on(self) -> None:
        (self.folder / SUMMARY).unlink()


@pytest.mark.parametrize("seed", range(6))
def test_merging_time_and_again_leaves_what_one_merge_leaves(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    starts = [started(i, 1000.0 + chance.random(), **CLOUD) for i in range(3)]
    servers = [Server(tmp_path / str(start.server), start, seed * 10 + i) for i, start in enumerate(starts)]
    folders = [server.folder for server in servers]
    for turn in range(8):
        for server in servers:
            server.live(chance.randrange(60))
        if turn == 7:
            for server in servers:
                server.end()
        merge(folders, tmp_path / "all")
        merge(folders, tmp_path / f"once-{turn}")
        assert content(tmp_path / "all") == content(tmp_path / f"once-{turn}")
        if turn == 4 and seed % 2:
            servers[0].end()
            merge(folders, tmp_path / "all")
            servers[0].go_on()
    times = [recorded.t for recorded in RunRecord(tmp_path / "all").facts()]
    assert times == sorted(times)
    merge(folders, tmp_path / "all")
    assert content(tmp_path / "all") == content(tmp_path / "once-7"), "there was nothing new"


class Killed:
    """A merge that gets as far as its sixth evaluation."""

    def __init__(self) -> None:
        self.judge, self.left = Merger.write_evaluation, 5

    def __get__(self, merger: Merger, kind: type[Merger]) -> Callable[[], None]:
        def judge() -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            self.judge(merger)

        return judge


def test_a_merge_that_was_killed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [Server(tmp_path / str(i), started(i, 1000.0), i) for i in range(2)]
    folders = [server.folder for server in servers]
    for turn in range(4):
        for server in servers:
            server.live(100)
        if turn == 2:  # so that all begins anew
            servers[1].end()
            merge(folders, tmp_path / "all")
            servers[1].go_on()
            servers[1].live(1)
        with monkeypatch.context() as patch:
            patch.setattr(Merger, "write_evaluation", Killed())
            with pytest.raises(KeyboardInterrupt):
                merge(folders, tmp_path / "all")
        if turn % 2:
            merge(folders, tmp_path / "all")
            merge(folders, tmp_path / f"once-{turn}")
            assert content(tmp_path / "all") == content(tmp_path / f"once-{turn}")


def test_what_was_merged_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [Server(tmp_path / str(i), started(i, 1000.0), i) for i in range(2)]
    folders = [server.folder for server in servers]
    for server in servers:
        server.live(20_000)
    taken = 0
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        nonlocal taken
        data = pread(file, size, offset)
        taken += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    merge(folders, tmp_path / "all")
    assert taken > sum((folder / FACTS).stat().st_size for folder in folders)
    for server in servers:
        server.live(10)
    taken = 0
    merge(folders, tmp_path / "all")
    assert taken < 500_000, "of some five million bytes"


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    peaks = []
    for steps in (1_000, 10_000):
        servers = [Server(tmp_path / f"{i}-{steps}", started(i, 1000.0), i) for i in range(2)]
        for server in servers:
            server.live(steps)
        tracemalloc.start()
        try:
            merge([server.folder for server in servers], tmp_path / f"all-{steps}")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 250_000


def test_records_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    mine = write(tmp_path / "0", started(0, 1000.0), [(0.0, judged(0, 0.0))])
    emulated = write(tmp_path / "emulated", started(), [])
    other = write(tmp_path / "other", started(1, 1000.0, seed=2), [])
    empty = write(tmp_path / "empty", None, [])
    for folders, problem in (
        ([mine, emulated], "emulated is not the record of one deployed server"),
        ([mine, mine], "both of server 0"),
        ([mine, other], "different deployments"),
        ([mine, empty], "empty has no facts yet"),
    ):
        with pytest.raises(RecordError, match=problem):
            merge(folders, tmp_path / "all")
    assert not (tmp_path / "all").exists(), "bad input changes nothing"
    with pytest.raises(RecordError, match="exists already"):
        merge([mine], emulated)
    merge([mine], tmp_path / "all")
    second = write(tmp_path / "1", started(1, 1001.0), [(0.0, judged(0, 0.0))])
    merge([mine, second], tmp_path / "all")  # it began later
    merge([mine, second], tmp_path / "once")
    assert content(tmp_path / "all") == content(tmp_path / "once")
    with pytest.raises(RecordError, match="other servers"):
        merge([second], tmp_path / "all")


def test_a_server_that_was_added_is_one_of_the_merged_record(tmp_path: Path) -> None:
    """It knows of one more than those who began, and is not waited for before it came."""
    mine = write(tmp_path / "0", started(0, 1000.0), [(float(t), judged(t, 0.1 * t)) for t in range(8)])
    places = [*started().servers, ServerPlace(2, "far away", 0)]
    facts = [(0.0, judged(0, 0.9)), (0.5, applied(2, 1)), (1.0, judged(1, 0.9))]
    added = write(tmp_path / "2", started(2, 1005.0, servers=places), facts)
    merge([mine, added], tmp_path / "all")
    run = RunRecord(tmp_path / "all")
    assert [place.region for place in run.start.servers] == ["here", "there", "far away"]
    assert [(t, update.server) for t, update, _ in run.updates()] == [(5.5, 2)]
    scores = {t: fact.mean for t, fact, _ in run.facts(Evaluated)}
    assert min(scores) == 0.0, "there are scores from before it came"
    assert scores[4.0] == pytest.approx(0.4)
    assert scores[7.0] == pytest.approx((0.7 + 0.9) / 2)


def test_the_command_merges_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "0", started(0, 1000.0), [(0.0, judged(0, 0.0))])
    assert main(["merge", str(folder), "--out", str(tmp_path / "all")]) == 0
    assert f"spyker plot {tmp_path / 'all'}" in capsys.readouterr().out
    assert main(["merge", str(tmp_path / "nowhere"), "--out", str(tmp_path / "all")]) == 2


def test_what_else_was_measured_and_reported_is_merged_however_often(tmp_path: Path) -> None:
    def other(score: float) -> MetricEvaluated:
        return measured("loss", [score], None, higher_is_better=False)

    facts: list[list[tuple[float, Fact]]] = [
        [
            (0.0, judged(0, 0.1)),
            (0.0, other(5.0 + server)),
            (0.5, applied(server, 1, client=server)),
            (0.5, ClientReported(server, server, 1, None, {"training loss": 1.0 + server})),
            (1.2, applied(server, 2, client=server)),
            (1.0, judged(1, 0.5)),  # which took its time
            (1.0, other(2.0 + server)),
        ]
        for server in (0, 1)
    ]
    folders = [tmp_path / "0", tmp_path / "1"]
    for server, folder in enumerate(folders):
        write(folder, started(server, 1000.0), facts[server][:4])
    merge(folders, tmp_path / "often")
    for server, folder in enumerate(folders):
        shutil.rmtree(folder)
        write(folder, started(server, 1000.0), facts[server], totals(2))
        merge(folders, tmp_path / "often")
    merge(folders, tmp_path / "once")
    assert content(tmp_path / "often") == content(tmp_path / "once")
    run = RunRecord(tmp_path / "once")
    assert [(t, fact.mean, fact.worst, fact.best) for t, fact, _ in run.facts(MetricEvaluated)] == [
        (0.0, 5.5, 6.0, 5.0),
        (1.0, 2.5, 3.0, 2.0),
    ]
    assert run.summary is not None
    assert run.summary["metrics"]["loss"]["mean"] == 2.5
    assert run.summary["reported"] == {"training loss": {"mean": 1.5, "least": 1.0, "most": 2.0, "clients": 2}}


def evaluating(server: int, *values: tuple[float, int, int, float]) -> list[tuple[float, Fact]]:
    """A server's own record of clients that evaluate: time, client, examples, accuracy."""
    facts: list[tuple[float, Fact]] = []
    table = ClientScores(started(), [2, 2])
    for t, client, examples, value in values:
        told = ClientEvaluated(server, client, examples, {"accuracy": value})
        table.fact(t, told)
        facts += [(t, told), (t + 0.1, judged(1, value)), *((t + 0.1, each) for each in table.aggregate(t))]
    return facts


def test_the_clients_of_all_servers_are_aggregated_however_often(tmp_path: Path) -> None:
    here = evaluating(0, (1.0, 0, 10, 0.5), (2.0, 1, 30, 0.9), (3.0, 0, 10, 0.7))
    there = evaluating(1, (1.0, 2, 20, 0.2), (2.0, 3, 20, 0.4))
    for i, facts in enumerate((here, there)):
        write(tmp_path / "parts" / str(i), started(i, 1000.0), facts[: len(facts) // 2])
    parts = [tmp_path / "parts" / "0", tmp_path / "parts" / "1"]
    merge(parts, tmp_path / "often")
    for i, facts in enumerate((here, there)):
        shutil.rmtree(parts[i])
        write(parts[i], started(i, 1000.0), facts, totals(1))
    merge(parts, tmp_path / "often")
    merge(parts, tmp_path / "once")
    assert content(tmp_path / "often") == content(tmp_path / "once")
    run = RunRecord(tmp_path / "once")
    t, last, _ = list(run.facts(EvaluatedByClients))[-1]
    assert t == pytest.approx(3.1)
    assert (last.clients, last.examples) == (4, 80)
    assert last.weighted_mean == pytest.approx((7 + 27 + 4 + 8) / 80)
    assert last.worst_decile == 0.2, "of all clients, not of one server's"
    assert [(each.region, each.clients) for each in last.regions] == [("here", 2), ("there", 2)]
    assert run.summary is not None
    assert run.summary["evaluation_by_clients"]["accuracy"]["clients"] == 4
