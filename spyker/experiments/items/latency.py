"""Latency: FedAsync and Spyker with the latencies of a cloud provider, and with uniform ones."""

from __future__ import annotations

from spyker.experiments.claims import Claim
from spyker.experiments.item import Item, Results, Section, Table
from spyker.experiments.numbers import less
from spyker.show.paper import bars, legend, panels

TARGETS = (0.9, 0.95)
# seconds to 90 % and 95 %
PAPER = {
    "FedAsync, AWS": (59, 125),
    "Spyker, AWS": (22, 51),
    "FedAsync, uniform": (40, 75),
    "Spyker, uniform": (25, 56),
}
GAINS = {("AWS", 0.9): 61.0, ("AWS", 0.95): 58.0, ("uniform", 0.9): 38.0, ("uniform", 0.95): 25.0}
WHY = (
    "one server that mixes 100 clients is steadier than four that mix 25 each, and three quarters of the way from the "
    "clients to a distant server are training and waiting in both"
)


def tell(results: Results) -> Section:
    """Times and gains."""
    rows, claims = [], []
    for label in results.labels:
        results.final(label)  # for the CSV file
        cells = [label]
        for i, target in enumerate(TARGETS):
            first, held = results.time_to(label, target), results.held_from(label, target)
            cells += [
                first.text(".3g", " s"),
                held.text(".3g", " s"),
                results.averaged_to(label, target).text(".3g", " s"),
                f"{PAPER[label][i]} s",
            ]
        rows.append(cells)
    heads = ["", *(h for t in TARGETS for h in (f"time to {t:.0%}", "and stays", "averaged model", "paper"))]
    for (network, target), paper in GAINS.items():
        gain = less(results.time_to(f"Spyker, {network}", target), results.time_to(f"FedAsync, {network}", target))
        sentence = f"Spyker reaches {target:.0%} in {paper:g} % less time than FedAsync ({network} latencies)"
        claims.append(Claim(sentence, paper, gain, unit=" %", why=WHY))
    for network in ("AWS", "uniform"):
        gain = less(results.averaged_to(f"Spyker, {network}", 0.9), results.averaged_to(f"FedAsync, {network}", 0.9))
        paper = GAINS[network, 0.9]
        sentence = f"the same for 90 %, {network} latencies, judged by the average of Spyker's four models"
        claims.append(Claim(sentence, paper, gain, unit=" %", why=WHY))
    figure, axes = panels(2)
    for axis, target in zip(axes, TARGETS, strict=True):
        times = {m: [results.time_to(f"{m}, {n}", target) for n in ("AWS", "uniform")] for m in ("FedAsync", "Spyker")}
        ours = {m: [(s.mean, s.spread) for s in found] for m, found in times.items()}
        bars(axis, ["AWS", "uniform"], ours, {}, f"virtual time to {target:.0%} (s)")
    legend(axes[0])
    caption = "Time to 90 % and 95 % accuracy on MNIST; the paper's times are in the table."
    return Section(claims, [Table("", heads, rows)], figure, caption, {})


LATENCY = Item(
    name="latency",
    paper="Tab. ma_boost",
    shows="Time to 90 % and 95 % with FedAsync and Spyker, cloud latencies and uniform ones",
    task="mnist",
    runs={
        f"{title}, {network}": {"algorithm": name, "world.uniform-latency": uniform}
        for network, uniform in (("AWS", False), ("uniform", True))
        for name, title in (("fedasync", "FedAsync"), ("spyker", "Spyker"))
    },
    tell=tell,
    longer={"FedAsync, uniform": 2.0, "Spyker, uniform": 2.0},  # a round trip takes clients 390 ms instead of 155
    minutes=(None, None),
    quick={"duration": 15.0},
    full={"duration": 120.0},
)
