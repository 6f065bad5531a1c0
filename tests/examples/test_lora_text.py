"""The example in which only adapters travel."""

import pickle
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import spyker
from spyker.config.scenario import Training

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import lora_text  # noqa: E402


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    lora_text.pretrain(path, steps=2)
    return str(path)


def adapters(base: str) -> spyker.TorchTask:
    return lora_text.adapters(2, 1, Training(optimiser="adam", batch_size=16), base, rank=2)


def test_nothing_but_adapters_travels(base: str) -> None:
    task = adapters(base)
    width = lora_text.WIDTH
    each = 2 * ((width + 3 * width) + (width + width) + 2 * (width + 4 * width))  # rank · (in + out), four matrices
    assert task.initial().size == lora_text.LAYERS * each
    assert all(name.startswith("adapters.") for name in task.layout.names)
    assert task.initial().size * 20 < lora_text.whole(2, 1, Training(), base).initial().size


def test_at_first_the_model_is_as_it_was(base: str) -> None:
    task, whole = adapters(base), lora_text.whole(2, 1, Training(), base)
    assert task.evaluate(task.initial()) == pytest.approx(whole.evaluate(whole.initial()))


def test_training_changes_adapters_and_leaves_the_model_alone(base: str) -> None:
    task = adapters(base)
    trained = task.train(0, task.initial(), 0.003, 0)
    assert not np.array_equal(trained, task.initial())
    frozen = task.model.base[0].state_dict()  # type: ignore[union-attr, index]
    before = load_file(base)
    assert torch.equal(frozen["scores.weight"], before["scores.weight"])
    assert torch.equal(frozen["blocks.0.before_attention.weight"], before["blocks.0.before_attention.weight"])
    matrix = task.model.adapters[0].frozen[0].weight  # type: ignore[union-attr, index]
    assert torch.equal(matrix, before["blocks.0.queries_keys_values.weight"])
    assert not matrix.requires_grad


def test_a_worker_trains_the_same(base: str) -> None:
    task = adapters(base)
    copy = pickle.loads(cloudpickle.dumps(task))
    assert np.array_equal(copy.train(1, task.initial(), 0.003, 4), task.train(1, task.initial(), 0.003, 4))


def test_clients_have_texts_of_their_own(base: str) -> None:
    task = adapters(base)
    texts = [dataset.read()[0] for dataset in (*task.clients, task.test)]
    assert [len(text) for text in texts] == [lora_text.CLIENT_EXAMPLES] * 2 + [lora_text.TEST_EXAMPLES]
    assert not torch.equal(texts[0], texts[1])


def test_bytes_are_saved(base: str, tmp_path: Path) -> None:
    settings = {"task.base": base, "training.optimiser": "adam", "training.rate": 0.003}
    runs = {
        name: spyker.run(
            task=getattr(lora_text, name),
            clients=4,
            duration=0.4,
            settings=settings,
            out=tmp_path / name,
            workers=0,
            progress=False,
        )
        for name in ("adapters", "whole")
    }
    sent = {name: run.summary["bytes"]["total"] / run.summary["messages"]["update"] for name, run in runs.items()}
    assert sent["adapters"] * 10 < sent["whole"]
    assert runs["adapters"].summary["updates"] >= 4
    left = load_file(tmp_path / "adapters" / "model.safetensors")
    assert left
    assert all(name.startswith("adapters.") for name in left)
