"""Bandwidth: the bytes that cross all links in 110 s."""

from __future__ import annotations

from spyker_lab.paper.claims import Claim, truth
from spyker_lab.paper.comparisons import ratio
from spyker_lab.paper.item import ALGORITHM_TITLES, Item, Results, Section, Table
from spyker_lab.paper.items.queues import WITHOUT_DATA
from spyker_lab.print_figures import legend, panels, steps

PAPER = {"Spyker": 63.4, "Sync-Spyker": 32.5, "FedAsync": 24.5, "HierFAVG": 16.35, "FedAvg": 2.28}  # MB
WHY = "the paper's totals are too small for its own numbers: 87 kB both ways for each of tens of thousands of updates"


def tell(results: Results) -> Section:
    """Return the section: total bytes and their growth."""
    rows = []
    total = {label: results.measure(label, "MB in all", lambda c: c.bytes[-1] / 1e6) for label in results.labels}
    for label in results.labels:
        updates = results.measure(label, "client updates", lambda c: float(c.updates[-1]))
        servers = results.count(
            label, "MB between servers", lambda r: (r.summary or {})["bytes"]["server-to-server"] / 1e6
        )
        rows.append([label, total[label].text(",.0f"), f"{PAPER[label]:g}", updates.text(",.0f"), servers.text(",.1f")])
    orders = [
        None if None in row else list(row) == sorted(row, reverse=True)
        for row in zip(*(total[label].numbers for label in PAPER), strict=True)
    ]
    claims = [
        truth(
            "from most to least: Spyker, Sync-Spyker, FedAsync, HierFAVG, FedAvg",
            orders,
            "HierFAVG's clients are near their server and answer more often than FedAsync's, most of which are far",
        ),
        Claim(
            "Spyker sends 28 × as much as FedAvg",
            PAPER["Spyker"] / PAPER["FedAvg"],
            ratio(total["Spyker"], total["FedAvg"]),
            neutral=1.0,
            unit=" ×",
            why=WHY,
        ),
        Claim(
            "Spyker sends 2.6 × as much as FedAsync",
            PAPER["Spyker"] / PAPER["FedAsync"],
            ratio(total["Spyker"], total["FedAsync"]),
            neutral=1.0,
            unit=" ×",
            why="Spyker's clients answer about twice as often as FedAsync's, and models between servers add little",
        ),
    ]
    figure, (axes,) = panels(1)
    curves = {label: next((c for c in results.curves(label) if c is not None), None) for label in results.labels}
    steps(
        axes,
        {label: (c.time, [b / 1e6 for b in c.bytes]) for label, c in curves.items() if c},
        "virtual time (s)",
        "sent over all links (MB)",
    )
    legend(axes)
    heads = ["", "MB in 110 s", "paper's MB", "client updates", "MB between servers"]
    notes = "Bytes do not depend on what is learnt: these runs have a model of MNIST's size (87 kB) and no data."
    return Section(claims, [Table("", heads, rows)], figure, "Bytes sent over all links. One seed.", {}, notes)


BANDWIDTH = Item(
    name="bandwidth",
    paper="Fig. 12",
    shows="Bytes over all links in 110 s, five algorithms",
    task="quadratic",
    runs={title: WITHOUT_DATA | {"algorithm": name, "duration": 110.0} for name, title in ALGORITHM_TITLES.items()},
    tell=tell,
    minutes={"quick": 1, "standard": 2, "full": 1},
)
