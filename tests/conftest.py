"""No test may see the cache or the data of whoever runs the tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SPYKER_DATA", raising=False)
    monkeypatch.setenv("SPYKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
