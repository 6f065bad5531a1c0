import io
import math
from pathlib import Path

import pytest
from recording import judged, started, write
from rich.console import Console

from spyker.api.result import Run
from spyker.plots import progress_bar
from spyker.plots.curves import Curve, curve
from spyker.plots.run_groups import RunGroups, group_runs
from spyker.plots.run_plots import plot_all
from spyker.plots.run_progress import LiveProgress
from spyker.plots.table import as_markdown, print_table, rows
from spyker.protocol.facts import SyncStarted, UpdateApplied
from spyker.records import Evaluated, RecordError, RunRecord


def made(mean: list[float], higher: bool = True) -> Curve:
    n = len(mean)
    times, counts = [float(i) for i in range(n)], [10 * i for i in range(n)]
    worse = [m - 0.1 for m in mean]
    return Curve("accuracy", higher, times, counts, [1_000_000 * c for c in counts], mean, worse, mean, mean, 3, True)


def shown(targets: list[float], **lines: list[list[float]]) -> RunGroups:
    return RunGroups({label: [made(mean) for mean in seeds] for label, seeds in lines.items()}, targets, "a test", [])


def test_a_target_is_reached_at_the_first_evaluation_that_is_as_good() -> None:
    assert made([0.1, 0.9, 0.8, 0.95]).reached(0.9) == (1.0, 10)
    assert made([0.1, 0.9]).reached(0.91) is None
    assert made([9.0, 5.0, 4.0], higher=False).reached(5.0) == (1.0, 10)


@pytest.mark.parametrize(
    ("mean", "higher", "first", "holds"),
    [
        ([0.1, 0.91, 0.89, 0.9, 0.95], True, 1.0, 3.0),  # it dips below once
        ([0.1, 0.9, 0.95], True, 1.0, 1.0),
        ([0.95, 0.96], True, 0.0, 0.0),
        ([0.1, 0.95, 0.2], True, 1.0, None),  # it was there, and is no longer
        ([0.1, 0.2], True, None, None),
        ([9.0, 0.8, 1.5, 0.9], False, 1.0, 3.0),  # lower is better
    ],
)
def test_the_first_crossing_and_the_first_that_holds(
    mean: list[float], higher: bool, first: float | None, holds: float | None
) -> None:
    noisy = made(mean, higher)
    hit, held = noisy.reached(0.9), noisy.held(0.9)
    assert (hit and hit[0]) == first
    assert (held and held[0]) == holds


def test_other_scores_than_the_mean_can_be_asked_for() -> None:
    curve = made([0.1, 0.5, 0.9])
    assert curve.reached(0.4, curve.worst) == (1.0, 10)
    assert curve.held(0.8, curve.worst) == (2.0, 20)


def printed(width: int, heads: list[str], body: list[list[str]], words: int = 1) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_table(heads, body, words, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_table_fits_into_80_columns_and_cuts_nothing() -> None:
    text = printed(80, *rows(shown([0.9, 0.95], **{"Sync-Spyker": [[0.1, 0.912345, 0.95]]})))
    for cell in ("Sync-Spyker", "1.00 s", "2.00 s", "0.950", "0.850", "20.0"):
        assert cell in text
    assert "…" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_what_is_too_wide_comes_in_several_tables(width: int) -> None:
    label = "Sync-Spyker, 200 clients, delay-ms.std = 60, second/sync-spyker"
    heads, body = rows(shown([0.8, 0.9, 0.95], **{label: [[0.1, 0.85, 0.95], [0.1, 0.9, 0.951]]}))
    text = printed(width, heads, body)
    assert "…" not in text
    assert all(cell in text for cell in body[0][1:])
    assert max(map(len, text.splitlines())) <= width
    assert text.replace("\n", "").count("Sync") >= 2  # each table names the run


def test_the_table_as_markdown() -> None:
    lines = as_markdown(*rows(shown([0.9], A=[[0.1, 0.95]], B=[[0.1, 0.2]]))).splitlines()
    assert lines[0] == "| algorithm | time to 0.9 | updates to 0.9 | final accuracy | worst server | sent MB |"
    assert lines[2] == "| A | 1.00 s | 10 | 0.950 | 0.850 | 10.0 |"
    assert lines[3] == "| B | – | – | 0.200 | 0.100 | 10.0 |"


def test_of_several_seeds_the_table_has_means_and_deviations() -> None:
    _, [cells] = rows(shown([0.9, 0.99], A=[[0.1, 0.92, 0.92], [0.1, 0.2, 0.94], [0.1, 0.2, 0.99]]))
    assert cells[1:3] == ["1.67 ± 0.58 s", "17 ± 6"]
    assert cells[3:5] == ["– (1 of 3 seeds)", "– (1 of 3 seeds)"]
    assert cells[5] == "0.950 ± 0.036"


NOTE = "± is the standard deviation over seeds"


def test_a_table_with_deviations_says_that_they_are() -> None:
    one, two = (shown([], A=[[0.1, 0.9]] * seeds) for seeds in (1, 2))
    assert as_markdown(*rows(two)).endswith(f"|\n\n{NOTE}.\n")
    assert [line.strip() for line in printed(80, *rows(two)).splitlines()].count(f"{NOTE}.") == 1
    assert "±" not in as_markdown(*rows(one)) + printed(80, *rows(one))


def test_plots_are_pictures(tmp_path: Path) -> None:
    pictures = plot_all(shown([0.9], A=[[0.1, 0.95]], B=[[0.1, 0.2]]), tmp_path / "new")
    assert [p.name for p in pictures] == ["accuracy-time.png", "accuracy-updates.png", "bytes.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") and p.stat().st_size > 10_000 for p in pictures)


def test_a_run_without_any_evaluation_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no evaluation"):
        curve(RunRecord(write(tmp_path / "a", started(), [])))
    with pytest.raises(RecordError, match="no facts yet"):
        group_runs([RunRecord(write(tmp_path / "b", None, []))])


def test_a_run_that_was_killed_is_shown_as_what_it_is(tmp_path: Path) -> None:
    start = started(metric="perplexity", higher_is_better=False, targets=[90.0])
    killed = RunRecord(
        write(tmp_path / "a", start, [(float(t), judged(t, score)) for t, score in ((0, 120.0), (1, 80.0))])
    )
    drawn = group_runs([killed])
    assert (list(drawn.lines), drawn.first.metric, drawn.first.reached(90.0)) == (["Spyker"], "perplexity", (1.0, 1))
    heads, [cells] = rows(drawn)
    assert "final perplexity" in heads
    assert cells[0] == "Spyker (stopped early)"
    assert plot_all(drawn, tmp_path)[0].name == "perplexity-time.png"


def test_a_federation_that_was_stopped_has_not_stopped_early(tmp_path: Path) -> None:
    record = RunRecord(write(tmp_path / "a", started(began=1.0), [(1.0, judged(1, 0.5))]))
    _, [cells] = rows(group_runs([record]))
    assert cells[0] == "Spyker"
    (tmp_path / "a" / "scenario.toml").write_text('algorithm = "spyker"\n[task]\nname = "quadratic"\n')
    assert "stopped early" not in repr(Run(tmp_path / "a"))


def test_a_run_whose_score_is_not_a_number_is_shown(tmp_path: Path) -> None:
    nan = float("nan")
    facts = [(0.0, judged(0, 0.25)), (1.0, judged(10, nan)), (2.0, judged(20, nan))]
    drawn = group_runs([RunRecord(write(tmp_path / "a", started(), facts))])
    assert [None if math.isnan(score) else score for score in drawn.first.mean] == [0.25, None, None]
    assert "nan" in as_markdown(*rows(drawn))
    assert drawn.first.reached(0.5) is None
    assert all(p.stat().st_size > 10_000 for p in plot_all(drawn, tmp_path))


def test_progress_shows_time_updates_score_synchronisations_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120)
    clock = iter([0.0, 1.0, 2.0, 3.0, 20.0, 20.0])
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(clock))
    with LiveProgress("Spyker", 60.0, "accuracy", console) as live:
        live.fact(1.0, UpdateApplied(0, 0, 0.0, 1.0, 1.0, 1, 0.05))
        live.fact(2.0, SyncStarted(0, 1))
        live.fact(3.0, SyncStarted(1, 1))  # the same one, started by another server as well
        live.fact(15.0, Evaluated(1, 0, 0.123, 0.1, 0.2, 0.1, [0.1]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    # 15 of 60 virtual seconds took 20 s, so 60 s are left.
    assert text == "Spyker: t 15.0/60 s · 1 updates · accuracy 0.123 · 1 syncs · 60 s left\n"


def test_progress_moves_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with LiveProgress("Spyker", 60.0, "accuracy", console) as live:
        live.fact(60.0, Evaluated(7, 0, 0.5, 0.5, 0.5, 0.5, [0.5]))
    assert "t 60.0/60 s" in console.file.getvalue()  # type: ignore[attr-defined]
