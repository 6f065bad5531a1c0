"""Plot of the label distribution over clients, grouped by region."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from spyker.records.files import replacing


def count_labels(clients: Sequence[npt.ArrayLike]) -> npt.NDArray[np.int64]:
    """Return the number of examples by client (row) and label (column)."""
    most = max(int(np.max(labels)) for labels in clients)
    return np.stack([np.bincount(np.asarray(labels), minlength=most + 1) for labels in clients])


def plot_labels(counts: npt.NDArray[np.int64], regions: Sequence[tuple[str, int]], title: str, path: Path) -> Path:
    """Draw the amount of data per client (upper panel) and its labels (lower panel).

    Args:
        counts: examples by client (row) and label (column).
        regions: name and number of clients of each region, in the order of the rows.
        title: title of the figure.
        path: PNG file to write.

    Returns:
        ``path``.

    """
    clients, labels = counts.shape
    figure = Figure(figsize=(max(7.2, min(16.0, clients / 12)), 4.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3.5))
    edges = np.arange(clients + 1) - 0.5
    above.stairs(counts.sum(axis=1), edges, fill=True, color="0.6")
    above.set_ylabel("images")
    above.set_ylim(bottom=0)
    above.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    shades = below.imshow(counts.T, aspect="auto", origin="lower", cmap="Blues", interpolation="nearest", vmin=0)
    below.set_ylabel("label")
    below.set_yticks(range(labels))
    below.set_xlabel("client")
    below.set_xlim(-0.5, clients - 0.5)
    figure.colorbar(shades, ax=below, label="images of the label", pad=0.01)
    start = 0
    for name, size in regions:
        above.text(start + size / 2 - 0.5, 1.04, name, ha="center", transform=above.get_xaxis_transform(), fontsize=9)
        if start:
            for axes in (above, below):
                axes.axvline(start - 0.5, color="#D55E00", linewidth=1.2)
        start += size
    above.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    return path
