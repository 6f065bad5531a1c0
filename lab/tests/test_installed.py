"""What the lab adds to Spyker when it is installed, and what is said when it is not."""

import json
import tomllib
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

import pytest

import spyker
from spyker.cli.main import main
from spyker.config import name_lookup
from spyker.config.algorithms import find_algorithm
from spyker.config.scenario import load
from spyker.errors import UsageError
from spyker.tasks.kernels import find_kernel
from spyker_lab.algorithms import RIVALS
from spyker_lab.native.kernel import kernel_for

ABOUT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the entry points of the lab."""

    def others(group: str) -> EntryPoints:
        return EntryPoints(entry for entry in entry_points(group=group) if not entry.value.startswith("spyker_lab."))

    monkeypatch.setattr(name_lookup, "entry_points", others)
    find_algorithm.cache_clear()


def test_its_algorithms_and_its_kernel_are_found_by_name() -> None:
    assert [find_algorithm(rival.name) for rival in RIVALS] == list(RIVALS)
    assert find_kernel("native") is kernel_for


def test_its_commands_are_commands_of_spyker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    assert "latency" in {entry["item"] for entry in json.loads(capsys.readouterr().out)}
    assert main(["race", "--only", "unevne"]) == 2
    assert "Did you mean 'uneven'?" in capsys.readouterr().err


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize("command", ["reproduce", "race"])
def test_without_it_a_command_says_what_to_install(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--list"]) == 2
    said = capsys.readouterr().err
    assert f'COMMAND: "{command}" is not installed. Run pip install spyker-fl-lab, or make in the repository' in said


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize(
    "settings", [{"training.kernel": "native"}, *({"algorithm": rival.name} for rival in RIVALS)], ids=str
)
def test_without_it_a_scenario_says_what_to_install(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"is not installed\. Run pip install spyker-fl-lab"):
        load(None, settings)


def test_the_library_knows_what_to_name() -> None:
    """The remedy is given for just what the lab registers."""
    offered = {group: set(names) for group, names in ABOUT["entry-points"].items()}
    assert offered == {group: set(names) for group, names in name_lookup.LAB.items()}
    for group, names in ABOUT["entry-points"].items():
        for name, value in names.items():
            assert EntryPoint(name, value, group).load()


def test_it_belongs_to_one_version_of_the_library() -> None:
    assert ABOUT["version"] == spyker.__version__
    assert f"spyker-fl[simulation]=={spyker.__version__}" in ABOUT["dependencies"]
