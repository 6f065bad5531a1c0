"""``spyker data``, and runs that need data."""

from pathlib import Path

import pytest
from small_data import FILES, small, write_files

from spyker.cli.main import main
from spyker.records import RunRecord
from spyker.tasks.data import cache
from spyker.tasks.data.catalogue import DATASETS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with small datasets, which nobody has been told of yet."""
    for name in DATASETS:
        monkeypatch.setitem(DATASETS, name, small(name))
        write_files(tmp_path / "data" / name, FILES[name](), ".gz")
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.chdir(tmp_path)
    return "data"


def test_the_list_says_what_is_available_and_where(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    text = capsys.readouterr().out
    for name in DATASETS:
        assert f"spyker data fetch {name}" in text
    assert main(["data", "fetch", "mnist", "--data-dir", folder]) == 0
    assert "mnist: from folder" in capsys.readouterr().out
    assert main(["data", "--data-dir", folder]) == 0
    text = capsys.readouterr().out
    assert "in the cache" in text
    assert text.count("unpacked on first use") == 2


def test_fetching_says_where_from_and_only_once(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "--data-dir", folder]) == 0
    done = capsys.readouterr()
    assert done.out.count("verified") == 3
    assert "train.txt.gz" in done.err
    assert main(["data", "fetch", "wikitext2"]) == 0
    done = capsys.readouterr()
    assert done.out == "wikitext2: already in the cache\n"
    assert done.err == ""


def test_one_that_cannot_be_had_does_not_keep_the_others_away(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert main(["data", "fetch", "--data-dir", folder]) == 1
    done = capsys.readouterr()
    assert done.out.count("verified") == 2
    assert "mnist: download failed" in done.err


def test_verifying_finds_what_is_wrong(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify"]) == 0  # nothing is here, so nothing is wrong
    assert main(["data", "verify", "mnist"]) == 1
    main(["data", "fetch", "mnist", "--data-dir", folder])
    capsys.readouterr()
    assert main(["data", "verify", "mnist", "--data-dir", folder]) == 0
    assert capsys.readouterr().out.count("verified") == 8
    path = cache.path_of(DATASETS["mnist"], DATASETS["mnist"].arrays[0])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no")
    assert main(["data", "verify", "mnist", "--data-dir", folder]) == 1
    text = capsys.readouterr().out
    assert text.count("verified") == 6
    assert "deleted from the cache" in text
    assert "t10k-labels-idx1-ubyte.gz is damaged" in text


def test_data_that_cannot_be_had_fails_with_1_and_starts_no_record(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["data", "fetch", "mnist"], ["run", "--task", "mnist", "--out", "a"]):
        assert main(command) == 1
        message = capsys.readouterr().err
        assert "mnist: download failed" in message
        assert "--data-dir DIR" in message
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["data", "fetch", "mnits"], "Did you mean 'mnist'?"),
        (["data", "--data-dir", "nowhere"], "--data-dir"),
        (["run", "--data-dir", "nowhere"], "--data-dir"),
        (["compare", "--data-dir", "nowhere"], "--data-dir"),
        (["data", "fetch", "mnist", "--task", "mnist"], "does not take the options of a plot"),
        (["data", "--partition", "even"], "task.partition"),
        (["data", "--task", "quadratic"], "no labels"),
        (["data", "--task", "wikitext2", "--data-dir", "data"], "no labels"),
    ],
)
def test_bad_input(folder: str, capsys: pytest.CaptureFixture[str], args: list[str], complaint: str) -> None:
    assert main(args) == 2
    assert complaint in capsys.readouterr().err


def test_the_picture_of_who_gets_what(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = ["data", "--data-dir", folder, "--task", "mnist", "--clients", "10"]
    assert main([*draw, "--partition", "pathological", "--out", "pictures"]) == 0
    text = capsys.readouterr().out
    assert "10 clients with 20 images each" in text
    assert "pictures/labels-mnist-pathological-10.png" in text
    assert main([*draw, "--partition", "dirichlet", "--set", "task.alpha=0.1", "--seed", "3"]) == 0
    assert " to " in capsys.readouterr().out
    for picture in ("pictures/labels-mnist-pathological-10.png", "labels-mnist-dirichlet-10.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("task", "metric", "settings"),
    [
        ("mnist", "accuracy", []),
        ("wikitext2", "perplexity", ["--set", "task.sequence-length=16", "--set", "task.characters-per-client=100"]),
    ],
)
def test_a_run_with_data_of_ones_own(folder: str, tmp_path: Path, task: str, metric: str, settings: list[str]) -> None:
    args = ["--task", task, "--clients", "4", "--duration", "0.5", "--workers", "0", "--data-dir", folder]
    assert main(["run", *args, *settings, "--out", "a"]) == 0
    run = RunRecord(tmp_path / "a")
    assert run.summary is not None
    assert run.summary["metric"]["name"] == metric
    assert run.summary["updates"] > 3
    assert main(["run", "a/scenario.toml", "--workers", "0", "--out", "b"]) == 0
    assert (tmp_path / "a" / "facts.jsonl").read_bytes() == (tmp_path / "b" / "facts.jsonl").read_bytes()
