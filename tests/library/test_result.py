"""What a run says of itself."""

import json
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import spyker
from spyker.errors import UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> spyker.Run:
    folder = tmp_path_factory.mktemp("run") / "a"
    return spyker.run(task="quadratic", duration=4, clients=8, settings={"training.rate": 0.2}, out=folder)


def lines(run: spyker.Run, kind: str) -> list[dict[str, object]]:
    facts = [json.loads(line) for line in (run.folder / "facts.jsonl").read_text().splitlines()]
    return [fact for fact in facts if fact["kind"] == kind]


def test_facts_are_frames(run: spyker.Run) -> None:
    updates = lines(run, "update")
    assert list(run.updates.columns) == [name for name in updates[0] if name != "kind"]
    assert run.updates["t"].tolist() == [fact["t"] for fact in updates]
    assert run.updates["queue"].min() >= 1
    assert run.merges["peer"].tolist() == [fact["peer"] for fact in lines(run, "merge")]
    assert run.frame("token")["bid"].tolist() == [fact["bid"] for fact in lines(run, "token")]
    assert run.frame("cloud-round").empty


def test_the_curve_is_indexed_by_time(run: spyker.Run) -> None:
    evaluations = lines(run, "evaluation")
    assert run.curve.index.name == "t"
    assert run.curve.index.tolist() == [fact["t"] for fact in evaluations]
    assert list(run.curve.columns) == ["updates", "bytes", "mean", "worst", "best", "averaged"]
    assert run.evaluations[[f"server {i}" for i in range(4)]].to_numpy().tolist() == [f["servers"] for f in evaluations]


def test_when_a_target_was_reached(run: spyker.Run) -> None:
    first = next(fact for fact in lines(run, "evaluation") if fact["mean"] >= 0.3)  # type: ignore[operator]
    hit = run.reached(0.3)
    assert hit is not None
    assert (hit.time, hit.updates) == (first["t"], first["updates"])
    assert run.reached(1.1) is None


def test_a_plot_is_a_figure_that_notebooks_show_and_files_hold(run: spyker.Run, tmp_path: Path) -> None:
    figure = run.plot(tmp_path / "plot.svg")
    assert isinstance(figure, Figure)
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert figure.axes[0].get_xlabel() == "virtual time (s)"
    assert run.plot(against="updates").axes[0].get_xlabel() == "client updates applied"
    with pytest.raises(UsageError, match=r"path: cannot write .*/none/a\.png \(No such file or directory\)\. Choose"):
        run.plot(tmp_path / "none" / "a.png")
    with pytest.raises(ValueError, match="Choose time, updates or bytes"):
        run.plot(against="weather")


def test_it_says_what_it_is(run: spyker.Run) -> None:
    score = run.curve["mean"].iloc[-1]
    assert repr(run).startswith(f"<Run: stride on quadratic, covered {score:.3f} after 4 s and ")
    assert repr(run).endswith(f" updates ({run.folder})>")
    assert "<th>final covered</th>" in run._repr_html_()
    assert f"<td>{score:.3f}</td>" in run._repr_html_()


def test_a_run_that_has_hardly_begun_can_be_looked_at(tmp_path: Path, run: spyker.Run) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "scenario.toml").write_bytes((run.folder / "scenario.toml").read_bytes())
    young = spyker.Run(tmp_path / "a")
    assert "no evaluations yet" in repr(young)
    assert young.updates.empty


def test_without_pandas_it_says_what_to_install(run: spyker.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not there
    with pytest.raises(ImportError, match=r"pip install pandas$"):
        spyker.Run(run.folder).updates  # noqa: B018
    assert repr(spyker.Run(run.folder)).startswith("<Run")
