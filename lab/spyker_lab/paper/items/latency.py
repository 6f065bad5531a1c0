"""Latency: FedAsync and Spyker with the latencies of a cloud provider, and with uniform ones."""

from __future__ import annotations

from spyker_lab.paper.claims import Claim
from spyker_lab.paper.comparisons import percent_less
from spyker_lab.paper.item import Item, Results, Section, Table
from spyker_lab.paper.speed import Gain, gain
from spyker_lab.print_figures import BARS, bars, legend, panels

TARGETS = (0.9, 0.95)
# Each network, and the paper's seconds to 90 % and 95 %. The paper's "uniform latency between servers" may or
# may not include the links between clients and their servers.
MEAN_OTHERS = 157.1  # ms, the mean of the latencies between different regions
BETWEEN = [[MEAN_OTHERS if i != j else near for j in range(4)] for i, near in enumerate((1.41, 0.9, 2.56, 2.14))]
NETWORKS: dict[str, dict[str, object]] = {
    "AWS": {},
    "uniform": {"world.uniform-latency": True},
    "uniform between regions": {"world.latency-ms": BETWEEN},
}
PAPER = {
    "FedAsync, AWS": (59, 125),
    "Spyker, AWS": (22, 51),
    "FedAsync, uniform": (40, 75),
    "Spyker, uniform": (25, 56),
    "FedAsync, uniform between regions": (40, 75),
    "Spyker, uniform between regions": (25, 56),
}
GAINS = {"AWS": (61.0, 58.0), "uniform": (38.0, 25.0), "uniform between regions": (38.0, 25.0)}
SECOND = "uniform between regions"
UNIFORM = "clients are then as far from their own server as from any other"


def why(network: str, found: Gain) -> str:
    """Return an explanation if the gain is smaller than the paper's."""
    rule = f"the published rule allows {found.predicted.text('.3g', ' %')}, and {found.limit.text('.3g', ' %')} at most"
    return f"{UNIFORM}; {rule}" if network == "uniform" else rule


def tell(results: Results) -> Section:
    """Return the section: times and gains."""
    rows = []
    for label in results.labels:
        results.final(label)  # for the CSV file
        cells = [label]
        for i, target in enumerate(TARGETS):
            averaged = results.averaged_to(label, target)
            cells += [*results.times(label, (target,)), averaged.text(".3g", " s"), f"{PAPER[label][i]} s"]
        rows.append(cells)
    heads = ["", *(h for t in TARGETS for h in (*results.heads((t,)), "averaged model", "paper"))]
    by_network, claims, gains = [], [], {}
    for network, papers in GAINS.items():
        spyker, fedasync = f"Spyker, {network}", f"FedAsync, {network}"
        cells = [network]
        for target, paper in zip(TARGETS, papers, strict=True):
            measured = percent_less(results.time_to(spyker, target), results.time_to(fedasync, target))
            averaged = percent_less(results.averaged_to(spyker, target), results.averaged_to(fedasync, target))
            cells += [s.text(".3g", " %") for s in (measured, averaged)] + [f"{paper:g} %"]
            if target == TARGETS[0]:
                gains[network] = gain(results.runs[spyker], results.runs[fedasync], measured, paper)
            sentence = f"Spyker reaches {target:.0%} in {paper:g} % less time than FedAsync ({network})"
            reason = why(network, gains[network])
            claims.append(Claim(sentence, paper, measured, unit=" %", why=reason, again=network == SECOND))
        by_network.append(cells)
    by = ["less time than FedAsync", *(h for t in TARGETS for h in (f"to {t:.0%}", "averaged", "paper"))]
    figure, axes = panels(2)
    for axis, target in zip(axes, TARGETS, strict=True):
        times = {m: [results.time_to(f"{m}, {n}", target) for n in NETWORKS] for m in ("FedAsync", "Spyker")}
        bars(axis, [name.replace(" ", "\n", 1) for name in NETWORKS], times, {}, f"virtual time to {target:.0%} (s)")
    legend(axes[0], above=True)
    caption = f"Time to 90 % and 95 % accuracy on MNIST; the paper's times are in the table. {BARS}"
    notes = (
        "“Averaged” is judged by the average of the servers' models. The paper's “uniform latency between servers” is "
        "read in two ways: all latencies are equal, or only those between different regions."
    )
    tables = [Table("", heads, rows), Table("", by, by_network)]
    return Section(claims, tables, figure, caption, {}, notes, gains)


LATENCY = Item(
    name="latency",
    paper="Tab. 6",
    shows="Time to 90 % and 95 % with FedAsync and Spyker, cloud latencies and uniform ones",
    task="mnist",
    runs={
        f"{title}, {network}": {"algorithm": name, **settings}
        for network, settings in NETWORKS.items()
        for name, title in (("fedasync", "FedAsync"), ("spyker", "Spyker"))
    },
    tell=tell,
    minutes={"quick": 2, "standard": 6, "full": 736},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
    # clients' round trips take 390 ms instead of 155
    scaled={"FedAsync, uniform": {"duration": 2.0}, "Spyker, uniform": {"duration": 2.0}},
)
