from pathlib import Path

import pytest

from spyker.own_code import code_digest, is_own, value_digest

FILES = {
    "top.py": "import numpy, helper\nfrom package import inner\nimport no_such_module\n",
    "helper.py": "import top  # round in a circle\n",
    "stranger.py": "",
    "package/__init__.py": "",
    "package/inner.py": "def late():\n    from .deeper import thing\n    from .. import nowhere\n",
    "package/deeper.py": "thing = 1\n",
    "package/unused.py": "",
    "broken.py": "def",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_the_digest_follows_what_is_imported_and_nothing_else(name: str, folder: Path) -> None:
    before = code_digest("top:make")
    assert len(before) == 64
    assert code_digest("top:make") == before
    (folder / name).write_text(FILES[name] + "# changed\n")
    changes = name not in ("stranger.py", "package/unused.py", "broken.py")
    assert (code_digest("top:make") != before) == changes


def test_line_endings_do_not_change_the_digest(folder: Path) -> None:
    before = code_digest("top:make")
    (folder / "top.py").write_bytes(FILES["top.py"].replace("\n", "\r\n").encode())
    assert code_digest("top:make") == before


def test_what_another_environment_has_installed_is_not_the_users(folder: Path) -> None:
    (folder / "other" / "site-packages").mkdir(parents=True)
    (folder / "other" / "site-packages" / "far.py").write_text("")
    (folder / "near.py").write_text("")
    assert is_own(folder / "near.py")
    assert not is_own(folder / "other" / "site-packages" / "far.py")


def test_code_that_is_not_the_users_has_no_digest(folder: Path) -> None:
    for name in ("digits", "json:loads", "numpy:array", "spyker.tasks.task:Task", "no_such_module:x", "sklearn.base:x"):
        assert code_digest(name) == ""
    assert code_digest("broken:make") != ""
    assert code_digest("package.inner:late") != ""


PROGRAM = """
import functools, json, threading
import numpy as np
import stranger
scale, unused, names, lock = 2.0, 1, {"a", "b", "c"}, threading.Lock()
data = {"x": np.arange(3.0), "rows": [(1, "one"), (2, "two")]}
class Base:
    def step(self): return scale
class Model(Base):
    kind = "model"
    @property
    def width(self): return self.step() * 2
    @functools.lru_cache
    def deep(self): return [name for name in names if name != "c"]
def outer(shift):
    def inner(x, by=3): return Model().width + x * by + shift, data, lock, stranger, json
    return inner
made = outer(5)
"""


def digest_of_program(*change: str) -> str:
    text = PROGRAM.replace(*change) if change else PROGRAM
    assert change == () or text != PROGRAM
    space: dict[str, object] = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend("")
        exec(compile(text, "program.py", "exec"), space)
    return value_digest(space["made"])


def test_a_function_of_a_program_has_the_same_digest_wherever_it_stands(folder: Path) -> None:
    before = digest_of_program()
    assert len(before) == 64
    assert digest_of_program() == before
    assert digest_of_program("\nclass Model", "\n# a comment\n\nclass Model") == before
    assert digest_of_program("unused, names", "more, names") == before


@pytest.mark.parametrize(
    "change",
    [
        ("outer(5)", "outer(6)"),
        ("by=3", "by=4"),
        ("x * by", "x + by"),
        ("= 2.0, 1", "= 2.5, 1"),
        ('"c"}', '"d"}'),
        ("arange(3.0)", "arange(4.0)"),
        ('"two"', '"three"'),
        ('kind = "model"', 'kind = "other"'),
        ("return scale", "return -scale"),
        ("self.step() * 2", "self.step() * 3"),
        ('!= "c"', '!= "b"'),
        (", stranger, json", ", stranger"),
    ],
)
def test_what_a_function_of_a_program_depends_on_changes_its_digest(folder: Path, change: tuple[str, str]) -> None:
    assert digest_of_program(*change) != digest_of_program()


def test_the_source_of_a_module_that_a_program_uses_counts(folder: Path) -> None:
    before = digest_of_program()
    (folder / "stranger.py").write_text("# changed\n")
    assert digest_of_program() != before
