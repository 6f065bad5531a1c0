"""Every file in ``tests/scenarios`` and ``lab/tests/scenarios`` is a script: commands and, below each, after
``----``, its expected trace.

The files are meant to be read; ``scripted.py`` says what the commands and the traces mean. After a change of the
protocol, or to write a new script, run

    SPYKER_REWRITE=1 pytest tests/script

which puts the traces that the code leaves now into the files, and then check every line of the difference by hand.
"""

import os
from pathlib import Path

import pytest
import scripted

ROOT = Path(__file__).parents[2]
FILES = sorted(path for tests in ("tests", "lab/tests") for path in (ROOT / tests / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_script(path):
    script = path.read_text(encoding="utf-8")
    result = scripted.run(script)
    if os.environ.get("SPYKER_REWRITE"):
        path.write_text(result, encoding="utf-8")
    else:
        assert result.splitlines() == script.splitlines()


def test_scripts_were_found():
    assert FILES


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("servers 1 clients=1", "no ----"),
        ("dance\n----", "cannot understand"),
        ("servers 2 clients=1\n----", "2 servers, 1 numbers"),
    ],
)
def test_a_mistake_in_a_script_is_an_error(wrong, message):
    with pytest.raises(ValueError, match=message):
        scripted.run(wrong)
