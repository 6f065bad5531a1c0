"""Time and bytes to 90 % accuracy with coded messages, by link: ``python -m benchmarks.compression``.

MNIST, 100 clients with 60 images of two labels each, rate 0.1, the paper's regions. Needs MNIST
(``spyker data fetch mnist``) and the native kernel of ``spyker-fl-lab``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence

import spyker
from spyker.records import Evaluated

TARGET = 0.9
CODES: dict[str, dict[str, str]] = {
    "none": {},
    "int8": {"updates": "int8", "models": "int8", "exchanges": "int8"},
    "int4": {"updates": "int4", "models": "int4", "exchanges": "int8"},
}


def once(
    algorithm: str, code: str, mbit: float, seed: int, duration: float, data: str | None
) -> tuple[float | None, int, float]:
    """Return the time to the target, the bytes until then (or in all), and the final accuracy."""
    settings = {
        "training.kernel": "native",
        "training.rate": 0.1,
        "evaluation.interval": 0.25,
        "task.images-per-client": 60,
        "task.labels-per-client": 2,
        "world.bandwidth-mbit": mbit,
    } | {f"compression.{key}": value for key, value in CODES[code].items()}
    with tempfile.TemporaryDirectory() as folder:
        run = spyker.run(
            {"task": {"name": "mnist"}},
            algorithm=algorithm,
            clients=100,
            duration=duration,
            seed=seed,
            settings=settings,
            out=f"{folder}/run",
            progress=False,
            data_dir=data,
        )
        reached = [(e.t, e.fact.bytes) for e in run.facts(Evaluated) if e.fact.mean >= TARGET]
        time, size = reached[0] if reached else (None, run.summary["bytes"]["total"])
        return time, size, run.summary["final"]["mean"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithms", default="stride,spyker,hierfavg")
    parser.add_argument("--mbit", default="100,4,1")
    parser.add_argument("--codes", default="none,int8,int4")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=30.0)
    parser.add_argument("--data-dir")
    options = parser.parse_args(arguments)
    print("| algorithm | Mbit/s | code | seconds to 90 % | megabytes to 90 % | final accuracy |")
    print("|---|---|---|---|---|---|")
    for algorithm in options.algorithms.split(","):
        for mbit in map(float, options.mbit.split(",")):
            for code in options.codes.split(","):
                seeds = range(1, options.seeds + 1)
                runs = [once(algorithm, code, mbit, seed, options.duration, options.data_dir) for seed in seeds]
                times = ", ".join("–" if time is None else f"{time:.2f}" for time, _, _ in runs)
                size = statistics.median(size for _, size, _ in runs) / 1e6
                final = statistics.mean(score for _, _, score in runs)
                megabytes = f"{size:.1f}" if all(time is not None for time, _, _ in runs) else "–"
                print(f"| {algorithm} | {mbit:g} | {code} | {times} | {megabytes} | {final:.3f} |", flush=True)


if __name__ == "__main__":
    main()
