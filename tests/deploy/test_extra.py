"""What only deployments need is an extra: the emulator runs without it, and who needs it is told what to install."""

import subprocess
import sys

import pytest

PACKAGES = ("cryptography", "google.protobuf", "grpc", "prometheus_client", "safetensors")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES!r})); from spyker.cli.main import main\n"


def without_the_extra(tmp_path, *command):
    code = f"{WITHOUT}sys.exit(main({list(command)!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)


def test_the_emulator_runs_without_it(tmp_path):
    done = without_the_extra(tmp_path, "run", "--task", "quadratic", "--duration", "1", "--clients", "4")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [["certs", "x", "--servers", "1", "--clients", "1"], ["export", "x"]])
def test_a_command_that_needs_it_says_what_to_install(tmp_path, command):
    done = without_the_extra(tmp_path, *command)
    assert done.returncode == 2
    assert "Run pip install 'spyker-fl[deploy]'" in done.stderr
