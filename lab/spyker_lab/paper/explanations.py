"""The explanation of the measured gains: the model of :mod:`spyker_lab.paper.speed`, and the effect of thresholds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.figure import Figure

from spyker.plots.figures import caption
from spyker_lab.paper.item import Section, Table
from spyker_lab.paper.speed import Gain, ObservedPace
from spyker_lab.print_figures import legend, panels

RULE = """\
FedAsync and Spyker mix in every update when it arrives, `W += w(W_k − W)`. The update was trained from the model
that its client received a round trip ago, so it partly undoes what the server has learnt since. Let Δ
be the progress of one training, r the updates of a server per second and N its clients. Then a server moves at
`v = r·w·Δ/(1 + w·N)`: at most Δ per round trip of a client, whatever the weights are. The speeds of several servers do
not add up, since they average their models; Spyker is faster as far as its clients' round trips are shorter. The table
shows the clients' updates and weights in these runs (Spyker / FedAsync), the predicted gain, the gain if Spyker's
servers moved by a whole Δ per round trip, as with the largest weights, and the measured gain in time to 90 %, with
95 % intervals."""
BEYOND = """\
The model ignores data and noise: a server that mixes the updates of a quarter of the clients is noisier than
one that mixes all, and needs longer to an accuracy though it moves as fast."""
THRESHOLDS = """**The thresholds have no effect** with the paper's parameters in the paper's world: when the token
arrives, the condition on h_inter and h_intra holds already. Counted here:"""
PACED = """The token's way round the ring paces the exchange, not the drift of the models
([differences](../concepts/differences.md), 10)."""
CAPTION = (
    "Less time than FedAsync to 90 %, by the model and measured; on the line they agree. "
    "Diamonds are the paper's, whiskers intervals of 95 %."
)


def gains(sections: Iterable[Section]) -> dict[str, Gain]:
    """Return all comparisons of Spyker and FedAsync, by name."""
    return {name: found for section in sections for name, found in section.gains.items()}


def figure(found: Mapping[str, Gain]) -> Figure:
    """Draw predicted against measured gains."""
    drawn, (axes,) = panels(1, height=4.2)
    known = {name: gain for name, gain in found.items() if gain.predicted.mean is not None}
    measured = {name: gain for name, gain in known.items() if gain.measured.mean is not None}
    for i, (name, gain) in enumerate(measured.items()):
        x, y, interval = gain.predicted.mean, gain.measured.mean, gain.measured.interval
        assert x is not None
        assert y is not None
        half = None if interval is None else (interval[1] - interval[0]) / 2
        axes.errorbar(x, y, yerr=half, marker="os^vPX*hpd"[i % 10], color=f"C{i % 10}", capsize=2, label=name)
    papers = [(gain.predicted.mean or 0.0, gain.paper) for gain in known.values() if gain.paper is not None]
    axes.scatter(
        [x for x, _ in papers], [y for _, y in papers], marker="D", s=22, facecolor="white", edgecolor="black", zorder=3
    )
    axes.axline((0, 0), slope=1, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_xlabel("less time than FedAsync, predicted (%)")
    axes.set_ylabel("less time than FedAsync, measured (%)")
    if measured:
        legend(axes)
    caption(drawn, CAPTION)
    return drawn


def rates(paces: Sequence[ObservedPace], what: str, form: str) -> str:
    """Format the mean over seeds."""
    return f"{statistics.fmean(getattr(p, what) for p in paces):{form}}" if paces else "–"


def table(found: Mapping[str, Gain]) -> Table:
    """Return the table of observed rates, predictions and measurements."""
    heads = ["Spyker beside FedAsync", "updates of a client per s", "mean weight", "predicted", "at most", "measured"]
    rows = []
    for name, gain in found.items():
        pair = gain.spyker, gain.fedasync
        cells = [" / ".join(rates(p, what, form) for p in pair) for what, form in (("trips", ".2f"), ("weight", ".3f"))]
        interval = gain.measured.interval
        measured = gain.measured.text(".3g", " %")
        if gain.measured.mean is not None and interval is not None:
            measured = f"{gain.measured.mean:.3g} % ({interval[0]:.3g} to {interval[1]:.3g})"
        rows.append([name, *cells, gain.predicted.text(".3g", " %"), gain.limit.text(".3g", " %"), measured])
    return Table("", [*heads, "paper"], [[*row, paper(gain)] for row, gain in zip(rows, found.values(), strict=True)])


def paper(gain: Gain) -> str:
    """Return the paper's number as text."""
    return "–" if gain.paper is None else f"{gain.paper:g} %"


def beyond_rule(found: Mapping[str, Gain]) -> str:
    """Name the paper's gains that exceed the limit of its own rule."""
    excessive = []
    for name, gain in found.items():
        if gain.paper is not None and gain.limit.mean is not None and gain.limit.mean < gain.paper:
            excessive.append(f"{gain.paper:g} % ({name}; at most {gain.limit.mean:.3g} %)")
    return f"Beyond what the paper's own rule allows in its own world: {', '.join(excessive)}. " if excessive else ""


def apart(found: Mapping[str, Gain]) -> str:
    """Describe the difference between predictions and measurements."""
    pairs = [(g.predicted.mean, g.measured.mean) for g in found.values()]
    off = [m - p for p, m in pairs if p is not None and m is not None]
    if not off:
        return ""
    return (
        f"Over {len(off)} comparisons the measured gain differs from the predicted one by {statistics.fmean(off):+.3g} "
        f"points on average, and by {max(map(abs, off)):.3g} at most. "
    )


def thresholds(sections: Iterable[Section]) -> str:
    """Describe how often the thresholds h_inter and h_intra delayed an exchange."""
    runs = {key: counts for section in sections for key, counts in section.tokens.items()}
    counted = []
    for network in dict.fromkeys(network for network, _ in runs):
        counts = [count for (where, _), count in runs.items() if where == network]
        arrived, at_once = (sum(count[i] for count in counts) for i in (0, 1))
        if arrived:
            counted.append(
                f"with {network} it arrived {arrived:,} times in {len(counts)} runs, and {at_once:,} times "
                f"({at_once / arrived:.1%}) a synchronisation started in the same moment"
            )
    return f"{THRESHOLDS} {'; '.join(counted)}. {PACED}\n" if counted else ""


def section(sections: Sequence[Section], picture: str) -> str:
    """Return the section of the report; empty without a comparison."""
    found, parts = gains(sections), []
    if found:
        parts = [RULE + "\n", table(found).markdown(), beyond_rule(found) + apart(found) + BEYOND + "\n"]
        parts.append(f"![{CAPTION}]({picture})\n\n{CAPTION}\n")
    if text := thresholds(sections):
        parts.append(text)
    return "\n".join(["## Why\n", *parts]) if parts else ""
