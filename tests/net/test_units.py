"""The units for systemd: what a process that was taken over could still do."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spyker.cli.codes import FENCED

UNITS = sorted((Path(__file__).parents[2] / "examples" / "deploy" / "systemd").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_shuts_its_process_in(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze cannot judge a file: {done.stderr.strip()}")
    assert float(found[1]) < 4.0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_says_nothing_that_systemd_does_not_understand(unit: Path) -> None:
    command = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    complaints = [line for line in done.stderr.splitlines() if unit.name.partition(".")[0].rstrip("@") in line]
    assert [line for line in complaints if "is not executable" not in line] == []


def test_a_server_that_was_removed_is_not_started_again() -> None:
    (server,) = [unit for unit in UNITS if unit.name == "spyker-server.service"]
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", server.read_text("utf-8"), re.MULTILINE)
    assert str(FENCED) in codes.split()
