"""Decay: Spyker with and without smaller learning rates for clients that are ahead."""

from __future__ import annotations

from spyker.experiments.claims import Claim
from spyker.experiments.item import Item, Results, Section, Table
from spyker.experiments.numbers import less
from spyker.show.paper import legend, lines, panels

TARGETS = (0.9, 0.95)
WITH, WITHOUT = "with decay", "without decay"
# Decay is against clients that are fast and have data of their own kind.
HETEROGENEOUS = {
    "algorithm": "spyker",
    "training.delay-ms": "heterogeneous",
    "task.partition": "pathological",
}


def tell(results: Results) -> Section:
    """Two curves."""
    rows = []
    for label in results.labels:
        cells = [label]
        for target in TARGETS:
            cells += [
                results.time_to(label, target).text(".3g", " s"),
                results.held_from(label, target).text(".3g", " s"),
            ]
        rows.append([*cells, results.final(label).text(".4g")])
    gain = less(results.time_to(WITH, 0.9), results.time_to(WITHOUT, 0.9))
    claims = [
        Claim(
            "learning rate decay makes Spyker converge faster (time to 90 %)",
            None,
            gain,
            unit=" %",
            why="with σ = 60 ms some clients are so far ahead that their rate falls to almost nothing",
        )
    ]
    figure, (axes,) = panels(1)
    lines(
        axes,
        {label: results.curves(label) for label in results.labels},
        "time",
        "virtual time (s)",
        "accuracy",
        TARGETS,
    )
    legend(axes)
    heads = ["", "time to 90 %", "and stays", "time to 95 %", "and stays", "final accuracy"]
    return Section(
        claims,
        [Table("", heads, rows)],
        figure,
        "Spyker with and without learning rate decay; two labels per client, σ = 60 ms.",
        {},
    )


DECAY = Item(
    name="decay",
    paper="Fig. 11",
    shows="Spyker's accuracy with and without learning rate decay",
    task="mnist",
    runs={
        WITH: HETEROGENEOUS,
        WITHOUT: {**HETEROGENEOUS, "spyker.decay": 0.0},
    },
    tell=tell,
    minutes=(2, 308),
    quick={"duration": 15.0},
    full={"duration": 120.0},
)
