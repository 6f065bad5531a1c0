"""What figures show: bands, logarithms, what was not reached, and a caption that explains them."""

import math
from typing import Any

import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from spyker.plots.curves import Curve
from spyker.plots.run_groups import RunGroups
from spyker.plots.run_plots import plot
from spyker.plots.samples import sample
from spyker.plots.styles import STYLES
from spyker.plots.sweep_figure import plot_settings


def curve(mean: list[float], *, higher: bool = True, metric: str = "accuracy", start: int = 0) -> Curve:
    count = list(range(start, start + len(mean)))
    return Curve(
        metric, higher, [float(i) for i in count], count, count, mean, [m - 0.1 for m in mean], mean, mean, 0, True
    )


def said(figure: Figure) -> str:
    text = figure.get_supxlabel()
    return " ".join(text.split())


def test_a_figure_says_what_it_shows_and_what_keeps_runs_from_being_compared() -> None:
    shown = RunGroups({"Spyker": [curve([0.1, 0.5])]}, [0.8, 0.9], "digits, 100 clients, seed 1", ["world.clients"])
    assert said(plot(shown)) == (
        "digits, 100 clients, seed 1. Lines: mean over servers; shade: worst to best server; "
        "thin grey dotted: targets 0.8 and 0.9. Not comparable: the runs differ in world.clients."
    )
    assert "bytes sent so far" in said(plot(shown, "bytes"))


@pytest.mark.parametrize(
    ("metric", "title"), [("accuracy", "Accuracy over time"), ("mse", "MSE over time"), ("mse on clients", "MSE on")]
)
def test_a_title_begins_with_a_capital_letter_or_an_abbreviation(metric: str, title: str) -> None:
    figure = plot(RunGroups({"Spyker": [curve([0.1, 0.5], metric=metric)]}, [], "a test", []))
    assert figure.axes[0].get_title(loc="left").startswith(title)


def test_targets_are_drawn_as_the_caption_says() -> None:
    figure = plot(RunGroups({"FedAvg": [curve([0.1, 0.5])]}, [0.8], "a test", []))
    own, target = figure.axes[0].lines
    assert (own.get_linestyle(), target.get_linestyle()) == (":", ":")  # so dots alone do not tell them apart
    assert (target.get_color(), target.get_linewidth() < own.get_linewidth()) == ("0.5", True)
    assert "; thin grey dotted: target 0.8." in said(figure)


def test_of_several_seeds_the_mean_and_the_range_are_drawn() -> None:
    shown = RunGroups({"A": [curve([0.0, 0.4]), curve([0.0, 0.6])], "B": [curve([0.1, 0.2])]}, [], "a test", [])
    figure = plot(shown)
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(0.5)  # type: ignore[index]
    (band,) = axes.collections  # who has one seed has no range of seeds
    heights = band.get_paths()[0].vertices[:, 1]  # type: ignore[index]
    assert heights.max() == pytest.approx(0.6)
    assert "mean over servers and 2 seeds; shade: range over seeds" in said(figure)


def test_of_several_seeds_nothing_is_drawn_before_the_first_evaluation() -> None:
    shown = RunGroups({"A": [curve([0.2, 0.4, 0.5], start=1), curve([0.4, 0.6], start=2)]}, [], "a test", [])
    drawn = plot(shown).axes[0].lines[0]
    assert drawn.get_xdata()[[0, -1]].tolist() == [2.0, 3.0]  # type: ignore[index,call-overload]
    assert drawn.get_ydata()[0] == pytest.approx(0.4)  # type: ignore[index]
    alone = RunGroups({"A": [curve([0.2], start=1), curve([0.4], start=2)]}, [], "a test", [])
    assert set(plot(alone).axes[0].lines[0].get_xdata()) == {1.0}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "higher", "scale"),
    [([900.0, 90.0], False, "log"), ([120.0, 105.0], False, "log"), ([0.1, 0.9], True, "linear")],
)
def test_where_lower_is_better_the_axis_is_logarithmic(mean: list[float], higher: bool, scale: str) -> None:
    metric = "accuracy" if higher else "perplexity"
    figure = plot(RunGroups({"Spyker": [curve(mean, higher=higher, metric=metric)]}, [], "a test", []))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2
    assert "10^" not in "".join(label.get_text() for label in axes.get_yticklabels())


def test_a_loss_of_zero_has_no_logarithm() -> None:
    figure = plot(
        RunGroups({"Spyker": [curve([1.0, 0.1], higher=False)]}, [], "a test", [])
    )  # the worst server is at 0
    assert figure.axes[0].get_yscale() == "linear"


TWO = [{"training.rate": r, "spyker.decay": d} for r in (0.1, 0.2) for d in (0.0, 0.5, 1.0)]


def crosses(axes: Any) -> list[tuple[float, float, str]]:
    """Where the crosses of a panel are, in pixels, and whose."""
    found = [line for line in axes.lines if line.get_marker() == "x"]
    return [(*line.get_transform().transform((line.get_xdata()[0], 1)), line.get_color()) for line in found]


def test_a_sweep_over_numbers_is_a_line_with_a_band_and_crosses_where_nothing_was_reached() -> None:
    points = [{"algorithm": a, "training.rate": r} for a in ("spyker", "fedasync") for r in (0.1, 0.01, 1.0)]
    reached = [sample([2.0, 4.0]), sample([None, 9.0]), sample([1.0, 1.0])]
    reached += [sample([2.0, 4.0]), sample([None, None]), sample([1.0, 1.0])]
    figure = plot_settings(points, ["Spyker"] * 3 + ["FedAsync"] * 3, {"time to 0.9": reached}, "a test")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    spyker, fedasync = (line for line in axes.lines if line.get_marker() == "o")
    assert list(spyker.get_xdata()) == [0.01, 0.1, 1.0]  # type: ignore[arg-type]
    assert list(spyker.get_ydata())[1:] == [3.0, 1.0]  # type: ignore[arg-type]
    assert [line.get_color() for line in (spyker, fedasync)] == [STYLES["Spyker"][0], STYLES["FedAsync"][0]]
    (left, height, mine), (right, same, theirs) = crosses(axes)
    assert (mine, theirs) == (STYLES["Spyker"][0], STYLES["FedAsync"][0])
    assert height == same > axes.bbox.y1  # in a band of their own, above all numbers
    assert left < axes.transData.transform((0.01, 1))[0] < right
    assert {text.get_text() for text in axes.texts} == {"not reached", "1 of 2"}
    assert axes.get_xscale() == "log"
    assert "×: not reached by all seeds, or diverged; next to it: number of seeds that reached it." in said(figure)


def test_no_line_of_a_sweep_leads_across_what_was_not_reached_and_a_point_alone_has_a_bar() -> None:
    points = [{"training.rate": r} for r in (0.1, 0.2, 0.3, 0.4)]
    nothing = sample([None, None])
    reached = [nothing, sample([2.0, 4.0]), nothing, sample([1.0, 1.0])]
    figure = plot_settings(points, ["Stride"] * 4, {"time to 0.9": reached, "final accuracy": [nothing] * 4}, "a test")
    timed, final = figure.axes
    (line,) = (line for line in timed.lines if line.get_marker() == "o")
    assert [math.isnan(y) for y in line.get_ydata()] == [True, False, True, False]  # type: ignore[union-attr]
    (bar,) = (c for c in timed.collections if isinstance(c, LineCollection))
    assert bar.get_segments()[0].tolist() == [[0.2, 2.0], [0.2, 4.0]]
    assert [text.get_text() for text in final.texts] == ["diverged"]
    assert list(final.get_yticks()) == []
    assert said(figure).startswith("Stride, a test. Lines: mean over seeds; shades and bars: range")


@pytest.mark.parametrize("keys", [("training.rate",), ("training.rate", "spyker.decay"), ("a", "b", "c")])
def test_of_a_single_seed_no_mean_is_spoken_of(keys: tuple[str, ...]) -> None:
    points = [dict.fromkeys(keys, i) for i in (1, 2)]
    for missing in (False, True):
        reached = [sample([2.0]), sample([None if missing else 3.0])]
        text = said(plot_settings(points, ["Stride"] * 2, {"time to 0.9": reached}, "a test, seed 1"))
        assert text.startswith("Stride, a test, seed 1. ")
        assert "one run each" in text.lower()
        assert "mean" not in text.lower()
        assert text.endswith(": not reached, or diverged.") == missing


def test_a_sweep_over_two_keys_is_a_heat_map_with_its_numbers() -> None:
    finals = [sample([0.1 * i]) for i in range(5)] + [sample([None])]
    figure = plot_settings(TWO, ["Spyker"] * 6, {"final accuracy": finals, "time to 0.9": finals}, "a test")
    left = figure.axes[0]
    (image,) = left.images
    shades = image.get_array()
    assert shades is not None
    assert shades.shape == (2, 3)
    assert shades[1, 1] == pytest.approx(0.4)
    assert [text.get_text() for text in left.texts] == ["0", "0.1", "0.2", "0.3", "0.4", "not reached"]
    assert (left.get_ylabel(), left.get_xlabel()) == ("training.rate", "spyker.decay")


def test_a_sweep_over_anything_else_has_a_row_per_combination() -> None:
    points = [{**point, "algorithm": "spyker"} for point in TWO]
    figure = plot_settings(points, ["Spyker"] * 6, {"final accuracy": [sample([0.5, 0.7])] * 6}, "a test")
    names = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_yticklabels()]
    assert names[:2] == ["rate = 0.1, decay = 0, spyker", "rate = 0.1, decay = 0.5, spyker"]
