"""The figure of a drill: merges of each server over time, and the faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from chaos.drill.server_records import ServerRecords
from spyker.plots.figures import caption
from spyker.plots.styles import BLUE, GREEN, PURPLE, SKY, VERMILION
from spyker.protocol.facts import Merged

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, SKY)
BIN = 5.0


def draw(records: ServerRecords, events: Sequence[tuple[float, float, str]], path: Path) -> None:
    """Draw one panel per server with its merges in every five seconds; faults are shaded."""
    merges: dict[int, list[float]] = {i: [] for i in sorted({record.server for record in records.servers})}
    for record in records.servers:
        merges[record.server] += [at for at, _ in record.facts(Merged)]
    zero = min(record.facts_read[0].at for record in records.servers if record.facts_read)
    end = max(record.facts_read[-1].at for record in records.servers if record.facts_read) - zero
    figure = Figure(figsize=(11, 1.1 * len(merges) + 2.6), layout="constrained")
    strips = figure.subplots(len(merges), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (server, times), colour in zip(strips, merges.items(), COLOURS, strict=False):
        bins = int(end / BIN) + 1
        counts = [0] * bins
        for at in times:
            counts[min(bins - 1, int((at - zero) / BIN))] += 1
        axes.bar([BIN * (i + 0.5) for i in range(bins)], counts, width=BIN, color=colour, linewidth=0)
        for since, until, what in events:
            affected = f"server {server}" in what or (what.startswith("link") and str(server) in what)
            axes.axvspan(
                since - zero,
                max(until, since + 1) - zero,
                color="0.6" if affected else "0.88",
                alpha=0.6,
                zorder=0,
                linewidth=0,
            )
        axes.set_ylabel(f"server {server}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, end)
    top = strips[0]
    for since, _, what in events:
        text = what.replace(", with the token", " (token)")
        top.annotate(
            text,
            (since - zero, 1.02),
            xycoords=("data", "axes fraction"),
            fontsize=6.5,
            rotation=40,
            ha="left",
            va="bottom",
        )
    strips[-1].set_xlabel("time (s)")
    caption(
        figure,
        f"Merges of other servers' models in every {BIN:g} s, by server. Grey: from the fault to its end, or to the "
        "start of the new server; darker for the affected server.",
    )
    figure.savefig(path, dpi=150)
