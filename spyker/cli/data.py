"""``spyker data``: list, download and verify datasets, and plot partitions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from spyker.api.datasets import data_from, prepare_data
from spyker.api.read_scenario import read_scenario
from spyker.cli.codes import FAILED
from spyker.cli.help import examples
from spyker.cli.options import add_data_dir, add_set, scenario_arguments
from spyker.cli.output import add_json
from spyker.errors import DataError, UsageError
from spyker.plots.fetch_progress import FetchProgress
from spyker.plots.table import print_table
from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.data.load import fetch, find, location, verify
from spyker.tasks.partition import PARTITIONS
from spyker.tasks.registry import client_labels
from spyker.untrusted_text import file_stem


def add_data(commands: Any) -> None:
    """``spyker data``."""
    parser = commands.add_parser(
        "data",
        help="list, download and verify datasets; plot partitions",
        description="Without an action: list the datasets or, with --partition or --task, plot the clients' labels.",
    )
    parser.add_argument(
        "action", nargs="?", choices=("fetch", "verify"), help="download datasets, or verify local ones"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(DATASETS)}; default: all")
    add_data_dir(parser)
    parser.add_argument("--partition", metavar="P", help=f"plot: {', '.join(PARTITIONS)}")
    parser.add_argument("--task", metavar="T", help="plot: digits, mnist or cifar10")
    parser.add_argument(
        "--clients", type=int, metavar="N", help="plot: total number of clients, spread evenly over the regions"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="plot: seed of all random numbers")
    parser.add_argument("--out", type=Path, metavar="DIR", help="plot: output folder; default: the current folder")
    add_set(parser)
    add_json(parser)
    examples(
        parser,
        "spyker data  # list datasets",
        "spyker data fetch mnist",
        "spyker data verify --data-dir /data",
        "spyker data --task mnist --partition dirichlet --clients 100  # plots the labels of each client",
    )
    parser.set_defaults(command=command_data)


def command_data(args: argparse.Namespace) -> int:
    """List, download, verify or plot."""
    drawing = (
        any(v is not None for v in (args.partition, args.task, args.clients, args.seed, args.out)) or args.settings
    )
    if args.action and drawing:
        raise UsageError(f"data {args.action}", "does not take the options of a plot", "Leave them out")
    with data_from(args.data_dir):
        if args.action == "fetch":
            return fetch_all(args)
        if args.action == "verify":
            return verify_all(args)
        return draw(args) if drawing else list_all(args)


def list_all(args: argparse.Namespace) -> int:
    """List the datasets."""
    rows, args.answer = [], []
    for dataset in DATASETS.values():
        here, where = location(dataset)
        rows.append([dataset.name, "yes" if here else "no", f"{dataset.title}\n{where}"])
        args.answer.append({"dataset": dataset.name, "available": here, "title": dataset.title, "where": where})
    print_table(["dataset", "available", "description and place"], rows, words=3)
    print("The tasks digits and quadratic need no dataset.")
    return 0


def fetch_all(args: argparse.Namespace) -> int:
    """Download datasets into the cache. A failed download does not stop the others."""
    failures, args.answer = [], []
    for dataset in [find(name) for name in args.names or DATASETS]:
        try:
            with FetchProgress(dataset.name, Console(stderr=True, quiet=args.quiet)) as progress:
                source = fetch(dataset, progress)
        except DataError as error:
            failures.append(str(error))
        else:
            args.answer.append({"dataset": dataset.name, "source": source})
            print(f"{dataset.name}: " + (f"from {source}, verified" if source else "already in the cache"))
    if failures:
        raise DataError("\n".join(failures))
    return 0


def verify_all(args: argparse.Namespace) -> int:
    """Verify all local datasets; those named must exist."""
    failed, args.answer = False, []
    for dataset in [find(name) for name in args.names or DATASETS]:
        with FetchProgress(dataset.name, Console(stderr=True, quiet=args.quiet)) as progress:
            results = verify(dataset, progress)
        for what, problem in results:
            print(f"{dataset.name}: {what}: {problem or 'verified'}")
            args.answer.append({"dataset": dataset.name, "what": what, "problem": problem})
            failed |= problem is not None
        if not results:
            print(f"{dataset.name}: {location(dataset)[1]}")
            failed |= bool(args.names)
    return FAILED if failed else 0


def draw(args: argparse.Namespace) -> int:
    """Plot the labels of each client."""
    from spyker.plots.label_plot import count_labels, plot_labels  # Matplotlib is slow to import

    varied = {} if args.partition is None else {"task.partition": args.partition}
    scenario = read_scenario(**scenario_arguments(args), varied=varied)
    prepare_data([scenario], progress=not args.quiet)
    labels = client_labels(scenario)
    world, task = scenario.world, scenario.task
    assert world.clients is not None
    kind = task.options.partition if task.options.partitioner is None else task.options.partitioner.partition("(")[0]
    path = (args.out or Path()) / f"labels-{file_stem(task.name)}-{kind}-{len(labels)}.png"
    sizes = sorted(map(len, labels))
    each = f"{sizes[0]:,}" if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,}"
    title = f"{task.name}, {kind}: {len(labels)} clients with {each} images each, seed {scenario.seed}"
    plot_labels(count_labels(labels), list(zip(world.regions, world.clients, strict=True)), title, path)
    args.answer = {"title": title, "picture": path}
    print(f"{title}\n{path}")
    return 0
