"""Imbalance: one server has more clients than the others."""

from __future__ import annotations

import itertools

from spyker.experiments.claims import Claim, truth
from spyker.experiments.item import Item, Results, Section, Table
from spyker.experiments.numbers import less, times
from spyker.show.paper import legend, lines, panels

TARGET = 0.9
# clients on the first server: those of all servers; the paper's accuracy and duration
WORLDS = {25: (25, 25, 25, 25), 52: (52, 16, 16, 16), 63: (63, 13, 12, 12), 70: (70, 10, 10, 10)}
PAPER = {25: ("96.4 %", "120 s"), 52: ("−14.5 %", "+17.76 s"), 63: ("−11.9 %", "+33.04 s"), 70: ("−7.63 %", "+53.08 s")}
PAPER_LOSS, PAPER_SLOWDOWN = 14.5, (120 + 53.08) / 120

WHY = "the servers keep exchanging models, and with IID data each has clients with all labels, however few they are"


def label(clients: int) -> str:
    """The name of a run."""
    return f"{clients} clients on one server"


def tell(results: Results) -> Section:
    """Accuracy and time."""
    rows = []
    for clients, (accuracy, duration) in PAPER.items():
        run = label(clients)
        averaged = results.measure(run, "final accuracy, averaged model", lambda c: c.averaged[-1])
        cells = [run, results.final(run).text(".4g"), accuracy, averaged.text(".4g")]
        rows.append(
            [
                *cells,
                results.time_to(run, TARGET).text(".3g", " s"),
                results.held_from(run, TARGET).text(".3g", " s"),
                duration,
            ]
        )
    base, worst = label(25), label(52)
    slow = [results.time_to(label(n), TARGET) for n in WORLDS]
    rising = [
        None if None in ns else all(a < b for a, b in itertools.pairwise(ns))
        for ns in zip(*(s.numbers for s in slow), strict=True)
    ]
    claims = [
        Claim(
            "52 clients on one server cost 14.5 % of the accuracy",
            PAPER_LOSS,
            less(results.final(worst), results.final(base)),
            unit=" %",
            why=WHY,
        ),
        truth("More imbalance always means more time", rising, WHY),
        Claim(
            "70 clients on one server make it take 1.44 × as long",
            PAPER_SLOWDOWN,
            times(slow[-1], slow[0]),
            neutral=1.0,
            unit=" ×",
            why=WHY,
        ),
    ]
    figure, (axes,) = panels(1)
    lines(axes, {run: results.curves(run) for run in results.labels}, "time", "virtual time (s)", "accuracy", (TARGET,))
    legend(axes)
    heads = ["", "final accuracy", "paper", "averaged model", "time to 90 %", "and stays", "paper's duration"]
    return Section(
        claims, [Table("", heads, rows)], figure, "Spyker with an imbalanced number of clients per server.", {}
    )


IMBALANCE = Item(
    name="imbalance",
    paper="Tab. 7",
    shows="Accuracy and time with 25, 52, 63 and 70 of 100 clients on one server",
    task="mnist",
    runs={label(n): {"algorithm": "spyker", "world.clients": list(world)} for n, world in WORLDS.items()},
    tell=tell,
    minutes=(4, 615),
    quick={"duration": 15.0},
    full={"duration": 120.0},
)
