"""``spyker.run(resume=True)``: a run that was stopped or killed goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spyker
from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.records import RecordError

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 3.0, "clients": 8, "progress": False}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: str) -> dict[str, bytes]:
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def stopped(out: str, at: float = 1.4, **options: Any) -> None:
    spyker.run(out=out, callbacks=[lambda t, fact: t > at], **(QUICK | options))


def test_ctrl_c_and_then_resume() -> None:
    sent: list[float] = []

    def interrupt(t: float, fact: object) -> None:
        if t > 0.7 and not sent:  # a second one would end it at once
            sent.append(t)
            os.kill(os.getpid(), signal.SIGINT)

    digits = QUICK | {"task": "digits", "duration": 1.0, "workers": 0}
    spyker.run(out="whole", **digits)
    with pytest.raises(KeyboardInterrupt):
        spyker.run(out="parts", callbacks=[interrupt], **digits)
    assert "resume.safetensors" in files("parts")
    assert main(["run", "--resume", "--out", "parts", "--workers", "0"]) == 0
    assert files("parts") == files("whole")


KILLED = """
import os, signal, spyker, spyker.api.save_interval
spyker.api.save_interval.SECONDS = spyker.api.save_interval.SHARE = 0
def kill(t, fact):
    if t > 0.5:
        spyker.api.save_interval.SECONDS = 1e9  # no save after the next one, so that facts follow it
    if t > 2.5:
        os.kill(os.getpid(), signal.SIGKILL)
spyker.run(task="quadratic", duration=3.0, clients=8, progress=False, out="parts", callbacks=[kill])
"""


def test_a_kill_and_then_resume() -> None:
    spyker.run(out="whole", **QUICK)
    done = subprocess.run([sys.executable, "-c", KILLED], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert "summary.json" not in files("parts")
    told: list[float] = []
    run = spyker.run(resume=True, out="parts", progress=False, callbacks=[lambda t, fact: told.append(t)])
    assert run.finished
    assert 1.0 <= min(told) < 2.0, "it did not begin anew, nor where the facts had ended"
    assert files("parts") == files("whole")


def test_what_began_from_a_model_goes_on_from_there() -> None:
    spyker.run(out="first", **QUICK)
    spyker.run(out="whole", initial_model="first/model.safetensors", **QUICK)
    stopped("parts", initial_model="first/model.safetensors")
    spyker.run(resume=True, out="parts", progress=False)
    assert files("parts") == files("whole")


def test_a_task_of_a_program_is_named_again() -> None:
    def small(clients: int, seed: int, training: Any, dimension: int = 3) -> spyker.Task:
        from spyker.tasks.built_in.quadratic import Options, make

        return make(Options(dimension=dimension), clients, seed, training)

    said = {"task": small, "settings": {"task.dimension": 5}}
    spyker.run(out="whole", **(QUICK | said))
    stopped("parts", **said)
    spyker.run(resume=True, out="parts", task=small, progress=False)
    assert files("parts") == files("whole")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no folder": ({}, "--resume: needs the folder of the run. Add --out"),
    "nothing there": ({"out": "nowhere"}, "nowhere is not a run record"),
    "finished": ({"out": "whole"}, "whole holds nothing to go on from: its run has finished"),
    "overwrite": ({"out": "parts", "overwrite": True}, "Leave one of them out"),
    "another model": ({"out": "parts", "initial_model": "whole/model.safetensors"}, "Leave out --initial-model"),
    "longer": ({"out": "parts", "duration": 9.0}, "parts is the record of another scenario"),
    "damaged": ({"out": "damaged"}, "resume.safetensors cannot be read"),
    "facts are gone": ({"out": "short"}, "has lost facts"),
}


def test_what_cannot_be_resumed_is_left_alone(here: Path) -> None:
    spyker.run(out="whole", **QUICK)
    for name in ("parts", "damaged", "short"):
        stopped(name)
    Path("damaged/resume.safetensors").write_bytes(b"half")
    os.truncate("short/facts.jsonl", 100)
    before = files(".")
    for options, complaint in WRONG.values():
        with pytest.raises((UsageError, RecordError)) as error:
            spyker.run(resume=True, progress=False, **options)
        assert complaint in str(error.value)
    assert files(".") == before


OWN = """
import sys, torch, spyker
from spyker.config.scenario import Training
from spyker.records import RecordError
from torch import nn

WIDTH = 4

class Net(nn.Module):
    kinds = {"x", "y", "z", "w"}  # in another order in every process

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 2)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))

def make(clients, seed, training):
    torch.manual_seed(seed)
    x = torch.randn(40, 2)
    y = (x[:, 0] > 0).long()
    return spyker.TorchTask(Net(), [(x[k::clients], y[k::clients]) for k in range(clients)], (x, y), training)

RUNS = {"whole": {}, "parts": {"callbacks": [lambda t, fact: t > 0.7]}, "resumed": {"resume": True}}
for out in sys.argv[1:]:
    for kind, task in (("function", make), ("object", make(4, 1, Training()))):
        try:
            spyker.run(
                task=task, clients=4, duration=1.0, workers=0, progress=out == "parts",
                out=f"{kind}-{out.replace('resumed', 'parts')}", **RUNS[out],
            )
        except RecordError as error:
            print(error)
"""


def own_script(*runs: str, text: str = OWN) -> str:
    Path("own.py").write_text(text)
    return subprocess.run([sys.executable, "own.py", *runs], stdout=-1, text=True, timeout=120, check=True).stdout


def test_a_script_with_a_model_of_its_own_resumes_in_another_process() -> None:
    own_script("whole", "parts")
    before = [files("function-parts"), files("object-parts")]
    said = own_script("resumed", text=OWN.replace("torch.relu", "torch.tanh"))
    assert said.count("-parts cannot be resumed: the task, or code of it, has changed since the run began. ") == 2
    assert "--overwrite" not in said
    assert [files("function-parts"), files("object-parts")] == before
    assert own_script("resumed", text="# a comment more\n" + OWN) == ""
    for kind in ("function", "object"):
        assert files(f"{kind}-parts") == files(f"{kind}-whole")


def test_another_version_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped("parts")
    before = files("parts")
    monkeypatch.setattr("spyker.sim.autosave.__version__", "9")
    with pytest.raises(RecordError, match="version of Spyker has changed"):
        spyker.run(resume=True, out="parts", progress=False)
    assert files("parts") == before
