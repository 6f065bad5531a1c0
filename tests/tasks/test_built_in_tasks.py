"""The models, and the tasks with data: on small files made here, and on the real ones where these are."""

import importlib
import lzma
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from small_data import FILES, TEST, small, write_files
from torch import nn

from spyker.config.scenario import Training, load
from spyker.config.sections import read
from spyker.errors import UsageError
from spyker.tasks.built_in import models
from spyker.tasks.built_in.wikitext2 import perplexity
from spyker.tasks.data import unpack
from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.data.load import fetch
from spyker.tasks.data.load import load as load_data
from spyker.tasks.registry import client_labels, resolve
from spyker.tasks.task_names import BUILT_IN
from spyker.tasks.torch_task import LazyDataset, TorchTask

REAL = Path(os.environ.get("SPYKER_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.mark.parametrize(
    ("model", "inputs", "outputs", "parameters"),
    [
        (models.digits_cnn, (1, 8, 8), (10,), 1_370),
        (models.mnist_cnn, (1, 28, 28), (10,), 21_840),
        (models.cifar10_cnn, (3, 32, 32), (10,), 122_570),
    ],
)
def test_sizes_of_models(
    model: type[nn.Module], inputs: tuple[int, ...], outputs: tuple[int, ...], parameters: int
) -> None:
    made = model()
    assert sum(p.numel() for p in made.parameters()) == parameters
    assert made(torch.zeros(2, *inputs)).shape == (2, *outputs)


def test_size_of_the_text_model() -> None:
    model = models.CharacterLSTM(283)
    # embedding 283·32; LSTM 4·128·(32 + 128) + 2·4·128; output 128·283 + 283
    assert sum(p.numel() for p in model.parameters()) == 9_056 + 82_944 + 36_507
    assert model(torch.zeros(2, 7, dtype=torch.long)).shape == (2, 283, 7)


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DATASETS:
        monkeypatch.setitem(DATASETS, name, small(name))
        write_files(tmp_path / "data" / name, FILES[name]())
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))


def make(name: str, clients: int, training: Training | None = None, **options: object) -> TorchTask:
    module = importlib.import_module(BUILT_IN[name])
    task = module.make(read(module.Options, options, "task"), clients, 1, training or Training())
    assert isinstance(task, TorchTask)
    return task


OPTIONS: dict[str, dict[str, object]] = {
    "digits": {},
    "mnist": {},
    "cifar10": {},
    "wikitext2": {"sequence-length": 16, "characters-per-client": 481},
}


@pytest.mark.parametrize(("name", "rate"), [("digits", 0.1), ("mnist", 0.05), ("cifar10", 0.05), ("wikitext2", 0.5)])
@pytest.mark.usefixtures("small_data")
def test_a_little_training_changes_the_weights_and_lowers_the_loss(name: str, rate: float) -> None:
    task = make(name, 4, Training(batch_size=8, epochs=2), **OPTIONS[name])
    start = task.initial()

    def loss(weights: np.ndarray) -> float:
        task.flat.load(weights)
        inputs, targets = task.clients[1].read()
        with torch.no_grad():
            return float(task.loss(task.model(inputs), targets))

    trained = task.train(1, start, rate, 0)
    assert np.isfinite(trained).all()
    assert (trained != start).mean() > 0.5
    assert loss(trained) < loss(start)
    assert np.array_equal(task.train(1, start, rate, 0), trained)


@pytest.mark.usefixtures("small_data")
def test_mnist_is_learnt_from_stripes_and_images_are_normalised() -> None:
    task = make("mnist", 1, Training(batch_size=10, epochs=6), partition="iid")
    images, labels = task.clients[0].read()
    raw = load_data("mnist")["train-images"]
    assert images.shape == (200, 1, 28, 28)
    assert images.dtype == torch.float32
    assert torch.allclose(images[:, 0], (torch.tensor(np.array(raw)) / 255 - 0.1307) / 0.3081, atol=1e-5)
    assert labels.bincount().tolist() == [20] * 10
    assert task.evaluate(task.train(0, task.initial(), 0.1, 0)) > 0.9


@pytest.mark.usefixtures("small_data")
def test_held_back_images_judge_and_nobody_trains_on_them() -> None:
    raw = np.array(load_data("mnist")["train-images"]).reshape(200, -1)
    task = make("mnist", 3, partition="iid", **{"validation-images": 50, "training-images": 90})
    assert task.test.count == 50
    pixels = (task.test.read()[0] * 0.3081 + 0.1307).mul(255).round().reshape(50, -1).numpy()
    assert np.array_equal(pixels, raw[150:])
    assert [task.size(client) for client in range(3)] == [30] * 3
    theirs = np.concatenate([client.read()[0].reshape(30, -1).numpy() for client in task.clients])
    assert np.allclose(np.sort((theirs * 0.3081 + 0.1307).sum(1)), np.sort((raw[:90] / 255).sum(1)), atol=1e-2)
    with pytest.raises(UsageError, match=r"task\.validation-images.*200"):
        make("mnist", 3, **{"validation-images": 200})


@pytest.mark.usefixtures("small_data")
def test_images_are_not_kept_as_numbers_and_the_options_count() -> None:
    task = make("cifar10", 5, **{"images-per-client": 6, "test-images": 7})
    assert [task.size(client) for client in range(5)] == [6] * 5
    images, labels = task.clients[3].read()
    assert images.shape == (6, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert len(labels.unique()) == 2
    assert task.clients[3].read()[0] is not images
    assert task.test.count == 7
    assert make("cifar10", 5, **{"test-images": 10_000}).test.count == TEST


@pytest.mark.usefixtures("small_data")
def test_clients_have_text_of_equal_length_and_predict_the_next_character() -> None:
    task = make("wikitext2", 3, **{"sequence-length": 10, "evaluation-characters": 101})
    data = load_data("wikitext2")
    share = len(data["train"]) // 3
    assert {task.size(client) for client in range(3)} == {(share - 1) // 10}
    for client in range(3):
        inputs, targets = task.clients[client].read()
        start = client * share
        assert inputs.reshape(-1).tolist() == data["train"][start : start + inputs.numel()].tolist()
        assert targets.reshape(-1).tolist() == data["train"][start + 1 : start + 1 + inputs.numel()].tolist()
    assert task.test.count == 10
    assert (task.metric.name, task.metric.higher_is_better) == ("perplexity", False)


@pytest.mark.usefixtures("small_data")
def test_perplexity_is_that_of_a_uniform_guess_when_all_is_zero() -> None:
    task = make("wikitext2", 3, **{"sequence-length": 10})
    vocabulary = len(load_data("wikitext2")["vocabulary"])
    assert task.evaluate(np.zeros_like(task.initial())) == pytest.approx(vocabulary, rel=1e-4)
    assert perplexity(math.log(20)) == pytest.approx(20)
    assert perplexity(10_000) == perplexity(math.nan) == math.exp(700)  # a record holds finite numbers only


@pytest.mark.usefixtures("small_data")
def test_sequences_longer_than_the_text_are_refused() -> None:
    with pytest.raises(UsageError, match=r"900 is not allowed: there are 840 characters. Give at most 839"):
        make("wikitext2", 3, **{"sequence-length": 900})


def test_later_data_trains_like_data_at_hand() -> None:
    inputs, targets = torch.rand(12, 3), torch.arange(12) % 2
    results = []
    for dataset in ((inputs, targets), LazyDataset(12, lambda: (inputs, targets))):
        torch.manual_seed(0)
        task = TorchTask(nn.Linear(3, 2), [dataset], dataset, Training(), finish=lambda mean: 100 * mean)
        assert task.size(0) == 12
        trained = task.train(0, task.initial(), 0.1, 0)
        results.append((trained.tolist(), task.evaluate(trained)))
    assert results[0] == results[1]
    assert results[0][1] > 1


def test_the_labels_of_clients_are_those_that_they_train_on() -> None:
    scenario = resolve(load(None, {"task.partition": "dirichlet"}, clients=9))
    labels = client_labels(scenario)
    task = make("digits", 9, partition="dirichlet")
    assert [part.tolist() for part in labels] == [task.clients[k].read()[1].tolist() for k in range(9)]
    with pytest.raises(UsageError, match="no labels"):
        client_labels(resolve(load(None, task="quadratic")))


# The real files.

real = pytest.mark.skipif(
    not REAL.is_dir(), reason="no real data: set SPYKER_TEST_DATA to a folder with mnist/, cifar10/ and wikitext2/"
)


@real
def test_real_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYKER_DATA", str(REAL))
    assert fetch(DATASETS["mnist"]) == f"folder {REAL}"
    data = load_data("mnist")
    assert np.bincount(data["train-labels"]).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert len(data["test-labels"]) == len(data["test-images"]) == 10_000
    task = make("mnist", 100, **{"test-images": 1})
    assert {task.size(client) for client in range(100)} == {2 * (5421 // 20)}
    _, labels = task.clients[7].read()
    assert len(labels.unique()) == 2
    everything = np.asarray(data["train-images"], np.float32) / 255
    assert everything.mean() == pytest.approx(0.1307, abs=1e-4)
    assert everything.std() == pytest.approx(0.3081, abs=1e-4)


@real
def test_real_cifar10() -> None:
    """One of the six files, for they take their time to unpack; the checksum says that it is the right one."""
    file = DATASETS["cifar10"].files[-1]
    path = unpack.find(REAL / "cifar10", file)
    assert path is not None
    content = unpack.read(path, file)
    arrays = DATASETS["cifar10"].parse({f.name: content for f in DATASETS["cifar10"].files})
    DATASETS["cifar10"].arrays[2].check(arrays["test-images"])
    DATASETS["cifar10"].arrays[3].check(arrays["test-labels"])
    assert np.bincount(arrays["test-labels"]).tolist() == [1000] * 10


@real
def test_real_wikitext2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYKER_DATA", str(REAL))
    assert fetch(DATASETS["wikitext2"]) == f"folder {REAL}"
    data = load_data("wikitext2")
    alphabet = np.array([chr(c) for c in data["vocabulary"]])
    with lzma.open(REAL / "wikitext2" / "train.txt.xz", "rt", encoding="utf-8", newline="") as file:
        assert "".join(alphabet[data["train"][:500]]) == file.read(500)
    task = make("wikitext2", 100, **{"evaluation-characters": 1000})
    assert task.initial().size == 128_507
    assert 200 < task.evaluate(task.initial()) < 400


def test_batch_norm_adds_320_parameters_to_the_model_of_cifar10() -> None:
    plain, normalised = (
        sum(part.numel() for part in models.cifar10_cnn(batch_norm=given).parameters()) for given in (False, True)
    )
    assert (plain, normalised) == (122_570, 122_890)
