"""Queues: how many updates wait at a server, with one server and with four."""

from __future__ import annotations

import functools
import math

from spyker.records import RunRecord
from spyker_lab.paper.claims import Claim, ClaimKind, truth
from spyker_lab.paper.item import Item, Results, Section, Table
from spyker_lab.print_figures import legend, panels, steps

EARLY = (0.3, 0.6)  # seconds
LENGTH = 20


@functools.lru_cache(maxsize=2)
def series(run: RunRecord) -> list[tuple[float, int, int]]:
    """Return time, server and queue length at every client update."""
    return [(t, update.server, queue or 0) for t, update, queue in run.updates()]


def lengths(run: RunRecord, since: float = 0.0, until: float = math.inf) -> list[int]:
    """Return the queue lengths in an interval."""
    return [length for t, _, length in series(run) if since <= t <= until]


def tell(results: Results) -> Section:
    """Return the section: the longest queues at the beginning and later."""
    drawn, rows = {}, []
    for label, runs in results.runs.items():
        early = results.count(label, "longest queue from 0.3 s to 0.6 s", lambda r: max(lengths(r, *EARLY), default=0))
        longest = results.count(label, "longest queue", lambda r: max(lengths(r), default=0))
        later = results.count(label, "shortest queue after 0.6 s", lambda r: min(lengths(r, EARLY[1]), default=0))
        mean = results.count(label, "mean queue after 0.6 s", lambda r: average(lengths(r, EARLY[1])))
        rows.append([label, early.text(".3g"), longest.text(".3g"), later.text(".3g"), mean.text(".3g")])
        run = next((r for r in runs if r is not None), None)
        if run is not None:
            all_points = series(run)
            busiest = max(all_points, key=lambda point: point[2])[1]
            points = [(t, q) for t, server, q in all_points if server == busiest]
            drawn[label] = [t for t, _ in points], [q for _, q in points]
    figure, (left, right) = panels(2)
    steps(left, drawn, "virtual time (s)", "updates at the busiest server")
    steps(right, drawn, "virtual time (s)", "updates at the busiest server")
    right.set_xlim(0, 2)
    legend(right)
    fedasync, spyker = results.labels
    shortest = results.numbers[fedasync, "shortest queue after 0.6 s"]
    longest_of_spyker = results.numbers[spyker, "longest queue"]
    claims = [
        Claim(
            "FedAsync's queue grows to nearly 80 between 300 and 600 ms",
            80.0,
            results.numbers[fedasync, "longest queue from 0.3 s to 0.6 s"],
            kind=ClaimKind.LEVEL,
            why="how closely clients begin together decides",
        ),
        truth(
            "FedAsync's queue always stays above 20 after that",
            [None if n is None else n > LENGTH for n in shortest.numbers],
            "it falls to the limit for moments; its mean is far above",
            shortest,
        ),
        truth(
            "Spyker's queues never exceed 20",
            [None if n is None else n <= LENGTH for n in longest_of_spyker.numbers],
            "50 clients that start together and need about equally long answer within each other's 2 ms",
            longest_of_spyker,
        ),
    ]
    heads = ["", "longest, 0.3 to 0.6 s", "longest", "shortest after 0.6 s", "mean after 0.6 s"]
    caption = "Client updates at the busiest server, 200 clients, σ = 60 ms; right: the first two seconds. One seed."
    notes = "Queue lengths do not depend on what is learnt: these runs have a model of MNIST's size and no data."
    return Section(claims, [Table("", heads, rows)], figure, caption, {}, notes)


def average(numbers: list[int]) -> float | None:
    """Return the mean, or ``None`` if there are no values."""
    return sum(numbers) / len(numbers) if numbers else None


WITHOUT_DATA: dict[str, object] = {"task.dimension": 21_840}  # as many parameters as MNIST's model
QUEUES = Item(
    name="queues",
    paper="Fig. 9",
    shows="Updates queued at a server with FedAsync and with Spyker, 200 clients",
    task="quadratic",
    runs={
        title: WITHOUT_DATA | {"algorithm": name, "world.clients": [50] * 4, "training.delay-ms": "heterogeneous"}
        for name, title in (("fedasync", "FedAsync"), ("spyker", "Spyker"))
    },
    tell=tell,
    minutes={"quick": 1, "standard": 1, "full": 1},
    sizes={"quick": {"duration": 20.0}, "standard": {"duration": 60.0}, "full": {"duration": 60.0}},
)
