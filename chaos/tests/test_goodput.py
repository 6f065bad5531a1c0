"""The schedule of faults, what counts of updates, and a short campaign with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.drill.server_records import ServerRecords, TimedFact
from chaos.goodput import digits, federation
from chaos.goodput.figures import Figures, absent, counted, floor_seconds, longest_gap, mean_scores, reached
from chaos.goodput.report import markdown, read, rows, save
from chaos.goodput.schedule import CLIENT, EARLIEST, LATEST, MINUTE, SERVER, Fault, schedule
from spyker.protocol.facts import Fact, Merged, SyncStarted, UpdateApplied
from spyker.records import Evaluated, RunStarted


def life(records: ServerRecords, server: int, *told: tuple[float, Fact], destroyed: float | None = None) -> None:
    made = records.begin(server, Path("nowhere"))
    made.facts_read = [TimedFact(at, fact) for at, fact in told]
    made.destroyed = destroyed


def update(at: float, client: int = 0) -> tuple[float, Fact]:
    return at, UpdateApplied(0, client, 0.0, 1.0, at, int(at), 0.1)


def evaluation(at: float, score: float) -> tuple[float, Fact]:
    return at, Evaluated(0, 0, score, score, score, score, [score])


def test_a_seed_determines_the_faults() -> None:
    assert schedule(7, 5, 4, 12) == schedule(7, 5, 4, 12)
    assert schedule(7, 5, 4, 12) != schedule(8, 5, 4, 12)


@pytest.mark.parametrize(("clients", "kills"), [(12, 12), (20, 20), (5, 5), (8, 8)])
def test_one_server_a_minute_and_a_tenth_of_the_clients(clients: int, kills: int) -> None:
    faults = schedule(3, 10, 4, clients)
    servers = [fault for fault in faults if fault.what == SERVER]
    assert [int(fault.at // MINUTE) for fault in servers] == list(range(10))
    assert all(EARLIEST <= fault.at % MINUTE <= LATEST and 0 <= fault.number < 4 for fault in servers)
    killed = [fault for fault in faults if fault.what == CLIENT]
    assert len(killed) == kills
    assert {fault.number for fault in killed} <= set(range(clients))
    assert faults == sorted(faults)


def test_without_servers_none_is_destroyed() -> None:
    assert {fault.what for fault in schedule(3, 10, 0, 10)} == {CLIENT}


def test_updates_of_a_destroyed_server_count_until_its_last_exchange() -> None:
    records = ServerRecords()
    life(records, 0, update(1), update(2), (3.0, SyncStarted(0, 1)), update(4), destroyed=5.0)
    life(records, 1, (3.5, Merged(1, 0, 1, 0.5, 1.0)), update(6))
    assert counted(records, 0.0, 10.0) == (3, 1)
    assert counted(records, 1.5, 5.0) == (1, 1)


def test_an_exchange_with_a_server_that_is_lost_later_counts_only_if_that_one_was_merged_after_it() -> None:
    def lost(later: bool) -> tuple[int, int]:
        records = ServerRecords()
        life(records, 0, update(1), (2.0, SyncStarted(0, 1)), destroyed=3.0)
        life(records, 1, (2.5, Merged(1, 0, 1, 0.5, 1.0)), (6.0, SyncStarted(1, 2)), destroyed=7.0)
        merges = [(6.5, Merged(2, 1, 2, 0.5, 1.0))] if later else []
        life(records, 2, *merges)
        return counted(records, 0.0, 10.0)

    assert lost(later=True) == (1, 0)
    assert lost(later=False) == (0, 1)


def test_a_merge_of_the_replacement_saves_nothing_of_the_server_before() -> None:
    records = ServerRecords()
    life(records, 0, update(1), destroyed=2.0)
    life(records, 0, update(4), (5.0, SyncStarted(0, 1)))
    life(records, 1, (5.5, Merged(1, 0, 1, 0.5, 1.0)))
    assert counted(records, 0.0, 10.0) == (1, 1)


def test_gaps_include_the_beginning_and_the_end() -> None:
    assert longest_gap([1.0, 2.0, 9.0], 0.0, 10.0) == 7.0
    assert longest_gap([2.0], 0.0, 10.0) == 8.0
    assert longest_gap([], 3.0, 10.0) == 7.0


def test_a_destroyed_server_has_no_part_in_the_mean_score() -> None:
    records = ServerRecords()
    life(records, 0, evaluation(1.0, 0.75), destroyed=2.0)
    life(records, 1, evaluation(1.5, 0.25), evaluation(3.0, 0.625))
    assert mean_scores(records) == [(1.0, 0.75), (1.5, 0.5), (2.0, 0.25), (3.0, 0.625)]
    assert reached(mean_scores(records), 0.5, 1.25) == 0.25
    assert reached(mean_scores(records), 0.9, 0.0) is None


def test_the_time_without_a_client_is_that_until_it_is_connected_again() -> None:
    assert absent([(10.0, 0), (10.0, 1)], {0: [1.0, 14.0], 1: [2.0]}, 20.0) == 4.0 + 10.0
    assert floor_seconds(3, restart=2.0, training=1.0) == 7.5


def figures(faults: str, counted: int, to_target: float | None) -> Figures:
    return Figures("stride", faults, 60.0, 12, 1.0, counted, 3, to_target, 1.0, 2.0, 0.9, kills=2, floor=5.0)


def test_the_table_relates_runs_with_faults_to_those_without(tmp_path: Path) -> None:
    for each in (figures("", 600, 30.0), figures("kills", 540, 36.0), figures("", 600, 30.0)):
        save(tmp_path, each)
    none, kills = rows(read([tmp_path]))
    assert none[:4] == ["stride", "none", "2", "10.00"]
    assert kills[4] == "90.0%"
    assert kills[6] == "99.3%"
    assert kills[9] == "1.20"
    assert "not reached" in markdown([figures("", 600, None)])


def test_clients_have_few_labels_and_the_regression_learns(tmp_path: Path) -> None:
    path = tmp_path / "digits.npz"
    digits.write(path, 12, seed=1)
    parts = [digits.read(path, k) for k in range(12)]
    assert sum(len(labels) for _, labels in parts) + digits.TEST == 1797
    assert max(len(set(labels)) for _, labels in parts) <= 5
    model = digits.initial()
    images, labels = digits.read(path, "test")
    for _ in range(30):
        trained = [digits.train(model, *part, 0.5) for part in parts]
        model = {name: sum(each[name] for each in trained) / 12 for name in model}
    assert digits.accuracy(model, images, labels) > 0.8


@pytest.mark.slow  # real processes: four servers and twelve clients, for longer than --return-after
def test_a_server_and_clients_are_destroyed_and_come_back(tmp_path: Path) -> None:
    faults = [Fault(5.0, SERVER, 1), Fault(8.0, CLIENT, 0)]
    found = federation.measure("spyker", tmp_path / "run", faults, seconds=75.0, training=0.5)
    assert found.note == "", "nothing ended that was not killed"
    assert (found.losses, found.kills) == (1, 1)
    assert found.counted > 0
    assert (tmp_path / "run" / "lost-1").is_dir()
    replacement = federation_facts(tmp_path / "run" / "server-1" / "record")
    assert any(isinstance(fact, UpdateApplied) for fact in replacement), "its clients are back"


def federation_facts(record: Path) -> list[Fact]:
    records = ServerRecords()
    records.begin(1, record).poll()
    return [told.fact for told in records.servers[0].facts_read if not isinstance(told.fact, RunStarted)]
