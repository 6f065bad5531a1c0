"""The models that a run leaves, and a run that begins from one."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import spyker
from spyker.cli.main import main
from spyker.errors import RecordWriteError, UsageError
from spyker.records import Evaluated, InitialModelLoaded, RecordError
from spyker.tasks.built_in.digits import read
from spyker.tasks.built_in.models import digits_cnn

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 2.0, "clients": 8, "progress": False}
DIGITS: dict[str, Any] = {
    "task": "digits",
    "duration": 1.5,
    "clients": 8,
    "settings": {"training.delay-ms": "heterogeneous"},
    "progress": False,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    """All files of a record, by their names in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def model_files(folder: Path) -> set[str]:
    return {name for name in files(folder) if "model" in name}


def evaluations(run: spyker.Run) -> list[Evaluated]:
    return [fact for _, fact, _ in run.facts(Evaluated)]


def accuracy(state: dict[str, Any]) -> float:
    """What a plain PyTorch module with this state gets right."""
    images, labels, held_out = read()
    plain = digits_cnn()
    plain.load_state_dict(state)
    with torch.no_grad():
        answers = plain(torch.from_numpy(images[:held_out] / 16).float().unsqueeze(1)).argmax(1)
    return float((answers.numpy() == labels[:held_out]).mean())


def test_a_plain_module_scores_what_the_record_says_and_workers_change_no_byte() -> None:
    run = spyker.run(out="a", workers=0, **DIGITS)
    last = evaluations(run)[-1]
    assert [accuracy(run.state_dict(i)) for i in range(4)] == pytest.approx(last.servers)
    assert accuracy(run.state_dict()) == pytest.approx(last.averaged)
    assert len(set(last.servers)) > 1
    assert model_files(run.folder) == {"model.safetensors", *(f"models/server-{i}.safetensors" for i in range(4))}
    assert files(Path("a")) == files(spyker.run(out="b", workers=2, **DIGITS).folder)


def test_a_model_says_what_it_is_and_the_summary_agrees() -> None:
    run = spyker.run(out="a", seed=3, **QUICK)
    with safe_open("a/models/server-2.safetensors", "numpy") as file:
        about = file.metadata()
        assert file.get_tensor("weights").tolist() == (run.summary or {})["servers"][2]["weights"]
    assert {key: about[key] for key in ("algorithm", "task", "seed", "time", "server")} == {
        "algorithm": "stride",
        "task": "quadratic",
        "seed": "3",
        "time": "2.0",
        "server": "2",
    }
    servers = [load_file(f"a/models/server-{i}.safetensors")["weights"] for i in range(4)]
    assert load_file("a/model.safetensors")["weights"] == pytest.approx(np.mean(servers, axis=0))


def test_a_single_server_is_its_own_mean() -> None:
    run = spyker.run(algorithm="fedavg", **QUICK)
    assert torch.equal(run.state_dict()["weights"], run.state_dict(0)["weights"])


def interrupt(t: float, fact: object) -> None:
    if t > 1 and signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        os.kill(os.getpid(), signal.SIGINT)  # once: a second one would end it at once


def enough(t: float, fact: object) -> bool:
    return t > 1


@pytest.mark.parametrize("callback", [interrupt, enough])
def test_a_run_that_is_ended_early_leaves_its_model(callback: Callable[..., Any]) -> None:
    try:
        spyker.run(out="a", callbacks=[callback], **QUICK)
    except KeyboardInterrupt:
        assert callback is interrupt
    run = spyker.load("a")
    assert isinstance(run, spyker.Run)
    assert run.summary is not None
    assert not run.finished
    assert run.state_dict(3)["weights"].tolist() == run.summary["servers"][3]["weights"]


def test_a_run_that_has_reached_its_target_leaves_the_model_that_did() -> None:
    stop = {"evaluation.stop-at": 0.1, "evaluation.stop-after": 0.0, "evaluation.interval": 0.25}
    run = spyker.run(out="a", settings=stop, **QUICK)
    assert (run.summary or {})["time"] < 2
    again = spyker.run(out="b", initial_model="a/model.safetensors", **(QUICK | {"duration": 0.25}))
    assert evaluations(again)[0].mean == evaluations(run)[-1].averaged


def test_there_is_no_summary_without_the_models() -> None:
    def in_the_way(t: float, fact: object) -> None:
        Path("a/models").touch()

    with pytest.raises(RecordWriteError, match="a: cannot write run record"):
        spyker.run(out="a", callbacks=[in_the_way], **QUICK)
    assert not Path("a/summary.json").exists()


def test_who_wants_none_gets_none(here: Path) -> None:
    assert not model_files(spyker.run(model=False, out="a", **QUICK).folder)
    spyker.sweep(vary={"training.rate": [0.1]}, jobs=1, out="s", **(QUICK | {"duration": 0.5}))
    assert not model_files(here / "s")
    assert main(["run", "--task", "quadratic", "--duration", "1", "--no-model", "--out", "b"]) == 0
    assert not model_files(here / "b")


def test_a_run_begins_from_the_model_it_is_given_and_says_so() -> None:
    first = spyker.run(out="a", algorithm="spyker", **QUICK)
    for name, world in {"b": {}, "hosted": {"world.outage": {"region": 1, "start": 0.5, "seconds": 0.5}}}.items():
        begin: dict[str, Any] = {"initial_model": "a/models/server-1.safetensors", "algorithm": "spyker"}
        run = spyker.run(out=name, settings=world, **begin, **QUICK)
        assert evaluations(run)[0].servers == [evaluations(first)[-1].servers[1]] * 4
        assert evaluations(run)[-1].mean > evaluations(first)[-1].mean
        (_, begun, _) = list(run.facts())[1]
        assert isinstance(begun, InitialModelLoaded)
        assert begun.model == "a/models/server-1.safetensors"
        assert len(begun.sha256) == 64
    assert Path("a/scenario.toml").read_bytes() == Path("b/scenario.toml").read_bytes()
    assert not list(first.facts(InitialModelLoaded))


def test_convolutions_come_back_as_they_were() -> None:
    run = spyker.run(out="a", workers=0, **DIGITS)
    said = DIGITS | {"duration": 0.01, "settings": {}}
    same = spyker.run(out="b", workers=0, initial_model="a/model.safetensors", **said)
    assert (same.summary or {})["updates"] == 0
    assert (
        Path("a/model.safetensors").read_bytes()[-4000:] == Path("b/models/server-0.safetensors").read_bytes()[-4000:]
    )
    assert all(torch.equal(part, same.state_dict()[name]) for name, part in run.state_dict(None).items())


def test_a_record_may_take_the_place_of_the_one_whose_model_it_begins_from() -> None:
    first = evaluations(spyker.run(out="a", **QUICK))[-1].averaged
    again = spyker.run(out="a", overwrite=True, initial_model="a/model.safetensors", **QUICK)
    assert evaluations(again)[0].mean == first


def test_a_comparison_begins_from_it_too_and_leaves_models() -> None:
    spyker.run(out="a", **QUICK)
    runs = spyker.compare(["spyker", "fedavg"], initial_model="a/model.safetensors", out="c", **QUICK)
    assert len({evaluations(run)[0].mean for run in runs.values()} - {0.0}) == 1
    assert all(model_files(run.folder) for run in runs.values())


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


WRONG: dict[str, tuple[dict[str, Any] | bytes | None, list[str]]] = {
    "no file": (None, ["m.safetensors cannot be read (No such file or directory)"]),
    "a pickle": (b"\x80\x02}q\x00.", ["m.safetensors is not a safetensors file", "save_file"]),
    "no such part": ({"bias": floats(8)}, ["has a tensor bias, which the task does not know", "names and shapes"]),
    "a part too few": ({}, ["has no tensor weights; its tensors: none", "names and shapes"]),
    "a part too many": ({"weights": floats(8), "bias": floats(1)}, ["has a tensor bias, which the task does not"]),
    "another shape": ({"weights": floats(9)}, ["has weights in the shape [9]; the task has it in [8]"]),
    "another type": ({"weights": np.zeros(8)}, ["has weights as F64", "Save it as float32"]),
    "not finite": ({"weights": floats(8) + np.nan}, ["numbers in weights that are not finite", "did not diverge"]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_model_that_does_not_fit_is_refused_and_changes_nothing(here: Path, wrong: str) -> None:
    content, complaints = WRONG[wrong]
    spyker.run(out="a", **QUICK)
    if isinstance(content, bytes):
        Path("m.safetensors").write_bytes(content)
    elif content is not None:
        save_file(content, "m.safetensors")
    before = files(here)
    for run in (spyker.run, spyker.compare):
        for out in ("a", "b"):
            with pytest.raises(UsageError) as error:
                run(out=out, overwrite=True, initial_model="m.safetensors", **QUICK)
            assert str(error.value).startswith("--initial-model: ")
            assert all(complaint in str(error.value) for complaint in complaints), error.value
    assert files(here) == before
    assert not Path("b").exists()


def test_a_folder_is_refused_with_the_name_of_the_file_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    spyker.run(out="a", **QUICK)
    assert main(["run", "--task", "quadratic", "--initial-model", "a"]) == 2
    assert "--initial-model: a is a folder. Give a file, such as a/model.safetensors" in capsys.readouterr().err


def test_what_is_not_learnt_is_left_aside() -> None:
    save_file({"weights": floats(8) + 1, "batches": np.zeros((), np.int64)}, "m.safetensors")
    run = spyker.run(initial_model="m.safetensors", **QUICK)
    assert evaluations(run)[0].mean > 0.2


def test_an_export_of_a_run_is_its_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = spyker.run(out="a", workers=0, **DIGITS)
    assert main(["export", "a", "--out", "all"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "algorithm stride, task digits, seed 1, time 1.5, server mean of 4",
        "all.safetensors",
        "all.pt",
    ]
    assert Path("all.safetensors").read_bytes() == Path("a/model.safetensors").read_bytes()
    state = torch.load("all.pt", weights_only=True)
    assert list(state) == list(digits_cnn().state_dict())
    assert accuracy(state) == pytest.approx(evaluations(run)[-1].averaged)
    assert main(["export", "a", "--server", "2", "--out", "one"]) == 0
    assert accuracy(torch.load("one.pt", weights_only=True)) == pytest.approx(evaluations(run)[-1].servers[2])


def test_an_export_of_what_is_not_there_says_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, left in {"a": True, "b": True, "none": False}.items():
        spyker.run(out=name, model=left, **QUICK)
    for command, complaint in {
        "none": "none contains no model: the run was killed, is in progress, was made with --no-model",
        "a --server 7": "a has no model of server 7. Choose one of 0, 1, 2, 3",
        "a b": "a is a run record with its own model. Give it as the only folder",
    }.items():
        assert main(["export", *command.split()]) == 2
        assert complaint in capsys.readouterr().err
    Path("b/model.safetensors").write_bytes(b"torn")
    assert main(["export", "b"]) == 2
    assert "b/model.safetensors cannot be read" in capsys.readouterr().err
    assert not list(here.glob("model.*"))
    with pytest.raises(RecordError, match="none contains no model"):
        spyker.Run("none").state_dict()
