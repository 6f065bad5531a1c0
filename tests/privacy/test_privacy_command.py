"""``spyker privacy``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.config.privacy_settings import PrivacySettings
from spyker.net.ledger_file import ClientLedgers
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of

STEP = Mechanism(1.2, 1 / 19, 19)


def booked(folder: Path, client: int, trainings: int) -> None:
    """Book trainings in the state folder below a client's folder."""
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True)
    ledgers = ClientLedgers(state, PrivacySettings(unit="example", noise_multiplier=1.2, trainings=3))
    ledgers.open(client, 0)
    for _ in range(trainings):
        ledgers.book(client, STEP)


def test_it_shows_the_epsilon_of_each_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    booked(tmp_path / "a", 7, 2)
    booked(tmp_path / "b", 2, 3)
    assert main(["privacy", str(tmp_path / "a"), str(tmp_path / "b" / "state"), "--json"]) == 0
    second, first = json.loads(capsys.readouterr().out)
    assert (first["client"], first["trainings"], first["spent"]) == (7, 2, False)
    assert first["epsilon"] == pytest.approx(epsilon_of([Booking(STEP, 2)], 1e-5))
    assert (second["client"], second["trainings"], second["spent"]) == (2, 3, True)
    assert main(["privacy", str(tmp_path / "b")]) == 0
    assert "all 3 planned trainings are booked" in capsys.readouterr().out


def test_a_folder_without_ledger_or_with_a_damaged_one_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["privacy", str(tmp_path)]) == 2
    assert "has no client-K.ledger" in capsys.readouterr().err
    booked(tmp_path, 1, 1)
    file = tmp_path / "state" / "client-1.ledger"
    file.write_text(file.read_text().replace("1.2", "9.2"))
    assert main(["privacy", str(tmp_path)]) == 2
    assert "is damaged" in capsys.readouterr().err
