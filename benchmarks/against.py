"""Ours against another revision of this repository, in turn, in one run: is anything slower than it was?

python -m benchmarks.against REVISION [NAME ...]

The revision is checked out beside the results and measured with its own code and its own benchmarks. Ratios are ours
over theirs: rates, so that 1.1 means a tenth faster.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import RESULTS, Result, write

ROOT = Path(__file__).parent.parent
EVENTS = "from benchmarks.event_engine import one; print(one({}, 4)['events_per_second'])"
UPDATES = "from benchmarks.deploy import spyker_rate; print(spyker_rate({}, {}, {}))"
PROGRAMS = {
    "events/s, 10,000 clients": EVENTS.format(10_000),
    "events/s, 1,000,000 clients": EVENTS.format(1_000_000),
    "deployed updates/s, 87 kB": UPDATES.format(21_840, 8, 8.0),
    "deployed updates/s, 22 MB": UPDATES.format(5_500_000, 4, 12.0),
}
TIMES = 5


def main(revision: str, names: list[str]) -> int:
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        print(f"{unknown[0]!r} is not allowed; choose from {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    theirs = RESULTS / f"tree-{revision[:12]}"
    RESULTS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(theirs, ignore_errors=True)
    subprocess.run(["git", "worktree", "prune"], check=True, cwd=ROOT)
    subprocess.run(["git", "worktree", "add", "--detach", "--force", str(theirs), revision], check=True, cwd=ROOT)
    try:
        results = [compare(name, PROGRAMS[name], theirs) for name in names or PROGRAMS]
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(theirs)], check=True, cwd=ROOT)
    write("against", results)
    return 0


def compare(name: str, program: str, theirs: Path) -> Result:
    """Measure both trees alternately and print the ratio."""
    pairs = [(measured(program, ROOT), measured(program, theirs)) for _ in range(TIMES)]
    ours, before = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    details = {"ours": ours, "theirs": before, "least": ratios[0], "most": ratios[-1]}
    print(f"{name}: {ours / before:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}): {ours:,.0f} / {before:,.0f}", flush=True)
    return Result(name, ours / before, None, details=details)


def measured(program: str, tree: Path) -> float:
    """Run a program with the code of a tree; return the number that it prints last."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
