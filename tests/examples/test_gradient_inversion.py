"""A curious server reconstructs an image from one update, and neither from a sum nor from a private update."""

import importlib
from pathlib import Path
from types import ModuleType

import matplotlib.image
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ITERATIONS = 150


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("gradient_inversion")


@pytest.mark.parametrize("network", ["fully connected", "convolutional"])
def test_the_image_is_recognised_in_one_update_only(example: ModuleType, network: str) -> None:
    original, *seen = example.attack(network, ITERATIONS).values()
    assert example.recognised(original, 0)
    assert [example.recognised(image, 0) for image in seen] == [True, False, False]


def test_the_picture_has_a_row_for_each_model(example: ModuleType, tmp_path: Path) -> None:
    pixels, _ = example.images()
    columns = dict(zip("abcd", pixels, strict=False))
    example.draw({"one": columns, "two": columns}, str(tmp_path / "a.png"))
    height, width, _ = matplotlib.image.imread(tmp_path / "a.png").shape
    assert width > height > 100
