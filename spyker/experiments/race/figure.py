"""The race in one figure: how the accuracy rises in the two-label world, and who is when where."""

from __future__ import annotations

from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from spyker.experiments.race.bars import Standing, best_in_room, standing
from spyker.experiments.race.board import Cell
from spyker.experiments.race.lineup import Race, title
from spyker.experiments.race.worlds import OURS, TWO_LABELS
from spyker.protocol.hierfavgm import HierFAVGM
from spyker.show.looks import COLOURS
from spyker.show.paper import PRINT, dots, lines

OUR_LOOK: dict[str, Any] = {"color": COLOURS[0], "linestyle": "-", "linewidth": 2.4, "zorder": 5}
PAPERS_LOOK: dict[str, Any] = {"color": COLOURS[1], "linestyle": "-", "linewidth": 1.6}
MOMENTUM_LOOK: dict[str, Any] = {"color": COLOURS[2], "linestyle": "-", "linewidth": 1.6}
OTHER_LOOK: dict[str, Any] = {"color": COLOURS[3], "linestyle": "-", "linewidth": 1.6}
LIMIT_LOOK: dict[str, Any] = {"color": "0.35", "linestyle": "--", "linewidth": 1.4}


def figure(race: Race) -> Figure:
    """Both panels; what has not been run is missing in them."""
    places = [place for world in race.worlds if (place := standing(race, world)) is not None]
    with rc_context(PRINT):
        made = Figure(figsize=(10.0, 4.3), layout="constrained")
        left, right = made.subplots(1, 2, width_ratios=(1.15, 1))
    for axes in (left, right):
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.set_axisbelow(True)
    place = next((p for p in places if p.world.name == TWO_LABELS), None)
    if place is not None:
        shown = labelled(place)
        limit = best_in_room(race)
        if limit is not None:
            shown[f"{limit[0]} in one room: the limit"] = limit[1], LIMIT_LOOK
        curves = {label: cell.curves for label, (cell, _) in shown.items()}
        looks = {label: look for label, (_, look) in shown.items()}
        lines(left, curves, "time", "virtual time (s)", "accuracy", (place.world.target,), looks)
        left.set_title("Two labels per client, the paper's latencies", loc="left", fontsize=10)
        left.legend(frameon=False, fontsize=8, loc="lower right")
    compact = [p for p in places if p.world.compact]
    if compact:
        series: dict[str, tuple[list[float | None], dict[str, Any]]] = {
            title(OURS): ([mean(p.ours) for p in compact], OUR_LOOK),
            "best of the paper's five": ([mean(p.papers and p.papers[1]) for p in compact], PAPERS_LOOK),
            HierFAVGM.title: ([mean(p.momentum) for p in compact], MOMENTUM_LOOK),
            "best other rival": ([mean(p.other and p.other[1]) for p in compact], OTHER_LOOK),
        }
        known = {label: pair for label, pair in series.items() if any(n is not None for n in pair[0])}
        dots(right, [p.world.title for p in compact], known, "virtual time to the target, and stays (s)")
        target = f"{100 * compact[0].world.target:g} %"
        right.set_title(f"Time to {target}, every algorithm tuned", loc="left", fontsize=10)
        right.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.15), ncols=2)
    return made


def labelled(place: Standing) -> dict[str, tuple[Cell, dict[str, Any]]]:
    """Whose curves are drawn, and how."""
    found = {title(OURS): (place.ours, OUR_LOOK)}
    for pair, look in ((place.papers, PAPERS_LOOK), (place.other, OTHER_LOOK)):
        if pair is not None:
            found[pair[0]] = pair[1], look
    if place.momentum is not None:
        found[HierFAVGM.title] = place.momentum, MOMENTUM_LOOK
    return found


def mean(cell: Cell | None) -> float | None:
    """The mean time; that of whoever did not get there is the horizon."""
    return None if cell is None else cell.stays.mean().value
