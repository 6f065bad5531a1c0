"""Decay: Spyker with and without smaller learning rates for clients that are ahead."""

from __future__ import annotations

from spyker.plots.figures import describe_lines, lines
from spyker_lab.paper.claims import Claim
from spyker_lab.paper.comparisons import percent_less
from spyker_lab.paper.item import Item, Results, Section, Table
from spyker_lab.print_figures import legend, panels

TARGET = 0.9
WITH, WITHOUT = "Spyker, with decay", "Spyker, without decay"
# Decay reduces the influence of fast clients whose data differs from the others'.
HETEROGENEOUS = {
    "algorithm": "spyker",
    "training.delay-ms": "heterogeneous",
    "task.partition": "pathological",
    "evaluation.stop-at": TARGET,
}


def tell(results: Results) -> Section:
    """Return the section: one curve with and one without decay."""
    rows = [[label, *results.times(label, (TARGET,)), results.final(label).text(".4g")] for label in results.labels]
    gain = percent_less(results.time_to(WITH, TARGET), results.time_to(WITHOUT, TARGET))
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
    curves = {label: results.curves(label) for label in results.labels}
    lines(axes, curves, "time", "virtual time (s)", "accuracy", (TARGET,))
    legend(axes)
    heads = ["", *results.heads((TARGET,)), "accuracy at the end"]
    caption = "Spyker with and without learning rate decay; two labels per client, σ = 60 ms."
    return Section(claims, [Table("", heads, rows)], figure, f"{caption} {describe_lines(curves, (TARGET,))}", {})


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
    minutes={"quick": 1, "standard": 2, "full": 308},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
)
