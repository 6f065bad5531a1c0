"""What ``import spyker`` gives, and what it must not cost."""

import subprocess
import sys
from pathlib import Path

import pytest

import spyker

HEAVY = ("torch", "matplotlib", "pandas", "numpy", "rich", "sklearn", "grpc")


def loaded_by(code: str) -> set[str]:
    """Which heavy packages a program has imported at its end."""
    show = f"; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_it_imports_nothing_heavy() -> None:
    assert loaded_by("import spyker; spyker.__version__; dir(spyker)") == set()


def test_running_something_small_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = f"import spyker; spyker.run(task='quadratic', duration=1, out={str(tmp_path / 'a')!r}, progress=False)"
    assert not loaded_by(code) & {"torch", "matplotlib", "pandas", "sklearn", "grpc"}


def test_everything_it_names_is_there_and_documented() -> None:
    assert set(spyker.__all__) <= set(dir(spyker))
    for name in spyker.__all__:
        value = getattr(spyker, name)
        assert name == "__version__" or value.__doc__


def test_what_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        spyker.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_what_is_imported_late(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import spyker\nrun = spyker.run(duration=1)\nreveal_type(run)\nreveal_type(run.reached(0.9))\n"
        "reveal_type(spyker.TorchTask)\nreveal_type(run.curve)\nspyker.run(durration=1)\n"
    )
    root = Path(spyker.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", f"--config-file={root / 'pyproject.toml'}",
         f"--cache-dir={root / '.mypy_cache'}", "mine.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert 'mine.py:3: note: Revealed type is "spyker.library.result.Run"' in done.stdout
    assert "Reached" in done.stdout.splitlines()[1]
    assert "def (model: torch.nn" in done.stdout
    assert "DataFrame" in done.stdout
    assert 'Unexpected keyword argument "durration"' in done.stdout
