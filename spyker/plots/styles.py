"""Line styles: each algorithm has the same colour and dashes in all figures.

The palette (Okabe and Ito) is suitable for colour-blind readers; dashes distinguish lines in greyscale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Dash: TypeAlias = str | tuple[int, tuple[int, ...]]
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS
STYLES: dict[str, tuple[str, Dash]] = {
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
"""Colour and dashes by title of the algorithm; variants with server momentum share the colour of the original."""


SHADES = (0.0, 0.5, -0.5, 0.25, -0.25, 0.65, -0.7)
"""Shades of several runs of one algorithm: the share of white, or of black if negative."""


def shade(colour: str, share: float) -> str:
    """Mix a colour with a share of white, or of black if negative."""
    end = 255 if share > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + abs(share) * (end - part)):02X}" for part in parts)


def line_styles(labels: Sequence[str], width: float = 1.8) -> list[dict[str, Any]]:
    """Return Matplotlib's line properties for each label.

    A label starts with the title of an algorithm; others get an unused style. Several runs of an algorithm have
    different shades of its colour and different dashes.
    """
    owners = [label.partition(",")[0] for label in labels]
    taken = {STYLES[owner] for owner in owners if owner in STYLES}
    free = [style for style in STYLES.values() if style not in taken]
    given: set[tuple[str, Dash]] = set()
    found: list[dict[str, Any]] = []
    for owner in owners:
        choices = free
        if owner in STYLES:
            colour, _ = own = STYLES[owner]
            dashes = {dash for _, dash in taken}
            choices = [own, *((colour, dash) for _, dash in STYLES.values() if dash not in dashes)]
        style = next((choice for choice in choices if choice not in given), (BLACK, "-"))
        given.add(style)
        before = sum(owner == other for other in owners[: len(found)])
        colour = shade(style[0], SHADES[before % len(SHADES)])
        found.append({"color": colour, "linestyle": style[1], "linewidth": width})
    return found
