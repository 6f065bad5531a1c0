"""What a large model costs beyond its training: memory, in copies of the model, and processor time.

Four clients of two servers train a model of 50 million parameters in two worker processes, and the run leaves its
record. Memory is the peak of all processes together, a page that several share counted once, less that of the same run
with a tiny model. Processor time, of user and system, is held against bare PyTorch loops that do as many trainings and
evaluations, in as many processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.copies_side import CLIENTS, WORKERS
from benchmarks.measure import Result

MODELS = {
    "benchmarks.copies_side:wide": ({"width": 7000}, {"width": 8}, 0.8),
    "benchmarks.copies_side:resnet18": ({"width": 64}, {"width": 1}, 2.0),
}
"""By task: options of the large and the tiny model, and virtual seconds."""
TIMES = 3
SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Cost:
    """Resource usage of a process and its descendants."""

    peak: int
    """Bytes."""
    user: float
    system: float
    said: str


def tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        children = Path(f"/proc/{root}/task/{root}/children").read_text().split()
    except OSError:
        return []
    return [root, *(process for child in children for process in tree(int(child)))]


def resident(process: int) -> int:
    """Return the proportional set size of a process in bytes."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def cost(*arguments: str) -> Cost:
    """Run one side, and measure its resource usage."""
    peak = 0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.copies_side", *arguments], stdout=output)
        done = status = 0
        while not done:
            peak = max(peak, sum(map(resident, tree(process.pid))))
            time.sleep(SAMPLE_SECONDS)
            done, status, used = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{arguments[0]} failed; it says above why"
        output.seek(0)
        return Cost(peak, used.ru_utime, used.ru_stime, output.read().decode())


def bare(task: str, options: str, trainings: int, evaluations: int) -> float:
    """Return the processor seconds of concurrent bare loops that share the work."""
    shares = [
        ("bare", task, options, *(str(n // WORKERS + (i < n % WORKERS)) for n in (trainings, evaluations)))
        for i in range(WORKERS)
    ]
    with ThreadPoolExecutor() as together:
        return sum(each.user + each.system for each in together.map(lambda share: cost(*share), shares))


def compare(task: str, large: dict[str, Any], tiny: dict[str, Any], duration: float) -> dict[str, float]:
    """Measure a run and bare loops with the same work, minus their usage with a tiny model."""
    little = cost("run", task, json.dumps(tiny), str(duration))
    run = cost("run", task, json.dumps(large), str(duration))
    trainings, evaluations, parameters = map(int, run.said.split())
    begun = bare(task, json.dumps(tiny), trainings, evaluations)
    loops = bare(task, json.dumps(large), trainings, evaluations) - begun
    user, system = run.user - little.user, run.system - little.system
    return {
        "copies": (run.peak - little.peak) / (4 * parameters),
        "ratio": (user + system) / loops,
        "user_s": user,
        "system_s": system,
        "bare_s": loops,
        "trainings": trainings,
        "evaluations": evaluations,
        "parameters": parameters,
    }


def measure() -> list[Result]:
    results = []
    for task, (large, tiny, duration) in MODELS.items():
        runs = [compare(task, large, tiny, duration) for _ in range(TIMES)]
        details = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        name = f"{task.partition(':')[2]}, {details['parameters']:,.0f} parameters, {CLIENTS} clients"
        results += [
            Result(f"peak memory, in models: {name}", details.pop("copies"), None, at_most=True, details=details),
            Result(f"processor time, Spyker / bare PyTorch: {name}", details["ratio"], None, at_most=True),
        ]
    return results
