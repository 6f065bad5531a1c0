"""Scalability: what 200 and 300 clients cost over 100."""

from __future__ import annotations

from spyker.experiments.claims import Claim, Kind, truth
from spyker.experiments.item import ALGORITHM_TITLES, Item, Results, Section, Table
from spyker.experiments.items.accuracy import BASELINES, first_of, last_of, not_behind
from spyker.experiments.numbers import times
from spyker.show.paper import bars, legend, panels

TARGETS = (0.9, 0.8)  # the paper's; in short runs, the highest that all reach
CLIENTS = (100, 200, 300)
# time and updates over those with 100 clients, with 200 and 300 clients
PAPER = {
    "FedAsync": (2.42, 3.63, 5.99, 9.01),
    "FedAvg": (1.98, 4.05, 2.44, 7.26),
    "HierFAVG": (1.64, 3.18, 1.75, 8.19),
    "Spyker": (1.21, 2.43, 1.43, 4.34),
    "Sync-Spyker": (1.61, 2.68, 1.90, 4.87),
}


def label(title: str, clients: int) -> str:
    """The name of a run."""
    return f"{title}, {clients} clients"


def tell(results: Results) -> Section:
    """The multipliers, beside the paper's."""
    target = next((t for t in TARGETS if all(results.time_to(r, t).whole for r in results.labels)), TARGETS[0])
    time = {run: results.time_to(run, target) for run in results.labels}
    updates = {run: results.updates_to(run, target) for run in results.labels}
    rows, grown = [], {}
    for title in ALGORITHM_TITLES.values():
        base = label(title, 100)
        cells = [title, time[base].text(".3g", " s")]
        for i, clients in enumerate(CLIENTS[1:]):
            run = label(title, clients)
            more_time, more_updates = times(time[run], time[base]), times(updates[run], updates[base])
            grown[title, clients] = more_time
            results.numbers[run, "time over that with 100 clients"] = more_time
            results.numbers[run, "updates over those with 100 clients"] = more_updates
            cells += [
                f"{more_time.text('.3g')} ({PAPER[title][2 * i]})",
                f"{more_updates.text('.3g')} ({PAPER[title][2 * i + 1]})",
            ]
        finals = [results.final(label(title, clients)).text(".2f") for clients in CLIENTS]
        rows.append([*cells, " / ".join(finals)])
    heads = [
        "here (paper)",
        f"time to {target:.0%}, 100 clients",
        "time × 200",
        "updates × 200",
        "time × 300",
        "updates × 300",
        "final accuracy",
    ]
    figure, (axes,) = panels(1)
    ours = {t: [(grown[t, c].mean, grown[t, c].spread) for c in CLIENTS[1:]] for t in ALGORITHM_TITLES.values()}
    paper = {t: [PAPER[t][0], PAPER[t][2]] for t in ours}
    bars(axes, ["200 clients", "300 clients"], ours, paper, f"time to {target:.0%} over that with 100 clients")
    axes.axhline(1, color="0.3", linewidth=0.6)
    legend(axes)
    by_200 = {t: grown[t, 200] for t in ("Spyker", *BASELINES)}
    fewer = "here twice as many clients have half as many images each"
    claims = [
        Claim(
            "Spyker takes only 1.21 × as long with 200 clients as with 100",
            PAPER["Spyker"][0],
            by_200["Spyker"],
            neutral=1.0,
            unit=" ×",
            kind=Kind.LIMIT,
            why=fewer,
        ),
        Claim(
            "FedAsync slows down twice as much as Spyker",
            PAPER["FedAsync"][0] / PAPER["Spyker"][0],
            times(by_200["FedAsync"], by_200["Spyker"]),
            neutral=1.0,
            unit=" ×",
            why=fewer,
        ),
        truth(
            "Spyker scales better than FedAsync, HierFAVG and FedAvg",
            first_of(by_200, "Spyker"),
            not_behind(by_200, "Spyker", ahead=False),
        ),
        truth("FedAsync scales worst", last_of(by_200, "FedAsync"), not_behind(by_200, "FedAsync", ahead=True)),
    ]
    notes = "" if target == TARGETS[0] else f"Not all runs reached 90 %, so that times to {target:.0%} are compared. "
    notes += (
        "A dash is a target that was not reached in time; the last column has the accuracies at the end with 100, 200 "
        "and 300 clients. Diamonds are the paper's. All clients together have the same images, however many they are."
    )
    return Section(claims, [Table("", heads, rows)], figure, f"Time to {target:.0%} with more clients.", {}, notes)


SCALABILITY = Item(
    name="scalability",
    paper="Tab. 5",
    shows="How time and updates to 90 % grow from 100 to 200 and 300 clients",
    task="mnist",
    runs={
        label(title, clients): {"algorithm": name, "world.clients": [clients // 4] * 4}
        for clients in CLIENTS
        for name, title in ALGORITHM_TITLES.items()
    },
    tell=tell,
    minutes=(9, 1418),
    quick={"duration": 15.0},
    full={"duration": 120.0},
)
