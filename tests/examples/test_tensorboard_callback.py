"""The example that tells TensorBoard a run, named on the command line."""

from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.records import Evaluated, RunRecord

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = ["run", "--task", "quadratic", "--duration", "3", "--clients", "8", "--quiet", "--out", "a", "--callback"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)


def test_tensorboard_has_every_evaluation() -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    assert main([*RUN, "tensorboard_callback:TensorBoard=logs"]) == 0
    told = reading.EventAccumulator("logs/stride-seed-1").Reload().Scalars("score/mean")
    there = [fact for _, fact, _ in RunRecord(Path("a")).facts(Evaluated)]
    assert [each.step for each in told] == [fact.updates for fact in there]
    assert [each.value for each in told] == pytest.approx([fact.mean for fact in there])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tensorbord", '--callback: "tensorbord" is not allowed'),
        ("tensorboard_callback:Nobody", "has no 'Nobody'"),
        ("tensorboard_callback:__doc__=logs", "Name a function that makes a callback"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_written(
    name: str, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "_callback" in name:
        pytest.importorskip("tensorboard")
    assert main([*RUN, name]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
