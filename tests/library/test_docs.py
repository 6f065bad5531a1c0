"""The programs in docs/library.md and in the README do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def programs(text: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S))


def from_python(text: str) -> str:
    return text[text.index("### From Python") : text.index("## Deployed for real")]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(programs((ROOT / "docs" / "library.md").read_text()), id="docs/library.md"),
        pytest.param(programs(from_python((ROOT / "README.md").read_text())), id="README.md"),
    ],
)
def test_the_examples_run(tmp_path: Path, program: str) -> None:
    assert program.count("spyker.run(") >= 1
    (tmp_path / "example.py").write_text(program)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "<Run: stride on digits, accuracy 0." in done.stdout
