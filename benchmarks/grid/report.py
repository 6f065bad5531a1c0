"""The report of the grid: one row per cell, and the limits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.grid.cells import Cell
from spyker.records import Evaluated
from spyker.sweeps.runner import run_of

ALGORITHMS = ("fedavg", "hierfavg", "stride")
MOST, OFTEN, SHARE = 0.02, 0.01, 0.95  # limits of the deficit to the better rival: in all cells, in a share of cells
CHANCE, LEARNT = 0.15, 0.25  # an accuracy up to the first is chance, one from the second on is not
LAST = 0.25  # share of the run over which scores are averaged


@dataclass(frozen=True, slots=True)
class Row:
    """Final scores of one cell, by algorithm: means over ``seeds`` runs."""

    scores: Mapping[str, float]
    seeds: int

    @property
    def rival(self) -> float:
        """The better of FedAvg and HierFAVG."""
        return max(self.scores["fedavg"], self.scores["hierfavg"])

    @property
    def margin(self) -> float:
        """The lead of Stride over the better rival."""
        return self.scores["stride"] - self.rival


def row_of(cell: Cell, root: Path, seeds: Sequence[int], published: Mapping[str, Mapping[str, float]]) -> Row:
    """Return the mean scores in a cell; a diverged run scores 0. ``published`` has those of the rivals."""
    scores = {a: statistics.fmean(final(cell, a, seed, root) for seed in seeds) for a in ran(published)}
    return Row({**published.get(str(cell), {}), **scores}, len(seeds))


def ran(published: Mapping[str, object]) -> Sequence[str]:
    """Return the algorithms that run: only Stride, if the scores of the others are published."""
    return ALGORITHMS[-1:] if published else ALGORITHMS


def published_scores(page: Path) -> dict[str, dict[str, float]]:
    """Return the scores of FedAvg and HierFAVG in the table of an earlier report, by cell."""
    rows = [line.strip("| \n").split(" | ") for line in page.read_text(encoding="utf-8").splitlines()]
    return {row[0]: dict(zip(ALGORITHMS[:2], map(float, row[1:3]), strict=True)) for row in rows if is_row(row)}


def is_row(row: Sequence[str]) -> bool:
    """Return whether a line of a report is that of a cell."""
    return len(row) == 6 and row[-1].isdecimal()


def final(cell: Cell, algorithm: str, seed: int, root: Path) -> float:
    """Return the mean over servers and over the last quarter of a run."""
    record = run_of(cell.scenario(algorithm, seed), root)
    if record is None:
        return 0.0
    scores = [(stated.t, stated.fact.mean) for stated in record.facts(Evaluated)]
    end = scores[-1][0]
    return statistics.fmean(score for t, score in scores if t > (1 - LAST) * end)


def missed(row: Row) -> bool:
    """Return whether Stride is more than a point behind."""
    return row.margin < -OFTEN


def verdict(rows: Mapping[Cell, Row]) -> str:
    """Describe in one line whether all limits are met."""
    behind = [cell for cell, row in rows.items() if row.margin < -MOST]
    within = sum(not missed(row) for row in rows.values())
    chance = [c for c, row in rows.items() if row.scores["stride"] <= CHANCE and row.rival >= LEARNT]
    met = not behind and not chance and within >= SHARE * len(rows)
    return (
        f"{'met' if met else 'missed'}: {len(rows)} cells; Stride is at most 1 point behind the better of FedAvg and "
        f"HierFAVG in {within} ({within / len(rows):.1%}), more than 2 points behind in {len(behind)}, at chance where "
        f"one of them learns in {len(chance)}; mean margin {statistics.fmean(r.margin for r in rows.values()):+.3f}"
    )


def report(rows: Mapping[Cell, Row]) -> str:
    """Return the report as Markdown."""
    parts = [
        "# The regression grid\n",
        "Stride, the default, must learn wherever FedAvg or HierFAVG learns with the same data, learning rate and "
        "optimiser. This page is written by `make grid` and not by hand. Every change of the default must pass it.\n",
        f"**Result: {verdict(rows)}.**\n",
        "Each cell is a configuration: clients per region × images per client, partition of the labels (IID, "
        "Dirichlet 0.3, two labels per client), optimiser and rate, epochs, in the four regions of the paper, for "
        "eight virtual seconds, with the defaults of each algorithm. Cells are sampled from the product of 1, 2, 5 and "
        "25 clients per region; three partitions; 60, 300 and 600 images; 1, 2 and 5 epochs; SGD, momentum, Adam and "
        "AdamW at three rates over a factor of 100; and the models, equally many of each. Cells that would train more "
        "images per round than two cores emulate in a minute are not in the sample, so 25 clients are rarer than 1.\n",
        "Models: the MNIST CNN, `digits`, and on MNIST images of 14 × 14 pixels a ResNet with BatchNorm, a "
        "transformer, logistic regression from zero weights and a perceptron that ignores the learning rate it is "
        "told; and a Flower app that does so. A score is the accuracy of the servers' models, averaged over the last "
        "quarter of the run. "
        "Cells in which Stride is more than a point behind were repeated with three seeds; the table has the means.\n",
        "## By model\n",
        summary(rows),
        "\n## Cells in which Stride is behind by more than a point\n",
        table({c: r for c, r in sorted(rows.items(), key=lambda item: item[1].margin) if missed(r)}),
        "\n## All cells\n",
        table(dict(sorted(rows.items(), key=lambda item: str(item[0])))),
    ]
    return "\n".join(parts) + "\n"


def summary(rows: Mapping[Cell, Row]) -> str:
    """Return one line per model."""
    lines = ["| model | cells | > 1 point behind | > 2 points behind | mean margin |", "|---|---:|---:|---:|---:|"]
    for model in dict.fromkeys(cell.model for cell in rows):
        some = [row for cell, row in rows.items() if cell.model == model]
        counts = [sum(row.margin < -bar for row in some) for bar in (OFTEN, MOST)]
        mean = statistics.fmean(row.margin for row in some)
        lines.append(f"| {model} | {len(some)} | {counts[0]} | {counts[1]} | {mean:+.3f} |")
    return "\n".join(lines)


def table(rows: Mapping[Cell, Row]) -> str:
    """Return one line per cell."""
    if not rows:
        return "None."
    lines = ["| cell | FedAvg | HierFAVG | Stride | margin | seeds |", "|---|---:|---:|---:|---:|---:|"]
    for cell, row in rows.items():
        scores = " | ".join(f"{row.scores[a]:.3f}" for a in ALGORITHMS)
        lines.append(f"| {cell} | {scores} | {row.margin:+.3f} | {row.seeds} |")
    return "\n".join(lines)
