"""Update density: how many updates each client contributes."""

from __future__ import annotations

import statistics

from spyker.records import RunRecord
from spyker_lab.paper.claims import Claim, ClaimKind, truth
from spyker_lab.paper.item import Item, Results, Section, Table
from spyker_lab.paper.items.queues import WITHOUT_DATA
from spyker_lab.print_figures import density, kernel_density, legend, panels

PAPER = {"FedAsync": (200, 1700), "Spyker": (300, 1400)}  # the intervals of most clients, and of the fast ones


def updates(run: RunRecord) -> list[float]:
    """Return the number of updates of each client."""
    return [float(n) for n in (run.summary or {})["updates_per_client"]]


def tell(results: Results) -> Section:
    """Return the section: the distributions of updates per client."""
    rows, drawn = [], {}
    for label, runs in results.runs.items():
        median = results.count(label, "median updates per client", lambda r: statistics.median(updates(r)))
        fewest = results.count(label, "fewest", lambda r: min(updates(r)))
        most = results.count(label, "most", lambda r: max(updates(r)))
        peak = results.count(label, "height of the density's peak", lambda r: float(max(kernel_density(updates(r))[1])))
        there = PAPER[label]
        cells = f"{median.text('.4g')} ({there[0]})", fewest.text(".4g"), f"{most.text('.4g')} ({there[1]})"
        rows.append([label, *cells, peak.text(".2g")])
        drawn[label] = [n for run in runs if run is not None for n in updates(run)]
    figure, (axes,) = panels(1)
    density(axes, drawn, "updates of a client")
    legend(axes)
    fedasync, spyker = results.labels
    typical = {label: results.numbers[label, "median updates per client"] for label in results.labels}
    fastest = {label: results.numbers[label, "most"] for label in results.labels}
    slower = "how long clients train is drawn anew for every seed"
    fewer = "with the paper's own latencies, a training and the way to the one server and back take longer than that"
    peaks = zip(
        *(results.numbers[label, "height of the density's peak"].numbers for label in (fedasync, spyker)),
        strict=True,
    )
    claims = [
        Claim(
            "most clients contribute around 300 updates in Spyker",
            300.0,
            typical[spyker],
            kind=ClaimKind.LEVEL,
            why=slower,
        ),
        Claim(
            "most clients contribute around 200 in FedAsync", 200.0, typical[fedasync], kind=ClaimKind.LEVEL, why=fewer
        ),
        truth(
            "FedAsync's distribution has the steeper peak",
            [None if a is None or b is None else a > b for a, b in peaks],
            slower,
        ),
        Claim(
            "a few fast clients contribute around 1,400 in Spyker",
            1400.0,
            fastest[spyker],
            kind=ClaimKind.LEVEL,
            why=slower,
        ),
        Claim("and around 1,700 in FedAsync", 1700.0, fastest[fedasync], kind=ClaimKind.LEVEL, why=fewer),
    ]
    heads = ["", "median (paper: peak)", "fewest", "most (paper: second peak)", "peak of the density"]
    notes = "Who contributes how much does not depend on what is learnt: a model of MNIST's size, and no data."
    return Section(
        claims, [Table("", heads, rows)], figure, "Updates per client, 100 clients, σ = 60 ms, 47 s.", {}, notes
    )


UPDATE_DENSITY = Item(
    name="update-density",
    paper="Fig. 10",
    shows="Density of the number of updates per client with FedAsync and Spyker",
    task="quadratic",
    runs={
        title: WITHOUT_DATA | {"algorithm": name, "training.delay-ms": "heterogeneous", "duration": 47.0}
        for name, title in (("fedasync", "FedAsync"), ("spyker", "Spyker"))
    },
    tell=tell,
    minutes={"quick": 1, "standard": 1, "full": 1},
)
