"""The formal models hold in every state, and a broken one does not. Where there is no ``spin``, this is skipped."""

import shutil
import subprocess
from pathlib import Path

import pytest

FORMAL = Path(__file__).parents[2] / "formal"
COMPILER = shutil.which("gcc") or shutil.which("cc")
SHORT = ("-DFULL", "-DPRE=1")  # a disk that takes nothing, and one epoch that begins meanwhile
LONG = ("-DFULL", "-DPASSES=0")  # and two, while nobody passes a token on

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        shutil.which("spin") is None or COMPILER is None,
        reason="needs spin (Debian: apt install spin) and a C compiler",
    ),
]


def search(model: str, folder: Path, *flags: str, optimise: str = "-O2") -> str:
    """Go through all states, and return what spin says."""
    subprocess.run(["spin", "-a", *flags, FORMAL / f"{model}.pml"], cwd=folder, check=True, capture_output=True)
    assert COMPILER is not None
    compile_it = [COMPILER, "-w", optimise, "-DSAFETY", "-o", "pan", "pan.c"]
    subprocess.run(compile_it, cwd=folder, check=True)
    return subprocess.run(["./pan", "-m100000", "-w22"], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("vote", ()),
        ("removed", ()),
        ("masks", ()),
        ("ledger", ()),
        ("epochs", ()),
        ("epochs", SHORT),
        ("epochs", LONG),
    ],
)
def test_what_a_model_asserts_holds_in_every_state(model: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    said = search(model, tmp_path, *flags, optimise="-O0" if flags else "-O2")  # few states, and much to compile
    assert "errors: 0" in said
    assert "not completed" not in said
    assert "max search depth too small" not in said


@pytest.mark.parametrize(
    ("model", "flaw"),
    [
        ("vote", "MAJORITY_OFF_BY_ONE"),
        ("vote", "PROMISES_FORGOTTEN"),
        ("epochs", "MAJORITY_OFF_BY_ONE"),
        ("epochs", "NO_WAIT"),
        ("epochs", "NO_EPOCH_CHECK"),
        ("epochs", "NO_LEASES"),
        ("epochs", "NO_RENEWAL"),
        ("removed", "NO_SIGNATURES"),
        ("removed", "NO_PROMISES"),
        ("removed", "TARGET_COUNTS"),
        ("removed", "FORMER_VOTERS_COUNT"),
        ("removed", "REPLAYS"),
        ("masks", "THRESHOLD_OFF_BY_ONE"),
        ("masks", "NO_MARKS"),
        ("masks", "ANSWERS_UNSAVED"),
        ("masks", "TAKEN_TWICE"),
        ("ledger", "TRAINS_UNSAVED"),
        ("ledger", "NO_MEMORY"),
        ("ledger", "SAME_COUNT_ACCEPTED"),
        ("epochs", "TOLD_UNSAVED"),
        ("epochs", "HOLDER_KEEPS_TOKEN"),
    ],
)
def test_a_broken_model_is_found_out(model: str, flaw: str, tmp_path: Path) -> None:
    flags = ("-DFULL",) if flaw in ("TOLD_UNSAVED", "HOLDER_KEEPS_TOKEN") else ()
    said = search(model, tmp_path, *flags, f"-D{flaw}", optimise="-O0")
    assert "assertion violated" in said
    assert "errors: 1" in said
