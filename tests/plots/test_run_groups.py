"""Runs side by side: one line per setting, named after what differs, and a word where they do not compare."""

from pathlib import Path
from typing import Any

import pytest
from recording import judged, started, write

from spyker.plots.run_groups import format_seeds, group_runs
from spyker.records import RecordError, RunRecord, find_runs


def run(folder: Path, scenario: str = "", scores: tuple[float, ...] = (0.1, 0.6), **changes: Any) -> RunRecord:
    facts = [(float(i), judged(10 * i, score)) for i, score in enumerate(scores)]
    return RunRecord(write(folder, started(**changes), facts, {"finished": True}, scenario))


def test_algorithms_in_one_world_are_called_by_their_names(tmp_path: Path) -> None:
    shown = group_runs([run(tmp_path / "a"), run(tmp_path / "b", algorithm="fedavg", title="FedAvg")])
    assert list(shown.lines) == ["Spyker", "FedAvg"]
    assert (shown.incomparable, shown.warning) == ([], "")
    assert shown.about == "quadratic, 4 clients, seed 1"


def test_labels_say_what_differs_and_a_warning_which_keys_should_not(tmp_path: Path) -> None:
    few = run(tmp_path / "a", "[world]\nclients = [25, 25, 25, 25]\n[training]\nrate = 0.1\n", clients=100)
    many = run(
        tmp_path / "b",
        "[world]\nclients = [50, 50, 50, 50]\n[training]\nrate = 0.3\ndelay-ms = { mean = 1.0, std = 60.0 }\n",
        clients=200,
        algorithm="fedasync",
        title="FedAsync",
    )
    shown = group_runs([few, many])
    assert list(shown.lines) == [
        "Spyker, 100 clients, rate = 0.1",
        "FedAsync, 200 clients, rate = 0.3, delay-ms.mean = 1, delay-ms.std = 60",
    ]
    assert shown.incomparable == [
        "world.clients",
        "training.delay-ms.mean",
        "training.delay-ms.std",
    ]
    assert "differ in world.clients, training.delay-ms.mean and training.delay-ms.std" in shown.warning
    assert shown.about == "quadratic, 100 and 200 clients, seed 1"


def test_two_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    shown = group_runs([run(tmp_path / "first" / "spyker"), run(tmp_path / "second" / "spyker")])
    assert list(shown.lines) == ["Spyker, first/spyker", "Spyker, second/spyker"]


def test_a_folder_that_is_named_twice_is_one_run(tmp_path: Path) -> None:
    made = run(tmp_path / "a")
    assert [len(seeds) for seeds in group_runs([made, RunRecord(tmp_path / "a")]).lines.values()] == [1]


def test_runs_that_differ_in_their_seed_alone_are_one_line(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(seed), seed=seed) for seed in (3, 1, 2)]
    shown = group_runs(runs)
    assert {label: len(seeds) for label, seeds in shown.lines.items()} == {"Spyker": 3}
    assert shown.about.endswith("seeds 1 to 3")
    assert not shown.warning
    beside = group_runs([*runs, run(tmp_path / "b", algorithm="fedavg", title="FedAvg", seed=1)])
    assert beside.incomparable == ["seed"]
    again = group_runs([*runs, run(tmp_path / "again", seed=3)])
    assert len(again.lines) == 4  # a seed that was run twice is no further seed


def test_only_the_parameters_of_the_algorithm_that_ran_count(tmp_path: Path) -> None:
    plain = run(tmp_path / "a", "[spyker]\ndecay = 0.005\n[fedavg]\nfraction = 1.0\n")
    other = run(tmp_path / "b", "[spyker]\ndecay = 0.0\n[fedavg]\nfraction = 0.5\n")
    assert list(group_runs([plain, other]).lines) == ["Spyker, decay = 0", "Spyker, decay = 0.005"]
    assert group_runs([plain, other]).incomparable == []


def test_what_follows_from_the_number_of_clients_is_not_a_difference(tmp_path: Path) -> None:
    few = run(tmp_path / "a", "[spyker]\nh-inter = 10.0\n", clients=100)  # 100 / (5 · 2 servers)
    many = run(tmp_path / "b", "[spyker]\nh-inter = 20.0\n", clients=200)
    assert list(group_runs([few, many]).lines) == ["Spyker, 100 clients", "Spyker, 200 clients"]
    chosen = run(tmp_path / "c", "[spyker]\nh-inter = 3.0\n", clients=200)
    assert list(group_runs([few, chosen]).lines) == ["Spyker, 100 clients", "Spyker, 200 clients, h-inter = 3"]


def test_metrics_are_not_mixed(tmp_path: Path) -> None:
    runs = [run(tmp_path / "a"), run(tmp_path / "b", metric="perplexity", higher_is_better=False)]
    with pytest.raises(RecordError, match=r"accuracy \(.*a\) and perplexity \(.*b\).*one metric"):
        group_runs(runs)


def test_the_runs_of_a_sweep_are_found_and_drawn_by_setting(tmp_path: Path) -> None:
    for rate in (0.5, 0.1):
        for seed in (1, 2):
            run(tmp_path / "runs" / f"x{hash((rate, seed)) % 997}", f"[training]\nrate = {rate}\n", seed=seed)
    (tmp_path / "runs" / ".lock").write_text("")
    shown = group_runs(find_runs(tmp_path))
    assert {label: len(seeds) for label, seeds in shown.lines.items()} == {
        "Spyker, rate = 0.1": 2,
        "Spyker, rate = 0.5": 2,
    }


def test_seeds_in_words() -> None:
    assert format_seeds([4]) == "seed 4"
    assert format_seeds([2, 1]) == "seeds 1 and 2"
    assert format_seeds([3, 1, 2]) == "seeds 1 to 3"
    assert format_seeds([1, 5, 9]) == "seeds 1, 5 and 9"


def test_one_name_for_more_and_for_less_has_no_axis_in_common(tmp_path: Path) -> None:
    runs = [run(tmp_path / "a"), run(tmp_path / "b", higher_is_better=False)]
    with pytest.raises(RecordError, match=r"accuracy, more is better .* and accuracy, less is better"):
        group_runs(runs)
