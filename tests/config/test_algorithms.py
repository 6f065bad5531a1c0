"""Algorithms that are found by name, wherever they are."""

from pathlib import Path

import pytest

from spyker.algorithms.builtin import ALGORITHMS, COMPARED, OF_THE_PAPER
from spyker.config.algorithms import algorithm_code, find_algorithm
from spyker.config.scenario import dump, from_table, load
from spyker.errors import UsageError

OWN = """
from dataclasses import dataclass
from spyker import Server
from spyker.parameters import parameter

@dataclass(frozen=True, slots=True)
class Gain:
    gain: float = parameter(2.0, "by how much", above=0)

class Loud(Server):
    Parameters = Gain

    def receive(self, sender, message):
        pass

nothing = 1
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of somebody's own, and a distribution that announces what is in it."""
    (tmp_path / "own_algorithms.py").write_text(OWN)
    about = tmp_path / "loud_fl-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-fl\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[spyker.algorithms]\nloud = own_algorithms:Loud\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    find_algorithm.cache_clear()
    yield tmp_path
    find_algorithm.cache_clear()


@pytest.mark.parametrize("name", ["loud", "own_algorithms:Loud"])
def test_an_algorithm_of_somebody_elses_has_its_section_in_a_scenario(own: Path, name: str) -> None:
    scenario = load(None, {"algorithm": name, "loud.gain": 3.0})
    assert (scenario.chosen.title, scenario.chosen.name, scenario.parameters.gain) == ("Loud", "loud", 3.0)
    assert "[loud]\ngain = 3.0\n" in dump(scenario)
    assert algorithm_code(name), "results depend on its code"
    with pytest.raises(UsageError, match=r"loud\.gain: -1 is not allowed"):
        load(None, {"algorithm": name, "loud.gain": -1})


def test_every_algorithm_that_comes_with_spyker_has_its_own_name() -> None:
    assert OF_THE_PAPER == ("spyker", "sync-spyker", "fedasync", "fedavg", "hierfavg")
    assert ("stride", *OF_THE_PAPER) == COMPARED
    assert list(ALGORITHMS) == [*COMPARED, "fedbuff"]
    assert not any(algorithm_code(name) for name in ALGORITHMS)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("spiker", "Did you mean 'spyker'"),
        ("lowd", "Did you mean 'loud'"),
        ("xyz", "Write module:Class, or choose one of: stride, spyker, .*, hierfavg, .*loud"),
        ("own_algorithms:Quiet", "cannot be imported"),
        ("no_such_module:Loud", "cannot be imported"),
        ("own_algorithms:nothing", "Name a subclass of spyker.Server"),
        ("own_algorithms:Gain", "Name a subclass of spyker.Server"),
    ],
)
def test_what_is_no_algorithm_is_refused(own: Path, name: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        from_table({"algorithm": name})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "x = 1\nimport no_such_package\n",
            r"ModuleNotFoundError: No module named 'no_such_package'.*broken\.py, line 2",
        ),
        ("from spyker import Nobody\n", r"ImportError: cannot import name 'Nobody' from 'spyker'.*broken\.py, line 1"),
        ("import inner\n", r"ZeroDivisionError: division by zero.*inner\.py, line 3"),
        ("class Loud(\n", r"SyntaxError: .*never closed.*broken\.py, line 1"),
    ],
)
def test_an_error_inside_a_module_is_told_with_its_place(own: Path, text: str, complaint: str) -> None:
    (own / "broken.py").write_text(text)
    (own / "inner.py").write_text("def f():\n    import json\n    1 / 0\nf()\n")
    with pytest.raises(UsageError, match=rf'algorithm: "broken:Loud" cannot be imported: {complaint}') as caught:
        from_table({"algorithm": "broken:Loud"})
    assert "Run from the folder" not in str(caught.value)


@pytest.mark.parametrize("name", ["no_such_module:Loud", "own_algorithms.sub:Loud", "no_such.sub:Loud"])
def test_a_module_that_is_not_there_is_looked_for_from_the_right_folder(own: Path, name: str) -> None:
    with pytest.raises(UsageError, match="Run from the folder that holds the module"):
        from_table({"algorithm": name})
