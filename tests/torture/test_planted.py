"""Torture finds what is broken on purpose, and says what it found."""

import pytest
from planted import BUGS, Bug

from spyker.torture.campaign import torture
from spyker.torture.fault_plan import fault_plan


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    assert bug.found in torture(fault_plan(bug.seed, short=True)).violation
