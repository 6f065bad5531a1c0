import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from spyker.plots import progress_bar
from spyker.plots.fetch_progress import FetchProgress
from spyker.plots.label_plot import count_labels, plot_labels


def test_labels_are_counted_per_client() -> None:
    counts = count_labels([np.array([0, 0, 3]), np.array([1])])
    assert counts.tolist() == [[2, 0, 0, 1], [0, 1, 0, 0]]


@pytest.mark.parametrize("clients", [1, 100, 3000])
def test_the_picture_of_labels(tmp_path: Path, clients: int) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (clients, 10))
    regions = [("Paris", clients - clients // 2), ("Sydney", clients // 2)]
    path = plot_labels(counts, regions, "who has what", tmp_path / "new" / "labels.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in path.parent.iterdir()] == ["labels.png"]


def test_fetching_is_told_step_by_step_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=60)
    clock = iter([0.0, 0.0, 0.0, 1.0, 8.0, 8.0, 9.0, 9.0])
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(clock))
    with FetchProgress("mnist", console) as progress:
        progress("downloading", 0, 0)
        progress("downloading", 5_000_000, 9_000_000)
        progress("downloading", 8_000_000, 9_000_000)
        progress("unpacking", 0, 0)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text == "mnist: downloading\nmnist: downloading (8 of 9 MB) · 1 s left\nmnist: unpacking\n"


def test_fetching_moves_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with FetchProgress("mnist", console) as progress:
        progress("downloading x", 5_000_000, 9_000_000)
    assert "downloading x" in console.file.getvalue()  # type: ignore[attr-defined]
