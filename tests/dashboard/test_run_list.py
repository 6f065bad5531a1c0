"""Which runs a page shows."""

from pathlib import Path

import pytest
from recording import started, write
from ring import write_ring

from spyker.dashboard.map_layout import place
from spyker.dashboard.run_list import RunList, check_runs
from spyker.dashboard.topology import RunTopology
from spyker.records import RecordError, find_runs


def looked(*folders: Path) -> RunList:
    run_list = RunList(folders)
    run_list.refresh()
    return run_list


def test_a_folder_of_runs_grows_while_it_is_watched(tmp_path: Path) -> None:
    run_list = looked(tmp_path)
    assert run_list.payload() == []
    write_ring(tmp_path / "a")
    run_list.refresh()
    assert [run["label"] for run in run_list.payload()] == ["Spyker"]
    write_ring(tmp_path / "b", title="Stride", algorithm="stride")
    run_list.refresh()
    assert [run["label"] for run in run_list.payload()] == ["Spyker", "Stride"]
    assert run_list.changes == 2


def test_the_runs_of_a_comparison_are_in_its_order(tmp_path: Path) -> None:
    write_ring(tmp_path / "zero", title="Own")
    for name, title in (("fedavg", "FedAvg"), ("stride", "Stride"), ("spyker", "Spyker")):
        write_ring(tmp_path / name, title=title, algorithm=name)
    assert [run["label"] for run in looked(tmp_path).payload()] == ["Stride", "Spyker", "FedAvg", "Own"]
    assert [run.start.title for run in find_runs(tmp_path)] == ["Stride", "Spyker", "FedAvg", "Own"]


def test_servers_of_one_deployment_are_one_run_and_two_deployments_are_two(tmp_path: Path) -> None:
    for name in ("first", "second"):
        for i in (0, 1):
            write(tmp_path / name / f"server-{i}" / "record", started(server=i, began=1.0), [])
    assert len(looked(tmp_path / "first").runs) == 1
    assert len(looked(tmp_path / "first", tmp_path / "second").runs) == 2


def test_servers_may_have_folders_of_any_name(tmp_path: Path) -> None:
    for i, name in enumerate(("paris", "rome", "runs")):
        write(tmp_path / name / "record", started(server=i, began=1.0), [])
    check_runs([tmp_path])
    (run,) = looked(tmp_path).payload()
    assert run["parts"] == 3


def test_a_run_that_is_no_more_is_shown_no_more(tmp_path: Path) -> None:
    folder = write_ring(tmp_path / "a")
    run_list = looked(tmp_path)
    for file in folder.iterdir():
        file.unlink()
    run_list.refresh()
    assert run_list.payload() == []


def test_a_folder_without_runs_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="holds no run record"):
        check_runs([tmp_path])


def test_distances_on_the_map_are_latencies() -> None:
    latency = [[0, 3.0, 4.0], [3.0, 0, 5.0], [4.0, 5.0, 0]]
    points = place(latency)

    def far(a: int, b: int) -> float:
        return float(((points[a][0] - points[b][0]) ** 2 + (points[a][1] - points[b][1]) ** 2) ** 0.5)

    assert far(0, 1) / far(1, 2) == pytest.approx(3 / 5)
    assert far(0, 2) / far(1, 2) == pytest.approx(4 / 5)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_regions_never_stand_on_each_other(count: int) -> None:
    points = place([[0.0 if a == b else 0.05 for b in range(count)] for a in range(count)])
    assert len({(round(x, 3), round(y, 3)) for x, y in points}) == count
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in points)


def test_a_scenario_that_says_nothing_of_the_world_is_enough() -> None:
    world = RunTopology(started(), {"world": "round", "algorithm": 7})
    assert world.clients == [2, 2]
    assert world.latency[0][1] > 0
    assert world.payload()["hInter"] is None
