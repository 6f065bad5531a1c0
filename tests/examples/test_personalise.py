"""The measurement of personal heads, at miniature size."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "personalise.py"


def test_it_prints_a_table_of_all_variants(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--personal", "4.*", "--clients", "4", "--duration", "1", "--seeds", "1", "--workers", "0"]
    monkeypatch.setattr("sys.argv", ["personalise.py", "digits", *small])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["variant", "---", "shared model", "personal `4.*`"]
