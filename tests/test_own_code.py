from pathlib import Path

import pytest

from spyker.own_code import code_digest, is_own

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


def test_what_another_environment_has_installed_is_not_the_users(folder: Path) -> None:
    (folder / "other" / "site-packages").mkdir(parents=True)
    (folder / "other" / "site-packages" / "far.py").write_text("")
    (folder / "near.py").write_text("")
    assert is_own(folder / "near.py")
    assert not is_own(folder / "other" / "site-packages" / "far.py")


def test_code_that_is_not_the_users_has_no_digest(folder: Path) -> None:
    for name in ("digits", "json:loads", "numpy:array", "spyker.learn.task:Task", "no_such_module:x", "sklearn.base:x"):
        assert code_digest(name) == ""
    assert code_digest("broken:make") != ""
    assert code_digest("package.inner:late") != ""
