"""The privacy ledger: booked is never less than spent."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from spyker.config.privacy_settings import PrivacySettings
from spyker.errors import UsageError
from spyker.net.ledger_file import ClientLedgers, PrivacyBudgetSpentError, read_ledger
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of, most_trainings, noise_for
from spyker.privacy.ledger import Budget, Ledger, LedgerError, from_text

STEP = Mechanism(1.2, 1 / 19, 19)
PLAN = PrivacySettings(unit="example", noise_multiplier=1.2, trainings=5)


def test_epsilon_is_that_of_opacus_for_the_same_schedule() -> None:
    from opacus.accountants import PRVAccountant

    other = Mechanism(1.1, 1 / 20, 20)
    ledger = Ledger(0, Budget(1e-5)).book(STEP).book(STEP).book(other)
    opacus = PRVAccountant()
    opacus.history = [(1.2, 1 / 19, 38), (1.1, 1 / 20, 20)]
    assert ledger.epsilon == opacus.get_epsilon(1e-5)


def test_epsilon_is_that_of_opacus_when_each_step_of_a_mixed_schedule_is_counted_alone() -> None:
    from opacus.accountants import PRVAccountant

    schedule = [STEP, STEP, Mechanism(0.9, 1 / 6, 12), Mechanism(2.0, 1.0, 3), STEP]
    opacus, ledger = PRVAccountant(), Ledger(0, Budget(1e-5))
    for mechanism in schedule:
        ledger = ledger.book(mechanism)
        for _ in range(mechanism.steps):
            opacus.step(noise_multiplier=mechanism.noise, sample_rate=mechanism.sample_rate)
    assert ledger.epsilon == epsilon_of(ledger.bookings, 1e-5) == opacus.get_epsilon(1e-5)
    assert ledger.epsilon > Ledger(0, Budget(1e-5)).book(STEP, 3).epsilon


def test_the_computed_noise_is_enough_for_the_planned_trainings() -> None:
    noise = noise_for(8.0, 1e-5, 1 / 19, 19 * 40)
    mechanism = Mechanism(noise, 1 / 19, 19)
    assert epsilon_of([Booking(mechanism, 40)], 1e-5) <= 8 < epsilon_of([Booking(mechanism, 42)], 1e-5)
    assert most_trainings(mechanism, 8.0, 1e-5) in (40, 41)


def test_a_ledger_is_read_as_it_was_written_and_damage_is_noticed() -> None:
    ledger = Ledger(3, Budget(1e-5, 8.0, 40)).book(STEP)
    text = ledger.to_text()
    assert from_text(text) == ledger
    for damaged in (text[:-1], text.replace("1.2", "9.2"), "", "[]\n0\n"):
        with pytest.raises(LedgerError):
            from_text(damaged)


def test_a_spent_budget_stays_spent_after_a_restart(tmp_path: Path) -> None:
    ledgers = ClientLedgers(tmp_path, PLAN)
    ledgers.open(0, 0)
    for _ in range(5):
        ledgers.book(0, STEP)
    again = ClientLedgers(tmp_path, PLAN)
    assert again.open(0, 5).booked == 5
    with pytest.raises(PrivacyBudgetSpentError, match="all 5 planned trainings are booked"):
        again.book(0, STEP)


def test_a_client_whose_ledger_is_lost_does_not_begin_anew(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no known privacy cost"):
        ClientLedgers(tmp_path, PLAN).open(0, 3)


CRASHER = """
import os, signal, sys
from math import inf
from pathlib import Path
import spyker.records.files as files
from spyker.config.privacy_settings import PrivacySettings
from spyker.net.ledger_file import ClientLedgers
from spyker.privacy.accounting import Mechanism
folder, at = Path(sys.argv[1]), int(sys.argv[2])
count = 0
def crash_here(*_):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
def audit(event, args):
    if event in ("open", "os.rename") and ".ledger" in str(args[0]):
        crash_here()
sys.addaudithook(audit)
fsync = os.fsync
def noisy_fsync(descriptor):
    crash_here(); fsync(descriptor); crash_here()
os.fsync = noisy_fsync
ledgers = ClientLedgers(folder, PrivacySettings(unit="example", noise_multiplier=1.2, trainings=5))
ledgers.open(0, 0)
for _ in range(2):
    ledgers.book(0, Mechanism(1.2, 1 / 19, 19))
    print("trained", flush=True)
"""


@pytest.mark.parametrize("at", range(1, 16))
def test_a_client_killed_at_any_step_of_writing_has_booked_what_it_spent(tmp_path: Path, at: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHER, str(tmp_path), str(at)], stdout=subprocess.PIPE, check=False, timeout=200
    )
    spent = done.stdout.count(b"trained")
    path = tmp_path / "client-0.ledger"
    booked = read_ledger(path).booked if path.exists() else 0
    assert done.returncode in (0, -signal.SIGKILL)
    assert spent <= booked <= spent + 1
    assert booked <= 2


# --- Seeded crash schedules over a simulated disk ----------------------------------------------------------------


class Disk:
    """A folder with one ledger. A power cut keeps what was synced, and a torn file if it was renamed unsynced."""

    def __init__(self) -> None:
        self.durable = Ledger(0, Budget(1e-5)).to_text()
        self.cache = self.durable

    def power_cut(self) -> None:
        self.cache = self.durable


def schedule(seed: int, bug: str = "") -> bool:
    """Run trainings with power cuts, restored backups, copies and moves; return whether booked >= spent held."""
    draw = random.Random(seed)
    disk, backup, spent, mark = Disk(), "", 0, 0
    backup = disk.durable
    try:
        for _ in range(40):
            event = draw.choice(["train", "train", "cut", "backup", "restore", "move"])
            if event == "cut":
                disk.power_cut()
            elif event == "backup":
                backup = disk.durable
            elif event == "restore":
                disk.durable = disk.cache = backup
            elif event == "train":
                ledger = from_text(disk.cache)
                if bug != "no mark":
                    ledger = ledger.at_least(mark, STEP)
                crash = draw.randrange(6)  # before: 0 nothing, 1 writing, 2 syncing, 3 renaming; 4 training; 5 none
                new = ledger.book(STEP)
                if bug == "train first":
                    spent += 1
                if crash == 0:
                    disk.power_cut()
                    assert from_text(disk.cache).at_least(mark, STEP).booked >= spent
                    continue
                if bug == "rename before sync":
                    disk.cache = new.to_text()
                    disk.durable = new.to_text()[: draw.randrange(20)] if crash in (1, 2, 3) else new.to_text()
                if crash in (1, 2, 3):
                    disk.power_cut()
                    assert from_text(disk.cache).at_least(mark, STEP).booked >= spent
                    continue
                disk.cache = disk.durable = new.to_text()
                if crash == 4:
                    continue
                if bug != "train first":
                    spent += 1
                mark = max(mark, new.booked)  # told with the update
            known = from_text(disk.cache)
            assert (known if bug == "no mark" else known.at_least(mark, STEP)).booked >= spent
    except (AssertionError, LedgerError):
        return False
    return True


def test_an_absurd_count_of_a_server_spends_the_budget_and_is_not_computed() -> None:
    ledger = Ledger(0, Budget(delta=1e-5, epsilon=2.0)).at_least(1 << 53, STEP)
    assert ledger.spent is not None
    assert ledger.booked < 1 << 20
    assert epsilon_of([Booking(STEP, 1 << 53)], 1e-5) == inf


def test_booked_is_at_least_spent_in_a_thousand_crash_schedules() -> None:
    assert all(schedule(seed) for seed in range(1000))


@pytest.mark.parametrize("bug", ["train first", "rename before sync", "no mark"])
def test_the_checker_finds_planted_bugs(bug: str) -> None:
    assert not all(schedule(seed, bug) for seed in range(100))
