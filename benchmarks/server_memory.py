"""The memory of a server that waits for clients: with a model file against with the task, which imports PyTorch."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Result
from spyker.api.read_scenario import read_scenario
from spyker.tasks.registry import task_spec
from spyker.tasks.served_model import ServedModel, write_served_model

TASK = "digits"
SCENARIO = f'algorithm = "fedasync"\n[task]\nname = "{TASK}"\n'
SERVER = 'scenario = "scenario.toml"\n[deploy]\nserver = 0\nlisten-clients = "127.0.0.1:0"\n'
TIMES = 3


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.toml").write_text(SCENARIO)
        write_served_model(folder / "model.safetensors", ServedModel.of(task_spec(read_scenario(task=TASK)).make()))
        with_task = statistics.median(resident(folder, f"task-{i}", SERVER) for i in range(TIMES))
        model = SERVER + 'model = "model.safetensors"\n'
        with_model = statistics.median(resident(folder, f"model-{i}", model) for i in range(TIMES))
    details = {"with_task_mb": with_task, "with_model_mb": with_model}
    name = "memory of an idle server with a model file / with the task"
    return [Result(name, with_model / with_task, None, details=details)]


def resident(folder: Path, name: str, config: str) -> float:
    """Start a server, wait until it listens, and return its resident memory in MB."""
    (folder / f"{name}.toml").write_text(config + f'state = "{name}/state"\nrecord = "{name}/record"\n')
    command = [sys.executable, "-m", "spyker", "serve", f"{name}.toml", "--insecure"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if json.loads(line)["event"] == "listening":
                break
        (size,) = re.findall(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
        server.terminate()
    return int(size) / 1000
