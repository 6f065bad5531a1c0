"""Restored and copied privacy ledgers: servers remember how many trainings a client has booked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.net.ledger_file import read_ledger
from spyker.net.local_cluster import free_ports
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskTokens


def accept(tokens: TaskTokens, booked: int) -> int:
    """Give client 0 a task and redeem its update; return the number of the task."""
    number = tokens.verify(0, tokens.issue(0, 0.0, 0)).number
    tokens.redeem(0, number, booked)
    return number


def test_a_number_in_the_ledger_counts_once_and_the_next_one_must_be_higher() -> None:
    tokens = TaskTokens(b"secret", 1)
    tokens.handled(0, accept(tokens, 3), 3)
    tokens.handled(0, accept(tokens, 5), 5)  # the fourth training was for nothing
    for copied in (5, 4):
        with pytest.raises(Rejection, match="two copies of its state") as refused:
            accept(tokens, copied)
        assert refused.value.reason == "copied-ledger"
    assert tokens.entry(0).booked == 7, "what was sent is spent"
    accept(tokens, 8)


def test_an_update_that_is_sent_again_is_no_copy() -> None:
    tokens = TaskTokens(b"secret", 1)
    number = accept(tokens, 3)
    with pytest.raises(Rejection) as refused:
        tokens.redeem(0, number, 3)
    assert refused.value.reason == "replayed"


def test_after_a_crash_updates_are_accepted_again_that_no_checkpoint_holds() -> None:
    tokens = TaskTokens(b"secret", 1)
    tokens.handled(0, accept(tokens, 1), 1)
    saved = tokens.numbers()
    lost = tokens.issue(0, 0.0, 0)
    tokens.redeem(0, tokens.verify(0, lost).number, 2)
    restored = TaskTokens(b"secret", 2)
    restored.restore(saved)
    restored.redeem(0, restored.verify(0, lost).number, 2)
    with pytest.raises(Rejection, match="two copies"):
        accept(restored, 2)


def test_clients_without_a_ledger_are_not_concerned() -> None:
    tokens = TaskTokens(b"secret", 1)
    for _ in range(3):
        tokens.handled(0, accept(tokens, 0))
    assert len(tokens.numbers()[0]) == 5


def join(folder: Path) -> tuple[int, str]:
    """Run the client until it ends; return exit code and output."""
    words = [sys.executable, "-m", "spyker.cli.main", "join", "client-charite"]
    ended = subprocess.run(words, cwd=folder, env=os.environ.copy(), capture_output=True, text=True, timeout=200)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_spent_budget_stays_spent_after_a_restart_and_after_a_backup_is_restored(tmp_path: Path) -> None:
    folder, ports = tmp_path / "f", free_ports(2)
    private = ["privacy.unit='example'", "privacy.noise-multiplier=1.0", "privacy.trainings=3"]
    settings = [word for setting in private for word in ("--set", setting)]
    server = f"--server=paris=127.0.0.1:{ports[0]}/{ports[1]}"
    assert main(["federation", "create", "digits", server, "--client=charite", "--out", str(folder), *settings]) == 0
    words = [sys.executable, "-m", "spyker.cli.main", "serve", "server-paris"]
    with (tmp_path / "log").open("wb") as log:
        serving = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env=os.environ.copy())
    try:
        code, said = join(folder)
        assert code == 3, said
        assert "all 3 planned trainings are booked" in said
        (ledger,) = (folder / "client-charite").glob("**/*.ledger")
        assert read_ledger(ledger).booked == 3
        code, said = join(folder)
        assert (code, "attending" in said) == (3, False), said

        shutil.rmtree(ledger.parent)  # a new state folder, as a restored backup of the first day would be
        code, said = join(folder)
        assert code == 3, said
        assert "ledger-behind" in said
        assert read_ledger(ledger).booked == 3
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(200)
