"""Fault plans find every planted bug, with the expected violation."""

import pytest

from chaos.campaign import run_plan
from chaos.fault_plan import fault_plan
from chaos.planted_bugs import BUGS, Bug
from chaos.planted_mask_bugs import BUGS as MASK_BUGS


@pytest.mark.parametrize("bug", [*BUGS, *MASK_BUGS], ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    assert bug.found in run_plan(fault_plan(bug.seed, short=True)).violation
