"""Measure what a personal head gains where every client has images of two labels only.

    python examples/personalise.py digits --head '4.*'
    python examples/personalise.py cifar10 --head '12.*' --option images-per-client=500 --option test-images=100

Each client holds out a fifth of its images and evaluates the models that it receives with them. The score of a run is
the mean of the clients' last evaluations.
"""

import argparse
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
    """Run both variants with all seeds and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("digits", "cifar10"))
    parser.add_argument("--head", required=True, help="pattern of the personal parameters")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=NUMBER", help="option of the task")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--duration", type=float, default=10.0, help="virtual seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    options = {f"task.{key}": int(value) for key, _, value in (text.partition("=") for text in args.option)}
    found: dict[str, list[float]] = {}
    for variant, personal in {"shared model": [], "personal head": [args.head]}.items():
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
                found.setdefault(variant, []).append(scores(run)["accuracy"])
    print("| variant | accuracy of the clients | by seed |\n|---|---|---|")
    for variant, values in found.items():
        print(row(variant, values))


if __name__ == "__main__":
    main()
