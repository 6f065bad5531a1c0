"""Real servers and clients with client-level differential privacy."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from deployment import deployed, table, until

import spyker
from spyker.cli.main import main
from spyker.net.checkpoints import latest
from spyker.net.ledger_file import find_ledgers
from spyker.node.secret_noise import secret_noise
from spyker.sim.replay import differences, replay

PRIVACY = {"unit": "client", "noise-multiplier": 1.0, "delta": 1e-6}


def private(clients: tuple[int, ...], **privacy: Any) -> dict[str, Any]:
    return table("stride", clients, privacy=PRIVACY | privacy)


def joins(folder: Path) -> tuple[str, ...]:
    """Arguments of clients that keep their ledgers."""
    return ("--state", str(folder / "clients"))


def test_a_killed_server_books_at_least_what_it_spends_and_its_log_leads_to_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = private((3,), trainings=100_000)
    with deployed(settings, tmp_path, event_log="events", checkpoint_updates=5) as deployment:
        deployment.up(0)
        deployment.attend("0-2", more=joins(tmp_path))
        for _ in range(2):
            before = len(deployment.facts("noise-added"))
            until(lambda before=before: len(deployment.facts("noise-added")) > before + 5)
            deployment.servers[-1].kill()
            deployment.servers[-1].wait()
            deployment.up(0, "--resume")
        before = len(deployment.facts("noise-added"))
        until(lambda: len(deployment.facts("noise-added")) > before + 5)
        deployment.servers[-1].kill()
        deployment.servers[-1].wait()
        checkpoint = latest(tmp_path / "server-0" / "state")
        assert checkpoint is not None
        log = tmp_path / "server-0" / "events" / "events-000003.log"
        number = checkpoint.numbers["membership"]["checkpoints"]
        done = replay(log, number)
        assert done.checkpoint is not None
        assert differences(done.checkpoint, checkpoint.numbers, checkpoint.vectors) == []
        monkeypatch.setattr("spyker.sim.replay.secret_noise", lambda secret: secret_noise(b"of another server"))
        mistaken = replay(log, number).checkpoint
        assert mistaken is not None
        assert "weights" in " ".join(differences(mistaken, checkpoint.numbers, checkpoint.vectors))
        deployment.clients[-1].kill()
        deployment.clients[-1].wait()
        ledgers = find_ledgers([tmp_path / "clients"])
        assert len(ledgers) == 3
        spent = [sum(fact["clients"] for fact in deployment.facts("noise-added"))]
        assert sum(ledger.booked for ledger in ledgers) >= spent[0]


def test_clients_with_a_spent_budget_leave_and_servers_take_no_more_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with deployed(private((2,), trainings=4), tmp_path) as deployment:
        deployment.up(0)
        clients = deployment.attend("0-1", more=joins(tmp_path))
        assert clients.wait(120) == 3
        assert max(fact["participations"] for fact in deployment.facts("noise-added")) <= 4
        assert sum(fact["clients"] for fact in deployment.facts("noise-added")) <= 8
        assert deployment.metric("noisy_sums_total") == len(deployment.facts("noise-added"))
        assert deployment.metric("privacy_epsilon", unit="client") > 0
    log = (tmp_path / "clients-0-1.log").read_text()
    assert "its privacy budget is spent: all 4 planned trainings are booked" in log
    assert main(["privacy", str(tmp_path / "clients"), "--json"]) == 0
    assert '"trainings": 4' in capsys.readouterr().out


def test_a_deployed_process_cannot_use_the_noise_of_the_emulator() -> None:
    """No module of a server or a client imports the emulator; the secret is drawn by the operating system."""
    package = Path(spyker.__file__).parent
    for folder in ("net", "node", "protocol", "privacy", "config", "tasks", "engines"):
        for path in (package / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert not any(name.startswith("spyker.sim") for name in names), path
    source = (package / "net" / "identity.py").read_text("utf-8")
    assert "secrets.token_bytes(32)" in source
