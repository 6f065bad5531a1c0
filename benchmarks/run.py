"""Run benchmarks, write each one's results as JSON, print a table; exit code 1 if a bar is missed.

python -m benchmarks.run [NAME ...]
"""

from __future__ import annotations

import importlib
import sys
import time

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result, write

NAMES = (
    "mask_cpu",
    "mix_kernel",
    "block_codec",
    "native_kernels",
    "event_engine",
    "exchange_scale",
    "engine_efficiency",
    "copies",
    "flower",
    "deploy",
    "throughput",
    "transports",
    "server_memory",
    "many_clients",
    "bounds",
)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"{unknown[0]!r} is not allowed; choose from {', '.join(NAMES)}", file=sys.stderr)
        return 2
    results: list[Result] = []
    for name in names or NAMES:
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        measured = importlib.import_module(f"benchmarks.{name}").measure()
        print(f"{name}: {time.monotonic() - began:.0f} s, {write(name, measured)}", file=sys.stderr, flush=True)
        results += measured
    table = Table("benchmark", "ratio", "bar", "met", box=box.SIMPLE_HEAD)
    for r in results:
        bar = "–" if r.bar is None else f"{'≤' if r.at_most else '≥'} {r.bar:g}"
        table.add_row(r.name, f"{r.ratio:.2f}", bar, "yes" if r.met else "NO")
    Console().print(table)
    for r in results:
        print(f"{r.name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in r.details.items()))
    return 0 if all(r.met for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
