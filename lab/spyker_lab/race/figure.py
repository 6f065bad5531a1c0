"""The figure of the race: accuracy over time in the two-label world, and times to the target in all worlds."""

from __future__ import annotations

from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from spyker.plots.figures import caption, describe_lines, lines
from spyker.plots.run_groups import format_seeds
from spyker.plots.styles import line_styles
from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.print_figures import PRINT, dots
from spyker_lab.race.bars import Standing, best_in_room, standing
from spyker_lab.race.board import Cell
from spyker_lab.race.lineup import Race, title
from spyker_lab.race.worlds import OURS, TWO_LABELS

OUR_STYLE: dict[str, Any] = {**line_styles([title(OURS)], 2.4)[0], "zorder": 5}
# The best algorithm differs between worlds, so these styles belong to no algorithm.
PAPERS_STYLE: dict[str, Any] = {"color": "0.3", "marker": "s"}
OTHER_STYLE: dict[str, Any] = {"color": "0.65", "marker": "D"}
LIMIT_STYLE: dict[str, Any] = {"color": "0.35", "linestyle": "--", "linewidth": 1.4}


def figure(race: Race) -> Figure:
    """Draw both panels; missing runs are omitted."""
    places = [place for world in race.worlds if (place := standing(race, world)) is not None]
    with rc_context(PRINT):
        made = Figure(figsize=(10.0, 4.3), layout="constrained")
        left, right = made.subplots(1, 2, width_ratios=(1.15, 1))
    for axes in (left, right):
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.set_axisbelow(True)
    explanation: list[str] = []
    place = next((p for p in places if p.world.name == TWO_LABELS), None)
    if place is not None:
        special, curves = {title(OURS): OUR_STYLE}, {label: cell.curves for label, cell in labelled(place).items()}
        limit = best_in_room(race)
        if limit is not None:
            label = f"{limit[0]} in one room: the limit"
            special[label], curves[label] = LIMIT_STYLE, limit[1].curves
        lines(left, curves, "time", "virtual time (s)", "accuracy", (place.world.target,), special)
        explanation.append(f"Left: {place.world.settings['task.name']}, {format_seeds(place.ours.seeds)}.")
        explanation.append(describe_lines(curves, (place.world.target,)))
        left.set_title("Two labels per client, the paper's latencies", loc="left", fontsize=10)
        left.legend(frameon=False, fontsize=8, loc="lower right")
    compact = [p for p in places if p.world.compact]
    if compact:
        series: dict[str, tuple[list[tuple[float, bool] | None], dict[str, Any]]] = {
            title(OURS): ([mean(p.ours) for p in compact], OUR_STYLE),
            "best of the paper's five": ([mean(p.papers and p.papers[1]) for p in compact], PAPERS_STYLE),
            HierFAVGM.title: ([mean(p.momentum) for p in compact], line_styles([HierFAVGM.title])[0]),
            "best other rival": ([mean(p.other and p.other[1]) for p in compact], OTHER_STYLE),
        }
        known = {label: pair for label, pair in series.items() if any(n is not None for n in pair[0])}
        dots(right, [p.world.title for p in compact], known, "virtual time to the target, and stays (s)")
        target = f"{100 * compact[0].world.target:g} %"
        right.set_title(f"Time to {target}, every algorithm tuned", loc="left", fontsize=10)
        right.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.15), ncols=2)
        explanation.append("Right: means over seeds; hollow: lower bounds, because not all seeds reached the target.")
    caption(made, " ".join(explanation))
    return made


def labelled(place: Standing) -> dict[str, Cell]:
    """Return the cells whose curves are drawn, by title."""
    found = {title(OURS): place.ours, **dict(pair for pair in (place.papers, place.other) if pair is not None)}
    if place.momentum is not None:
        found[HierFAVGM.title] = place.momentum
    return found


def mean(cell: Cell | None) -> tuple[float, bool] | None:
    """Return the mean time, and whether all seeds reached the target; others count with the horizon."""
    if cell is None:
        return None
    found = cell.stays.mean()
    return found.value, not found.mark
