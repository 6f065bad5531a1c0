"""What the command line says about Flower apps; most of it needs no Flower."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from spyker.api.read_scenario import read_scenario
from spyker.net.server_config import learning_digest

HELPERS = Path(__file__).parents[1] / "helpers"
WITHOUT = "import sys; sys.modules['flwr'] = None; from spyker.cli.main import main\n"


def without_flower(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    code = f"{WITHOUT}sys.exit(main({list(command)!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("command", ["run", "up"])
def test_who_has_no_flower_is_told_what_to_install(command: str, tmp_path: Path) -> None:
    done = without_flower(tmp_path, command, "--flower", "mine.client_app:app", "--clients", "4")
    assert done.returncode == 2
    assert "Install it: pip install 'spyker-fl[flower]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_task_and_an_app_are_one_too_many(tmp_path: Path) -> None:
    done = without_flower(tmp_path, "run", "--flower", "mine.client_app:app", "--task", "digits")
    assert (done.returncode, "--task: digits is not allowed: --flower names another" in done.stderr) == (2, True)


@pytest.mark.skipif(find_spec("flwr") is None, reason="needs Flower: pip install 'spyker-fl[flower]'")
@pytest.mark.parametrize("world", ["run", "up"])
@pytest.mark.timeout(300)
def test_an_app_that_raises_is_named_with_its_client_and_its_last_line(world: str, tmp_path: Path) -> None:
    settings = ["task.model=tiny_apps:model", 'world.regions=["Paris"]', "world.clients=[2]"]
    words = [word for setting in settings for word in ("--set", setting)]
    more = ["--workers", "0"] if world == "run" else ["--insecure"]
    command = [
        world,
        "--flower",
        "tiny_apps:failing",
        *words,
        "--duration",
        "60",
        *more,
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "spyker", *command], cwd=HELPERS, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 1, done.stderr
    assert "LookupError: the disk of this client is empty" in done.stderr
    assert "client 0" in done.stderr or "clients 0, 1" in done.stderr


def test_clients_may_differ_in_their_node_config_alone() -> None:
    def digest(**options: str) -> bytes:
        settings = {f"task.{key.replace('_', '-')}": value for key, value in ({"app": "mine:app"} | options).items()}
        return learning_digest(read_scenario(task="flower", settings=settings))

    assert digest(node_config='data="here"') == digest(node_config='data="there"')
    assert digest(run_config="epochs=1") != digest(run_config="epochs=2")
