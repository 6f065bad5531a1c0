"""Personalised parameters in the emulator."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import spyker
from spyker.errors import UsageError

QUICK: dict[str, Any] = {"task": "digits", "clients": 4, "duration": 1.5, "progress": False}
PERSONAL = {"evaluation.by": "clients", "evaluation.interval": 0.25, "training.personal": ["4.*"]}


def facts(run: spyker.Run) -> bytes:
    return (run.folder / "facts.jsonl").read_bytes()


def test_clients_keep_their_head_with_any_number_of_workers_and_report_both_scores(tmp_path: Path) -> None:
    here = spyker.run(**QUICK, settings=PERSONAL, workers=0, out=tmp_path / "here")
    there = spyker.run(**QUICK, settings=PERSONAL, workers=2, out=tmp_path / "there")
    assert facts(here) == facts(there)
    assert load_file(here.folder / "model.safetensors").keys() == {"0.weight", "0.bias"}, "the head stays with clients"
    last = {fact.client: fact.scores for _, fact, _ in here.facts("client-evaluation")}
    assert len(last) == 4
    for scores in last.values():
        assert scores.keys() == {"accuracy", "shared accuracy"}
    mean = {name: sum(scores[name] for scores in last.values()) / 4 for name in ("accuracy", "shared accuracy")}
    assert mean["accuracy"] > mean["shared accuracy"] + 0.3, "a head that was never trained knows nothing"


def test_the_setting_is_part_of_the_record(tmp_path: Path) -> None:
    run = spyker.run(**QUICK | {"duration": 0.2}, settings={"training.personal": ["4.*"]}, out=tmp_path / "run")
    assert 'personal = ["4.*"]' in (run.folder / "scenario.toml").read_text("utf-8")


def test_a_wrong_pattern_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.personal.*The model has 0\.weight, 0\.bias, 4\.weight, 4\.bias"):
        spyker.run(**QUICK, settings={"training.personal": ["head.*"]}, out=tmp_path / "run")
