import re
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.config.scenario import load
from spyker.errors import UsageError
from spyker.tasks.memory_check import CLIENT_BYTES, check_memory
from spyker.untrusted_files import machine_bytes

FAR_TOO_MANY = str(10**12)


def test_a_world_that_cannot_fit_is_refused_before_anything_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r"
    command = ["run", "--task", "quadratic", "--duration", "1", "--out", str(out), "--overwrite", "--clients"]
    assert main([*command, "8"]) == 0
    before = (out / "facts.jsonl").read_bytes()
    capsys.readouterr()
    assert main([*command, FAR_TOO_MANY]) == 2
    assert re.search(
        r"world.clients: 1,000,000,000,000 in total is not allowed: they need at least 745,058 GiB of memory, and "
        r"this machine has [\d.,]+ GiB\. Emulate at most [\d,]+ clients at a time",
        capsys.readouterr().err,
    )
    assert (out / "facts.jsonl").read_bytes() == before


def test_a_sweep_of_them_is_refused_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "--task", "quadratic", "--vary", "seed=1,2", "--jobs", "2", "--out", str(tmp_path / "s")]
    assert main([*command, "--clients", FAR_TOO_MANY]) == 2
    assert "in 2 concurrent runs" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_what_fits_is_not_refused() -> None:
    most = machine_bytes() // CLIENT_BYTES
    check_memory([load(None, clients=most)])
    with pytest.raises(UsageError):
        check_memory([load(None, clients=most + 2)])
    with pytest.raises(UsageError):
        check_memory([load(None, clients=most // 2 + 2)] * 2)
