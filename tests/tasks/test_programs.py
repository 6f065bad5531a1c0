"""Tasks that stand in a program of the user's, and workers that cannot import it: each in a process of its own."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from dataclasses import replace
import numpy as np
from spyker.config.scenario import load
from spyker.sim.simulate import simulate
from spyker.tasks.registry import choose, resolve
from spyker.engines.start_engine import start_engine
from spyker.tasks.task import Task, TrainingResult

SCALE = np.float32(0.01)

class Count:
    number = 0

class Own(Task):
    def initial(self):
        return np.zeros(3, np.float32)
    def size(self, client):
        return 1
    def train(self, client, weights, rate, step, state=None):
        state = state or Count()
        state.number += 1
        return TrainingResult(weights + SCALE * state.number * (client + 1), state=state)
    def evaluate(self, weights):
        return float(weights.sum())

def network(clients, seed, training):
    import torch
    from torch import nn
    from spyker.tasks.torch_task import TorchTask
    torch.manual_seed(seed)
    data = [(torch.rand(8, 1, 4, 4), torch.arange(8) % 2) for _ in range(clients)]
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    return TorchTask(model, data, data[0], training, seed=seed)

def facts(task, workers):
    scenario = resolve(replace(load(None, {"duration": 0.6}, clients=6), task=choose(task)))
    found = []
    made, engine = start_engine(scenario, workers)
    with engine:
        simulate(scenario, made, engine, lambda t, fact, queue: found.append((t, fact)))
    return found

print("begun")
for task, workers in TASKS:
    right = facts(task, 0)
    assert len(right) > 12
    assert facts(task, workers) == right, task
print("equal")
"""
ALL = "(lambda clients, seed, training: Own(), 2), (Own(), 1), (network, 1), (network(6, 1, load(None).training), 1)"
OWN = "(Own(), 1),"  # without PyTorch, whose import takes longer than all else


def check(*command: str, cwd: Path, stdin: str | None = None) -> None:
    done = subprocess.run([sys.executable, *command], cwd=cwd, input=stdin, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun\nequal\n", "")


def test_a_program_on_standard_input(tmp_path: Path) -> None:
    check("-", cwd=tmp_path, stdin=PROGRAM.replace("TASKS", ALL))


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM.replace("TASKS", OWN))
    check("script.py", cwd=tmp_path)


def test_cells_that_are_executed_in_main(tmp_path: Path) -> None:
    """As a notebook's kernel does it: a main module with a file and a spec of its own, and code that is in neither."""
    (tmp_path / "kernel.py").write_text("import sys\nfor cell in sys.stdin.read().split('#%%'):\n    exec(cell)\n")
    check("-m", "kernel", cwd=tmp_path, stdin=PROGRAM.replace("TASKS", OWN).replace("print(", "#%%\nprint("))
