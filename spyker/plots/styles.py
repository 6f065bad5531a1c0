"""How runs are drawn: an algorithm has one colour and one kind of line, the same in every figure.

The colours are distinguishable with any colour vision (Okabe and Ito), and lines by their dashes without any colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Dash: TypeAlias = str | tuple[int, tuple[int, ...]]
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS
LOOKS: dict[str, tuple[str, Dash]] = {
    "Stride": (VERMILION, "-"),
    "Spyker": (BLUE, "--"),
    "Sync-Spyker": (SKY, (0, (5, 1))),
    "FedAsync": (GREEN, "-."),
    "FedAvg": (PURPLE, ":"),
    "HierFAVG": (ORANGE, (0, (8, 2))),
    "FedBuff": (BLACK, (0, (3, 1, 1, 1))),
    "FADAS": (BLACK, (0, (5, 2, 1, 2, 1, 2))),
    "AsyncFedED": (SKY, (0, (3, 3))),
    "FedAsyncM": (GREEN, (0, (8, 2, 2, 2))),
    "FedAvgM": (PURPLE, (0, (1, 1))),
    "HierFAVGM": (ORANGE, (0, (3, 1, 1, 1, 1, 1))),
}
"""By an algorithm's title; those with momentum have the colour of those without."""


SHADES = (0.0, 0.5, -0.5, 0.25, -0.25, 0.65, -0.7)
"""Of the runs of one algorithm: how far each is from its colour, towards white, or, below zero, towards black."""


def shade(colour: str, share: float) -> str:
    """A colour, so far on its way to white or to black."""
    end = 255 if share > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + abs(share) * (end - part)):02X}" for part in parts)


def line_styles(labels: Sequence[str], width: float = 1.8) -> list[dict[str, Any]]:
    """What Matplotlib is told of each run. A label begins with an algorithm's title, or else gets a look that is free.

    Several runs of an algorithm have shades of its colour and other dashes.
    """
    owners = [label.partition(",")[0] for label in labels]
    taken = {LOOKS[owner] for owner in owners if owner in LOOKS}
    free = [look for look in LOOKS.values() if look not in taken]
    given: set[tuple[str, Dash]] = set()
    found: list[dict[str, Any]] = []
    for owner in owners:
        choices = free
        if owner in LOOKS:
            colour, _ = own = LOOKS[owner]
            dashes = {dash for _, dash in taken}
            choices = [own, *((colour, dash) for _, dash in LOOKS.values() if dash not in dashes)]
        look = next((choice for choice in choices if choice not in given), (BLACK, "-"))
        given.add(look)
        before = sum(owner == other for other in owners[: len(found)])
        found.append({"color": shade(look[0], SHADES[before % len(SHADES)]), "linestyle": look[1], "linewidth": width})
    return found
