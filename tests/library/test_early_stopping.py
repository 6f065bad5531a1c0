"""A run ends when it gets no better, if somebody asks for it."""

from pathlib import Path
from typing import Any

import pytest

import spyker
from spyker.errors import UsageError
from spyker.records import Evaluated, RunStarted

QUICK: dict[str, Any] = {"task": "quadratic", "duration": 3.0, "clients": 8, "progress": False, "workers": 0}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluations(run: spyker.Run) -> list[tuple[float, Evaluated]]:
    return [(t, fact) for t, fact, _ in run.record.facts(Evaluated)]


def test_early_stopping_ends_a_run_that_gets_no_better() -> None:
    stopping = spyker.EarlyStopping(0.5, min_delta=0.5)
    options = QUICK | {"duration": 30.0, "settings": {"evaluation.interval": 0.25}}
    run = spyker.run(out="a", callbacks=[stopping], **options)
    assert not run.finished
    assert stopping.stopped == pytest.approx(evaluations(run)[-1][0])
    scores = [fact.mean for _, fact in evaluations(run)]
    assert max(scores[-3:]) - scores[-3] <= 0.5


@pytest.mark.parametrize(("higher", "stopped"), [(True, [3.0, 3.5]), (False, [])])
def test_early_stopping_knows_what_is_better(higher: bool, stopped: list[float]) -> None:
    stopping = spyker.EarlyStopping(2.0)
    start = RunStarted(1, "0", "a", "A", "t", "m", higher, [], [], 1, 1, [], 1.0, "emulated", None, None)
    ends = [stopping.fact(0.0, start)]
    for t, score in ((0.5, 5.0), (1.0, 6.0), (2.0, 4.0), (2.5, float("nan")), (3.0, 3.0), (3.5, 2.0)):
        ends.append(stopping.fact(t, Evaluated(0, 0, score, score, score, score, [score])))
    assert [t for t, end in zip((0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 3.5), ends, strict=True) if end] == stopped


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"patience": 1, "min_delta": -1}, {"patience": 1, "score": "top"}])
def test_early_stopping_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        spyker.EarlyStopping(**wrong)


def test_patience_in_a_scenario_ends_at_the_same_event_every_time() -> None:
    settings = {"evaluation.interval": 0.5, "evaluation.patience": 1.0, "training.rate": 1e-12}
    for out, workers in (("a", 0), ("b", 2)):
        run = spyker.run(out=out, settings=settings, **(QUICK | {"duration": 30.0, "workers": workers}))
        assert run.finished, "that is its end"
        assert [t for t, _ in evaluations(run)] == [0.0, 0.5, 1.0, 1.5], "decided one evaluation late"
    assert Path("a/facts.jsonl").read_bytes() == Path("b/facts.jsonl").read_bytes()
