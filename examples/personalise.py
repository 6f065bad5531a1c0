r"""Measure what personal parameters gain where every client has images of two labels only.

    python examples/personalise.py digits --personal '4.*'
    python examples/personalise.py cifar10 --personal '12.*' --option images-per-client=250
    python examples/personalise.py cifar10 --personal buffers --personal '15.*' --option images-per-client=250 \
        --option batch-norm=true

Each client holds out a fifth of its images and evaluates the models that it receives with them. The score of a run is
the mean of the clients' last evaluations.
"""

import argparse
import json
import sys
import tempfile
from statistics import mean, stdev

import spyker


def scores(run: spyker.Run) -> dict[str, float]:
    """Return the mean of the clients' last evaluations, by metric."""
    last = {fact.client: fact.scores for _, fact, _ in run.facts("client-evaluation")}
    return {name: mean(found[name] for found in last.values()) for name in next(iter(last.values()))}


def row(name: str, values: list[float]) -> str:
    """Return a row of the table: mean, standard deviation and every seed."""
    spread = stdev(values) if len(values) > 1 else 0.0
    return f"| {name} | {mean(values):.3f} ± {spread:.3f} | {', '.join(f'{value:.3f}' for value in values)} |"


def main() -> None:
    """Run all variants with all seeds and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("digits", "cifar10"))
    parser.add_argument(
        "--personal", action="append", default=[], metavar="PATTERN", help="personal parameters of one variant"
    )
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="option of the task")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--duration", type=float, default=10.0, help="virtual seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    options = {f"task.{key}": json.loads(value) for key, _, value in (text.partition("=") for text in args.option)}
    found: dict[str, list[float]] = {}
    variants = {"shared model": [], **{f"personal `{pattern}`": [pattern] for pattern in args.personal}}
    for variant, personal in variants.items():
        for seed in range(1, args.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                run = spyker.run(
                    task=args.task,
                    clients=args.clients,
                    duration=args.duration,
                    seed=seed,
                    workers=args.workers,
                    settings={"evaluation.by": "clients", "training.personal": personal, **options},
                    out=f"{folder}/run",
                    progress=False,
                )
                accuracy = scores(run)["accuracy"]
                found.setdefault(variant, []).append(accuracy)
                print(f"{variant}, seed {seed}: {accuracy:.3f}", file=sys.stderr, flush=True)
    print("| variant | accuracy of the clients | by seed |\n|---|---|---|")
    for variant, values in found.items():
        print(row(variant, values))


if __name__ == "__main__":
    main()
