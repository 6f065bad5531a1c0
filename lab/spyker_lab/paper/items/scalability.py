"""Scalability: time and updates with 200 and 300 clients, relative to 100."""

from __future__ import annotations

from functools import partial

from spyker_lab.paper.claims import Claim, ClaimKind, truth
from spyker_lab.paper.comparisons import percent_less, ratio
from spyker_lab.paper.item import ALGORITHM_TITLES, Item, Results, Section, Table
from spyker_lab.paper.items.accuracy import BASELINES, first_of, last_of, not_behind
from spyker_lab.paper.speed import gain
from spyker_lab.print_figures import BARS, bars, legend, panels

TARGET = 0.9
CLIENTS = (100, 200, 300)
# ratios of time and updates with 200 and 300 clients to those with 100
PAPER = {
    "FedAsync": (2.42, 3.63, 5.99, 9.01),
    "FedAvg": (1.98, 4.05, 2.44, 7.26),
    "HierFAVG": (1.64, 3.18, 1.75, 8.19),
    "Spyker": (1.21, 2.43, 1.43, 4.34),
    "Sync-Spyker": (1.61, 2.68, 1.90, 4.87),
}


BUSY = "an update waits for a busy server, which adds little to the way there and back and the training"


def label(title: str, clients: int) -> str:
    """Return the name of a run."""
    return f"{title}, {clients} clients"


def tell(results: Results, *, share: str, why: str, again: bool) -> Section:
    """Return the section: our ratios beside the paper's.

    ``share`` says how many images there are, ``why`` what that does to Spyker, and ``again`` that it is the second
    reading.
    """
    time = {run: results.time_to(run, TARGET) for run in results.labels}
    updates = {run: results.updates_to(run, TARGET) for run in results.labels}
    rows, grown = [], {}
    for title in ALGORITHM_TITLES.values():
        base = label(title, 100)
        cells = [title, time[base].text(".3g", " s")]
        for i, clients in enumerate(CLIENTS[1:]):
            run = label(title, clients)
            more_time, more_updates = ratio(time[run], time[base]), ratio(updates[run], updates[base])
            grown[title, clients] = more_time
            results.numbers[run, "time over that with 100 clients"] = more_time
            results.numbers[run, "updates over those with 100 clients"] = more_updates
            cells += [
                f"{more_time.text('.3g')} ({PAPER[title][2 * i]})",
                f"{more_updates.text('.3g')} ({PAPER[title][2 * i + 1]})",
            ]
        rows.append(cells)
    heads = [
        "here (paper)",
        f"time to {TARGET:.0%}, 100 clients",
        "time × 200",
        "updates × 200",
        "time × 300",
        "updates × 300",
    ]
    figure, (axes,) = panels(1)
    ours = {t: [grown[t, c] for c in CLIENTS[1:]] for t in ALGORITHM_TITLES.values()}
    paper = {t: [PAPER[t][0], PAPER[t][2]] for t in ours}
    bars(axes, ["200 clients", "300 clients"], ours, paper, f"time to {TARGET:.0%} over that with 100 clients")
    axes.axhline(1, color="0.3", linewidth=0.6)
    legend(axes, above=True)
    by_200 = {t: grown[t, 200] for t in ("Spyker", *BASELINES)}
    claims = [
        Claim(
            f"Spyker takes only 1.21 × as long with 200 clients as with 100 ({share})",
            PAPER["Spyker"][0],
            by_200["Spyker"],
            neutral=1.0,
            unit=" ×",
            kind=ClaimKind.LIMIT,
            why=why,
            again=again,
        ),
        Claim(
            f"FedAsync slows down twice as much as Spyker ({share})",
            PAPER["FedAsync"][0] / PAPER["Spyker"][0],
            ratio(by_200["FedAsync"], by_200["Spyker"]),
            neutral=1.0,
            unit=" ×",
            why=BUSY,
            again=again,
        ),
        truth(
            f"Spyker scales better than FedAsync, HierFAVG and FedAvg ({share})",
            first_of(by_200, "Spyker"),
            not_behind(by_200, "Spyker", ahead=False),
            again=again,
        ),
        truth(
            f"FedAsync scales worst ({share})",
            last_of(by_200, "FedAsync"),
            not_behind(by_200, "FedAsync", ahead=True),
            again=again,
        ),
    ]
    gains = {}
    for clients in CLIENTS[1:]:
        spyker, fedasync = label("Spyker", clients), label("FedAsync", clients)
        measured = percent_less(time[spyker], time[fedasync])
        gains[f"{clients} clients, {share}"] = gain(results.runs[spyker], results.runs[fedasync], measured, None)
    notes = f"With more clients there are {share}."
    caption = f"Time to {TARGET:.0%} with more clients, {share}. {BARS} Diamonds: the paper's."
    return Section(claims, [Table("", heads, rows)], figure, caption, {}, notes, gains)


RUNS = {
    label(title, clients): {"algorithm": name, "world.clients": [clients // 4] * 4}
    | ({"evaluation.stop-at": TARGET} if clients > 100 else {})  # other items use the runs with 100 clients, too
    for clients in CLIENTS
    for name, title in ALGORITHM_TITLES.items()
}
MORE = {label(title, clients): clients / 100 for clients in CLIENTS[1:] for title in ALGORITHM_TITLES.values()}
SCALABILITY = Item(
    name="scalability",
    paper="Tab. 5",
    shows="How time and updates to 90 % grow from 100 to 200 and 300 clients that share the same images",
    task="mnist",
    runs=RUNS,
    tell=partial(
        tell,
        share="as many images in all",
        why="each client has fewer images, so that a training moves the model less",
        again=False,
    ),
    minutes={"quick": 6, "standard": 22, "full": 1418},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
    scaled={run: {"duration": 2.0} for run in MORE},
)
SCALABILITY_EACH = Item(
    name="scalability-each",
    paper="Tab. 5, read in another way",
    shows="The same, with as many images for each client however many clients there are",
    task="mnist",
    runs=RUNS,
    tell=partial(tell, share="as many images for each", why=BUSY, again=True),
    minutes={"quick": 6, "standard": 12, "full": 500},
    sizes={
        "quick": {"duration": 8.0, "task.training-images": 6_000},
        "standard": {"duration": 40.0, "task.training-images": 6_000},
        "full": {"duration": 120.0, "task.training-images": 20_000},
    },
    scaled={run: {"task.training-images": factor} for run, factor in MORE.items()},
)
