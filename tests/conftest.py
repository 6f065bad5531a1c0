"""For all tests: none may see the cache or the data of whoever runs them."""

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time, and no stopwatch: the machine may be busy.
settings.register_profile("spyker", deadline=None, derandomize=True)
settings.load_profile("spyker")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SPYKER_DATA", raising=False)
    monkeypatch.setenv("SPYKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
