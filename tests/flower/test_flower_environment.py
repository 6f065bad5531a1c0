"""The environment that ``make flower`` makes is one in which Flower's own simulation runs, too."""

from importlib.metadata import PackageNotFoundError, requires, version

import pytest
from packaging.requirements import Requirement

pytest.importorskip("flwr", reason="needs Flower: pip install 'spyker-fl[flower]'")


def test_what_flowers_simulation_requires_is_installed() -> None:
    try:
        version("ray")
    except PackageNotFoundError:
        pytest.skip("needs Ray: pip install 'flwr[simulation]'")
    wanted = [Requirement(line) for line in requires("flwr") or ()]
    chosen = [each for each in wanted if each.marker and each.marker.evaluate({"extra": "simulation"})]
    assert chosen
    assert [str(each) for each in chosen if version(each.name) not in each.specifier] == []
