"""What ``import spyker`` gives, and what it must not cost."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_digits

import spyker
from spyker.tasks.built_in.digits import stored

HEAVY = ("torch", "matplotlib", "pandas", "numpy", "rich", "sklearn", "grpc")


def loaded_by(code: str) -> set[str]:
    """Which heavy packages a program has imported at its end."""
    show = f"; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, check=True, timeout=200)
    return set(done.stdout.split())


def test_importing_it_imports_nothing_heavy() -> None:
    assert loaded_by("import spyker; spyker.__version__; dir(spyker)") == set()


def test_running_something_small_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = f"import spyker; spyker.run(task='quadratic', duration=1, out={str(tmp_path / 'a')!r}, progress=False)"
    assert not loaded_by(code) & {"torch", "matplotlib", "pandas", "sklearn", "grpc"}


def test_the_digits_come_from_scikit_learn_without_importing_it() -> None:
    assert loaded_by("from spyker.tasks.built_in.digits import stored; stored()") == {"numpy"}
    images, labels = stored()
    digits = load_digits()
    assert (images == digits.images).all()
    assert (labels == digits.target).all()
    assert (images.dtype, labels.dtype) == (digits.images.dtype, digits.target.dtype)


def test_everything_it_names_is_there_and_documented() -> None:
    assert set(spyker.__all__) <= set(dir(spyker))
    for name in spyker.__all__:
        value = getattr(spyker, name)
        assert name == "__version__" or value.__doc__


def test_what_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        spyker.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_all_that_is_imported_late() -> None:
    """What they see is what stands below TYPE_CHECKING; it must be what is imported."""
    tree = ast.parse(Path(spyker.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert seen == spyker._HOMES
    assert {*seen, "__version__"} == set(spyker.__all__)
