"""Imbalance: one server has more clients than the others."""

from __future__ import annotations

import itertools

from spyker.plots.figures import describe_lines, lines
from spyker_lab.paper.claims import Claim, truth
from spyker_lab.paper.comparisons import all_true, is_less, percent_less, ratio
from spyker_lab.paper.item import Item, Results, Section, Table
from spyker_lab.print_figures import legend, panels

TARGET = 0.9
# clients on the first server: those of all servers; the paper's accuracy and duration
WORLDS = {25: (25, 25, 25, 25), 52: (52, 16, 16, 16), 63: (63, 13, 12, 12), 70: (70, 10, 10, 10)}
PAPER = {25: ("96.4 %", "120 s"), 52: ("−14.5 %", "+17.76 s"), 63: ("−11.9 %", "+33.04 s"), 70: ("−7.63 %", "+53.08 s")}
PAPER_LOSS, PAPER_SLOWDOWN = 14.5, (120 + 53.08) / 120

WHY = "the servers keep exchanging models, and with IID data each has clients with all labels, however few they are"


def label(clients: int) -> str:
    """Return the name of a run."""
    return f"Spyker, {clients} clients on one server"


def tell(results: Results) -> Section:
    """Return the section: accuracy and time."""
    end = results.common_end()
    scores = {clients: results.at(label(clients), end) for clients in WORLDS}
    slow = {clients: results.time_to(label(clients), TARGET) for clients in WORLDS}
    rows = []
    for clients, (accuracy, duration) in PAPER.items():
        run = label(clients)
        averaged = results.at(run, end, averaged=True)
        cells = [run, scores[clients].text(".4g"), accuracy, averaged.text(".4g"), *results.times(run, (TARGET,))]
        rows.append([*cells, duration])
    in_order = itertools.pairwise(slow.values())
    steps = [[is_less(a, b) for a, b in zip(one.ranges, two.ranges, strict=True)] for one, two in in_order]
    rising = [all_true(seed) for seed in zip(*steps, strict=True)]
    claims = [
        Claim(
            "52 clients on one server cost 14.5 % of the accuracy",
            PAPER_LOSS,
            percent_less(scores[52], scores[25]),
            unit=" %",
            why=WHY,
        ),
        truth("More imbalance always means more time", rising, WHY),
        Claim(
            "70 clients on one server make it take 1.44 × as long",
            PAPER_SLOWDOWN,
            ratio(slow[70], slow[25]),
            neutral=1.0,
            unit=" ×",
            why=WHY,
        ),
    ]
    figure, (axes,) = panels(1)
    curves = {run: results.curves(run) for run in results.labels}
    lines(axes, curves, "time", "virtual time (s)", "accuracy", (TARGET,))
    legend(axes)
    heads = ["", "accuracy", "paper", "averaged model", *results.heads((TARGET,)), "paper's duration"]
    notes = f"Accuracies are those when the first of the four runs ends, after {end.text('.3g', ' s')}."
    caption = f"Spyker with an imbalanced number of clients per server. {describe_lines(curves, (TARGET,))}"
    return Section(claims, [Table("", heads, rows)], figure, caption, {}, notes)


IMBALANCE = Item(
    name="imbalance",
    paper="Tab. 7",
    shows="Accuracy and time with 25, 52, 63 and 70 of 100 clients on one server",
    task="mnist",
    runs={label(n): {"algorithm": "spyker", "world.clients": list(world)} for n, world in WORLDS.items()},
    tell=tell,
    minutes={"quick": 2, "standard": 5, "full": 615},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
)
