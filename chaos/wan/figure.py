"""The figure of `make wan`: accuracy over time, emulated and deployed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from chaos.wan.compare import Observed
from spyker.plots.figures import caption
from spyker.plots.styles import line_styles


def draw(runs: Mapping[str, tuple[Observed, Observed]], about: str, path: Path) -> None:
    """Draw one panel per algorithm with both curves; the caption begins with ``about``."""
    figure = Figure(figsize=(3.4 * len(runs) if len(runs) > 1 else 6.5, 3.6), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, (title, (emulated, real)), look in zip(panels, runs.items(), line_styles(list(runs)), strict=True):
        axes.plot(emulated.times, emulated.accuracy, color="0.25", linewidth=1.4, label="emulated")
        axes.plot(real.times, real.accuracy, label="real", **look)
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("time (s)")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
    panels[0].set_ylabel("accuracy, mean of the servers")
    caption(figure, f"{about}. Lines: mean of the servers, in an emulation and with real processes.")
    figure.savefig(path, dpi=150)
