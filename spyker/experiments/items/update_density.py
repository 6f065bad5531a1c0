"""Update density: how many updates each client contributes."""

from __future__ import annotations

import statistics

from spyker.experiments.claims import Claim, truth
from spyker.experiments.item import Item, Results, Section, Table
from spyker.experiments.items.queues import WITHOUT_DATA
from spyker.experiments.numbers import times
from spyker.records import Run
from spyker.show.paper import density, kernel_density, legend, panels


def updates(run: Run) -> list[float]:
    """The updates of each client."""
    return [float(n) for n in (run.summary or {})["updates_per_client"]]


def tell(results: Results) -> Section:
    """The distributions."""
    rows, drawn = [], {}
    for label, runs in results.runs.items():
        median = results.count(label, "median updates per client", lambda r: statistics.median(updates(r)))
        fewest = results.count(label, "fewest", lambda r: min(updates(r)))
        most = results.count(label, "most", lambda r: max(updates(r)))
        peak = results.count(label, "height of the density's peak", lambda r: float(max(kernel_density(updates(r))[1])))
        rows.append([label, median.text(".4g"), fewest.text(".4g"), most.text(".4g"), peak.text(".2g")])
        drawn[label] = [n for run in runs if run is not None for n in updates(run)]
    figure, (axes,) = panels(1)
    density(axes, drawn, "updates of a client")
    legend(axes)
    fedasync, spyker = results.labels
    gain = times(
        results.numbers[spyker, "median updates per client"], results.numbers[fedasync, "median updates per client"]
    )
    peaks = zip(
        *(results.numbers[label, "height of the density's peak"].numbers for label in (fedasync, spyker)),
        strict=True,
    )
    over = times(results.numbers[spyker, "most"], results.numbers[spyker, "median updates per client"])
    claims = [
        Claim(
            "clients contribute around 300 updates in Spyker against 200 in FedAsync", 1.5, gain, neutral=1.0, unit=" ×"
        ),
        truth(
            "FedAsync's distribution has the steeper peak",
            [None if a is None or b is None else a > b for a, b in peaks],
        ),
        Claim(
            "a few fast clients contribute several times as many as most (1,400 against 300)",
            1400 / 300,
            over,
            neutral=1.0,
            unit=" ×",
        ),
    ]
    heads = ["", "median", "fewest", "most", "peak of the density"]
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
    minutes=(1, 1),
)
