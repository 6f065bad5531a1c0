"""Readings: which interpretation of the paper reproduces its main result, 61 % less time than FedAsync?

The paper leaves open how its data was split, with which learning rate, and which model's accuracy it plots.
``readings`` tries some on MNIST; ``sensitivity`` changes one thing at a time, on
the embedded digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spyker.plots.samples import SeedSample
from spyker_lab.paper.comparisons import percent_less
from spyker_lab.paper.item import Item, Results, Section, Settings, Table
from spyker_lab.paper.items.latency import NETWORKS
from spyker_lab.paper.speed import gain
from spyker_lab.print_figures import BARS, bars, legend, panels

TARGET, PAPER = 0.9, 61.0
BY_MEAN = "less time than FedAsync, mean of servers (%)"
BY_AVERAGE = "less time than FedAsync, averaged model (%)"
NO_STALENESS: dict[str, object] = {"spyker.staleness-exponent": 0.0, "fedasync.staleness-exponent": 0.0}
SHARED = "IID"  # other items use the same runs
SPLITS: dict[str, dict[str, object]] = {
    SHARED: {"task.partition": "iid"},
    "l = 2": {"task.partition": "pathological"},
    "l = 2, regions differ": {"task.partition": "pathological", "task.grouped": True},
    "IID, η_init = 0.5": {"task.partition": "iid", "training.rate": 0.5},
    "IID, no weight for staleness": {"task.partition": "iid", **NO_STALENESS},
    "l = 2, no weight for staleness": {"task.partition": "pathological", **NO_STALENESS},
}
# Changes, one at a time: of both Spyker and FedAsync, or of one of them.
BOTH: dict[str, dict[str, object]] = {
    "as it stands": {},
    "l = 2": {"task.partition": "pathological"},
    "l = 2, regions differ": {"task.partition": "pathological", "task.grouped": True},
    "η_init = 0.05": {"training.rate": 0.05},
    "η_init = 0.5": {"training.rate": 0.5},
    "5 local epochs": {"training.epochs": 5},
    "batches of 4": {"training.batch-size": 4},
    "σ = 60 ms": {"training.delay-ms": "heterogeneous"},
    "no weight for staleness (a = 0)": NO_STALENESS,
    "a = 0.25": {"spyker.staleness-exponent": 0.25, "fedasync.staleness-exponent": 0.25},
    "a = 1": {"spyker.staleness-exponent": 1.0, "fedasync.staleness-exponent": 1.0},
    "uniform latency": {"world.uniform-latency": True},
    "uniform between regions": NETWORKS["uniform between regions"],
}
FEDASYNC_ONLY: dict[str, dict[str, object]] = {
    "server in Paris": {"world.server-region": 1},
    "server in Sydney": {"world.server-region": 2},
    "server in California": {"world.server-region": 3},
}
SPYKER_ONLY: dict[str, dict[str, object]] = {
    "no decay": {"spyker.decay": 0.0},
    "β = 0.05": {"spyker.decay": 0.05},
    "η_i = 0.3": {"spyker.client-rate": 0.3},
    "η_i = 1": {"spyker.client-rate": 1.0},
    "η_a = 1": {"spyker.peer-rate": 1.0},
    "exchange often (h_inter = 1)": {"spyker.h-inter": 1.0},
    "exchange rarely (h_inter = 50)": {"spyker.h-inter": 50.0},
}


def compare(results: Results, readings: Mapping[str, tuple[str, str]], caption: str, notes: str = "") -> Section:
    """Return for each reading how much less time Spyker takes, by the servers' mean and by the averaged model."""
    rows, gains = [], {}
    for reading, (spyker, fedasync) in readings.items():
        results.final(spyker), results.final(fedasync)  # for the CSV file
        theirs = results.time_to(fedasync, TARGET)
        mean, averaged = results.time_to(spyker, TARGET), results.averaged_to(spyker, TARGET)
        gains[reading] = by_mean, by_average = percent_less(mean, theirs), percent_less(averaged, theirs)
        results.numbers[reading, BY_MEAN] = by_mean
        results.numbers[reading, BY_AVERAGE] = by_average
        cells = [theirs.text(".3g", " s"), mean.text(".3g", " s"), averaged.text(".3g", " s")]
        rows.append([reading, *cells, by_mean.text(".3g", " %"), by_average.text(".3g", " %")])
    notes = " ".join([*([notes] if notes else []), largest(gains)])
    figure, (axes,) = panels(1, height=3.4)
    ours = {
        "mean of the servers": [pair[0] for pair in gains.values()],
        "averaged model": [pair[1] for pair in gains.values()],
    }
    axes.set_ylim(-100, 100)
    bars(axes, list(gains), ours, {}, "less time to 90 % than FedAsync (%)")
    axes.axhline(PAPER, color="0.3", linewidth=0.7, linestyle="--")
    axes.axhline(0, color="0.3", linewidth=0.6)
    axes.tick_params(axis="x", labelrotation=90)
    figure.set_size_inches(max(5.0, 0.42 * len(gains)), 4.4)
    legend(axes, above=True)
    heads = [
        "reading",
        "FedAsync",
        "Spyker, mean of servers",
        "Spyker, averaged model",
        "less time, mean",
        "less time, averaged",
    ]
    return Section([], [Table("", heads, rows)], figure, f"{caption} {BARS} They end at −100 %.", {}, notes)


def largest(gains: Mapping[str, tuple[SeedSample, SeedSample]]) -> str:
    """Describe the reading with the largest gain. The best of many is partly chance, so this is not a claim."""
    words = []
    for i, by in enumerate(("the mean of the servers", "the average of their models")):
        known = {reading: pair[i].mean for reading, pair in gains.items() if pair[i].mean is not None}
        if known:
            best = max(known, key=lambda reading: known[reading] or 0.0)
            words.append(f"by {by} “{best}” ({known[best]:.3g} %)")
    found = " and ".join(words) if words else "none that got so far"
    return f"The largest gain is shown {found}; the paper's is {PAPER:g} %. The largest of many is partly luck."


def tell_readings(results: Results) -> Section:
    """Return the section about data splits and other settings on MNIST."""
    readings = {split: (f"Spyker, {split}", f"FedAsync, {split}") for split in SPLITS}
    caption = "Less time than FedAsync to 90 % on MNIST, by reading; the dashed line is the paper's 61 %."
    gains = {}
    section = compare(results, readings, caption)
    for split, (spyker, fedasync) in readings.items():
        if split != SHARED:
            runs = results.runs[spyker], results.runs[fedasync]
            gains[split] = gain(*runs, results.numbers[split, BY_MEAN], None)
    return replace(section, gains=gains)


def tell_sensitivity(results: Results) -> Section:
    """Return the section about one change at a time on digits."""
    readings = {name: (f"Spyker, {name}", f"FedAsync, {name}") for name in BOTH}
    base = "as it stands"
    readings |= {name: (f"Spyker, {base}", f"FedAsync, {name}") for name in FEDASYNC_ONLY}
    readings |= {name: (f"Spyker, {name}", f"FedAsync, {base}") for name in SPYKER_ONLY}
    caption = "The same on digits, one thing changed at a time; the dashed line is the paper's 61 % on MNIST."
    notes = "As it stands: IID data, η_init = 0.2, one epoch, the single server in Hongkong."
    return compare(results, readings, caption, notes)


STOP: Settings = {"evaluation.stop-at": TARGET, "evaluation.interval": 0.5}
READINGS = Item(
    name="readings",
    paper="Tab. 6",
    shows="Under which split of the data, rate and weight for staleness the paper's 61 % appears on MNIST",
    task="mnist",
    runs={
        f"{title}, {split}": {**settings, "algorithm": name}
        | ({} if split == SHARED else {"evaluation.stop-at": TARGET})
        for split, settings in SPLITS.items()
        for name, title in (("spyker", "Spyker"), ("fedasync", "FedAsync"))
    },
    tell=tell_readings,
    minutes={"quick": 4, "standard": 5, "full": 700},
    sizes={"quick": {"duration": 8.0}, "standard": {"duration": 40.0}, "full": {"duration": 120.0}},
    # some never reach it
    scaled={f"{title}, {s}": {"duration": 0.5} for title in ("Spyker", "FedAsync") for s in SPLITS if s != SHARED},
)
ONE: Settings = {**STOP, "training.rate": 0.2, "duration": 30.0}
SENSITIVITY = Item(
    name="sensitivity",
    paper="Tab. 6",
    shows="What changes Spyker's lead over FedAsync, one thing at a time, on digits",
    task="digits",
    runs={f"Spyker, {n}": {**ONE, **s, "algorithm": "spyker"} for n, s in (BOTH | SPYKER_ONLY).items()}
    | {f"FedAsync, {n}": {**ONE, **s, "algorithm": "fedasync"} for n, s in (BOTH | FEDASYNC_ONLY).items()},
    tell=tell_sensitivity,
    minutes={"quick": 4, "standard": 4, "full": 8},
)
