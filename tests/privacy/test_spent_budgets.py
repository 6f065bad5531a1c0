"""Emulated clients that have spent their privacy budgets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of

STEPS = 9  # 266 examples of each client in batches of 32


@pytest.mark.parametrize("policy", ["continue", "stop"])
def test_a_run_whose_clients_have_spent_their_budgets_ends_normally(tmp_path: Path, policy: str) -> None:
    options = (
        f"task.name='digits' privacy.unit='example' privacy.noise-multiplier=1.0 privacy.trainings=2 "
        f"training.on-client-error='{policy}' world.regions=['Paris','Sydney'] world.clients=[2,2] duration=6.0"
    )
    given = [word for option in options.split() for word in ("--set", option)]
    assert main(["run", *given, "--out", str(tmp_path / "run"), "--quiet", "--workers", "1"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["updates"] == 8
    assert summary["privacy"]["trainings"] == 2
    assert summary["privacy"]["epsilon"] == epsilon_of([Booking(Mechanism(1.0, 1 / STEPS, STEPS), 2)], 1e-5)
    failed = summary["failed_clients"]
    assert len(failed) == 4
    assert "its privacy budget is spent: 2 trainings" in json.dumps(failed)
