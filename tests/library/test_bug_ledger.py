"""The bug ledger names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "reports" / "bugs.md").read_text("utf-8"))))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_each_test_in_the_bug_ledger_exists(file: str, test: str) -> None:
    assert re.search(rf"^def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), f"{file} has no {test}"


def test_the_bug_ledger_names_tests() -> None:
    assert len(NAMED) > 20
