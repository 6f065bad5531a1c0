"""What only deployments need is an extra: the emulator runs without it, and who needs it is told what to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cryptography", "google.protobuf", "grpc", "prometheus_client", "websockets")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES!r})); from spyker.cli.main import main\n"


def without_the_extra(tmp_path, *command):
    code = f"{WITHOUT}sys.exit(main({list(command)!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)


def test_the_emulator_runs_without_it(tmp_path):
    done = without_the_extra(tmp_path, "run", "--task", "quadratic", "--duration", "1", "--clients", "4")
    assert (done.returncode, done.stderr) == (0, "")


def test_so_does_the_export_of_its_model(tmp_path):
    without_the_extra(tmp_path, "run", "--task", "quadratic", "--duration", "1", "--clients", "4", "--out", "a")
    done = without_the_extra(tmp_path, "export", "a")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_that_needs_it_says_what_to_install(tmp_path):
    done = without_the_extra(tmp_path, "certs", "x", "--servers", "1", "--clients", "1")
    assert done.returncode == 2
    assert "Run pip install 'spyker-fl[net]'" in done.stderr


def test_what_protoc_generated_runs_with_the_oldest_protobuf_that_is_allowed():
    """Code that is newer than the library refuses to run, and other packages keep the library old: Flower below 7."""
    generated = (ROOT / "spyker/net/spyker_pb2.py").read_text("utf-8")
    (version,) = re.findall(r"Protobuf Python Version: ([\d.]+)", generated)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert f"protobuf>={version}" in extras["net"]
