"""Figures for print show what was not measured as such."""

from typing import Any

from matplotlib.colors import to_hex

from spyker.plots.figures import caption
from spyker.plots.samples import SeedSample, sample
from spyker.plots.styles import STYLES
from spyker_lab.paper.comparisons import greater_than
from spyker_lab.print_figures import bars, dots, panels


def drawn_bars(samples: dict[str, list[SeedSample]]) -> Any:
    _, (axes,) = panels(1)
    bars(axes, ["here"], samples, {}, "time (s)")
    return axes


def test_what_was_not_reached_is_no_bar_of_zero_but_an_outline_and_a_word() -> None:
    axes = drawn_bars(
        {"Spyker": [sample([20.0, 22.0])], "FedAsync": [sample([greater_than(40.0)] * 2)], "FedAvg": [sample([None])]}
    )
    solid = {to_hex(p.get_facecolor()): p.get_height() for p in axes.patches if p.get_facecolor()[3]}
    assert solid[STYLES["Spyker"][0].lower()] == 21
    assert 0 not in solid.values()
    outlines = [p for p in axes.patches if not p.get_facecolor()[3]]
    assert [(to_hex(p.get_edgecolor()), p.get_height()) for p in outlines] == [
        (STYLES["FedAsync"][0].lower(), 40),
        (STYLES["FedAvg"][0].lower(), 0),
    ]
    assert [text.get_text() for text in axes.texts] == ["> 40", "not reached"]


def test_bars_have_the_colours_of_their_algorithms_wherever_they_stand() -> None:
    alone, beside = drawn_bars({"FedAsync": [sample([1.0])]}), drawn_bars({a: [sample([1.0])] for a in STYLES})
    colours = [to_hex(patch.get_facecolor()) for patch in beside.patches]
    assert colours == [colour.lower() for colour, _ in STYLES.values()]
    assert to_hex(alone.patches[0].get_facecolor()) == colours[list(STYLES).index("FedAsync")]


def test_a_dot_that_is_only_a_bound_is_hollow() -> None:
    _, (axes,) = panels(1)
    dots(axes, ["x", "y"], {"Stride": ([(3.0, True), (15.0, False)], {"color": "#D55E00"})}, "time (s)")
    filled = {line.get_xdata()[0]: line.get_color() for line in axes.lines if len(line.get_xdata()) == 1}  # type: ignore[arg-type, index]
    assert filled == {3.0: "#D55E00", 15.0: "white"}


def test_a_caption_takes_no_room_from_what_is_drawn() -> None:
    figure, _ = panels(1)
    before = figure.get_figheight()
    caption(figure, "word " * 80)
    assert figure.get_figheight() > before + 0.3
    assert all(len(line) < 100 for line in figure.get_supxlabel().split("\n"))
