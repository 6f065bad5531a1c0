"""One bar, in three places: a terminal, a notebook, and where there is neither."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from spyker.plots import progress_bar
from spyker.plots.progress_bar import ProgressBar


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain() -> Console:
    return Console(file=io.StringIO(), width=60)


def test_lines_come_now_and_then_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    console, clock = plain(), [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: clock[0])
    with ProgressBar("sweep", 100.0, console) as progress:
        for second in range(1, 13):
            clock[0] = float(second)
            if progress.due():
                progress.show(second, f"{second} [of] 100 runs")
    assert text(console) == "sweep: 5 [of] 100 runs · 95 s left\nsweep: 10 [of] 100 runs · 90 s left\n"


def test_what_was_over_at_once_makes_no_line() -> None:
    console = plain()
    with ProgressBar("run", 1.0, console) as progress:
        progress.show(1.0, "done", last=True)
    assert text(console) == ""


def test_a_terminal_has_a_bar_which_may_leave_nothing_behind() -> None:
    console = Console(file=io.StringIO(), width=140, force_terminal=True)
    with ProgressBar("run", 2.0, console) as progress:
        progress.show(1.0, "half [way]")
    assert "half [way]" in text(console)
    assert "━" in text(console)


def test_a_narrow_terminal_has_room_for_every_number() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    status = "t 31.3/100 s · 6,911 updates · accuracy 0.973 · 47 syncs"
    with ProgressBar("Stride", 100.0, console) as progress:
        progress.show(31.3, status)
    assert f"left {status}" in text(console)
    assert "━" not in text(console)


NOTEBOOK = """
import spyker
from spyker.plots import progress_bar
progress_bar.REFRESH_SECONDS = 0  # every fact, however fast the machine is
run = spyker.run(task="quadratic", duration=3, clients=8, workers=0)
run
"""


def test_a_notebook_shows_one_bar_the_run_and_its_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real kernel; no widgets are needed."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(Path(progress_bar.__file__).parents[2]))
    cells = [nbformat.v4.new_code_cell(source) for source in (NOTEBOOK, "run.plot()")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown, result = notebook.cells[0].outputs
    assert "<progress" in shown["data"]["text/html"]
    assert "t 3.0/3 s" in shown["data"]["text/html"]  # the last of many: each replaced the one before
    assert "final covered" in result["data"]["text/html"]
    assert result["data"]["text/plain"].startswith("<Run: stride on quadratic")
    assert "image/png" in notebook.cells[1].outputs[0]["data"]
