"""A deployment's model, usable without Spyker."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from spyker.cli.main import main
from spyker.config.scenario import Training, load
from spyker.net.checkpoints import Checkpoints
from spyker.net.server_config import layout_numbers
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ModelSpec
from spyker.tasks.torch_task import TorchTask


def small_model():
    """Convolutions, whose weights lie channels-last in the vector, a bias, and floating-point buffers."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))


@pytest.fixture
def task():
    random = torch.Generator().manual_seed(2)
    data = (torch.randn(60, 3, 8, 8, generator=random), torch.randint(0, 5, (60,), generator=random))
    return TorchTask(small_model(), [data], data, Training())


@pytest.fixture
def save(tmp_path):
    def write(server, task, weights, version=3):
        numbers = {
            "id": server,
            "layout": layout_numbers(ModelSpec.of(task)),
            "server": {"age": version + 0.5, "version": version, "weights": {"array": "weights"}},
        }
        folder = tmp_path / f"state-{server}"
        Checkpoints(folder, keep=2).save(numbers, {"weights": weights, "average": weights * 0})
        return str(folder)

    return write


def equal(state, expected):
    assert list(state) == list(expected)
    for name, tensor in state.items():
        assert tensor.shape == expected[name].shape
        assert torch.equal(tensor, expected[name]), name


def test_the_exported_state_is_the_tasks_own(task, save, tmp_path, capsys):
    weights = task.train(0, task.initial(), 0.1, 0)
    folder = save(2, task, weights)
    assert main(["export", folder, "--out", str(tmp_path / "model")]) == 0
    expected = task.state_dict(weights)
    equal(torch.load(tmp_path / "model.pt", weights_only=True), expected)
    by_name = load_file(tmp_path / "model.safetensors")
    equal({name: by_name[name] for name in expected}, expected)
    assert capsys.readouterr().out.splitlines() == [
        "server 2: version 3, age 3.5",
        str(tmp_path / "model.safetensors"),
        str(tmp_path / "model.pt"),
    ]


def test_a_plain_module_evaluates_the_same(task, save, tmp_path):
    weights = task.train(0, task.initial(), 0.1, 0)
    main(["export", save(0, task, weights), "--out", str(tmp_path / "model")])
    for state in (torch.load(tmp_path / "model.pt", weights_only=True), load_file(tmp_path / "model.safetensors")):
        plain = small_model()
        plain.load_state_dict(state)
        plain.eval()
        inputs, targets = task.test.read()
        with torch.no_grad():
            correct = (plain(inputs).argmax(1) == targets).float().mean().item()
        assert correct == pytest.approx(task.evaluate(weights))


def test_the_files_load_where_spyker_is_not(task, save, tmp_path):
    main(["export", save(0, task, task.initial()), "--out", str(tmp_path / "model")])
    code = (
        "import sys; sys.modules['spyker'] = None\n"
        "import torch; state = torch.load('model.pt', weights_only=True)\n"
        "from safetensors.torch import load_file; other = load_file('model.safetensors')\n"
        "assert all(torch.equal(state[name], other[name]) for name in other) and len(state) == len(other)\n"
        "print(state['0.weight'].shape, state['0.weight'].is_contiguous())"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.stdout == "torch.Size([4, 3, 3, 3]) True\n", done.stderr


def test_several_servers_are_averaged(task, save, tmp_path):
    size = task.initial().size
    folders = [save(i, task, np.full(size, value, np.float32)) for i, value in enumerate((1, 2, 6))]
    assert main(["export", *folders, "--out", str(tmp_path / "mean")]) == 0
    state = torch.load(tmp_path / "mean.pt", weights_only=True)
    assert all(torch.allclose(tensor, torch.tensor(3.0)) for tensor in state.values())


def test_one_server_can_be_chosen(task, save, tmp_path):
    size = task.initial().size
    folders = [save(i, task, np.full(size, value, np.float32)) for i, value in enumerate((1, 2, 6))]
    assert main(["export", *folders, "--server", "2", "--out", str(tmp_path / "one")]) == 0
    state = torch.load(tmp_path / "one.pt", weights_only=True)
    assert all((tensor == 6).all() for tensor in state.values())


def test_the_latest_checkpoint_counts(task, save, tmp_path):
    size = task.initial().size
    for version in (1, 2, 3):
        folder = save(0, task, np.full(size, version, np.float32), version)
    main(["export", folder, "--out", str(tmp_path / "model")])
    assert (torch.load(tmp_path / "model.pt", weights_only=True)["4.bias"] == 3).all()


def test_a_task_without_a_torch_model_is_one_vector(save, tmp_path):
    task = task_spec(resolve(load(None, {"task.dimension": 7}, task="quadratic", clients=4))).make()
    weights = np.arange(7, dtype=np.float32)
    main(["export", save(0, task, weights), "--out", str(tmp_path / "model")])
    assert torch.load(tmp_path / "model.pt", weights_only=True)["weights"].tolist() == weights.tolist()


def test_existing_files_are_replaced_only_when_asked(task, save, tmp_path, capsys):
    command = ["export", save(0, task, task.initial()), "--out", str(tmp_path / "model")]
    (tmp_path / "model.pt").write_text("precious")
    assert main(command) == 2
    assert "model.pt exists already" in capsys.readouterr().err
    assert (tmp_path / "model.pt").read_text() == "precious"
    assert not (tmp_path / "model.safetensors").exists()
    assert main([*command, "--overwrite"]) == 0
    torch.load(tmp_path / "model.pt", weights_only=True)


def test_what_is_no_state_folder_is_refused(task, save, tmp_path, capsys):
    remedy = "Name a folder made by spyker run --out, or a server's state folder"
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    for name, problem in (
        ("nowhere", "does not exist"),
        ("notes", "contains neither a run record nor a server's state"),
        ("file", "is a file"),
    ):
        for others in ([], [save(0, task, task.initial())]):
            assert main(["export", *others, str(tmp_path / name), "--out", str(tmp_path / "model")]) == 2
            assert capsys.readouterr().err == f"spyker: {tmp_path / name} {problem}. {remedy}\n"


def test_a_folder_above_records_says_which_there_are(tmp_path, capsys):
    for run in ("stride", "fedavg"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "scenario.toml").touch()
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "model")]) == 2
    assert f"{tmp_path} contains several runs. Name one of them: stride, fedavg" in capsys.readouterr().err


def test_a_server_that_has_not_saved_yet_is_told_from_a_folder_of_something_else(tmp_path, capsys):
    Checkpoints(tmp_path / "state", 2).close()
    assert main(["export", str(tmp_path / "state"), "--out", str(tmp_path / "model")]) == 2
    assert "state holds no checkpoint. Give the state folder of a server that has saved one" in capsys.readouterr().err


def test_servers_that_do_not_belong_together_are_refused(task, save, tmp_path, capsys):
    other = TorchTask(nn.Sequential(nn.Flatten(), nn.Linear(192, 12)), task.clients, task.test, Training())
    folders = [save(0, task, task.initial()), save(1, other, other.initial())]
    assert main(["export", *folders, "--out", str(tmp_path / "model")]) == 2
    assert "hold different models" in capsys.readouterr().err
    assert main(["export", folders[0], folders[0], "--out", str(tmp_path / "model")]) == 2
    assert "both server 0's" in capsys.readouterr().err
    assert main(["export", *folders, "--server", "5", "--out", str(tmp_path / "model")]) == 2
    assert "none of these folders is server 5's. Choose one of [0, 1]" in capsys.readouterr().err
