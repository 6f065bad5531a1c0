"""The compiled kernels: built by the machine's C compiler for its processor, and cached.

The name of the library contains a digest of all that it depends on: the source, the options, and what the compiler says
of itself and of the processor. It appears under that name when it is complete, so processes may compile side by side.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from spyker.errors import UsageError
from spyker.tasks import kernels
from spyker.tasks.data.cache import VARIABLE, cache_folder

SOURCE = Path(__file__).with_name("kernels.c")
HEADERS = tuple(SOURCE.with_name(name) for name in ("loops.h", "vectors.h"))
OPTIONS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared")
COMPILERS = ("cc", "gcc", "clang")


@functools.cache
def compiled() -> ctypes.CDLL:
    """Load the library, once per process; compile it if it is not cached."""
    compiler = find_compiler()
    about = run(compiler, *OPTIONS, "-dM", "-E", "-x", "c", os.devnull)  # compiler version and processor features
    source = [path.read_text("ascii") for path in (SOURCE, *HEADERS)]
    digest = hashlib.sha256("\0".join([*source, *OPTIONS, about]).encode()).hexdigest()
    path = cache_folder() / "native" / f"kernels-{digest[:16]}.so"
    try:
        if not path.exists():
            build(compiler, path)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise refused(f"cannot write or load {path} ({error})", f"Set {VARIABLE} to another folder") from None


def find_compiler() -> str:
    """Return the C compiler of this machine."""
    names = [os.environ["CC"]] if os.environ.get("CC") else COMPILERS
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise refused(f"no C compiler found ({', '.join(names)})", "Install gcc")
    return found


def build(compiler: str, path: Path) -> None:
    """Compile the kernels into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
        made = Path(folder) / path.name
        run(compiler, *OPTIONS, "-o", str(made), str(SOURCE), "-lm")
        made.replace(path)


def run(*command: str) -> str:
    """Run a command and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise refused(f"{command[0]} fails ({lines[0][:200]})", "Set CC to a C compiler that works, such as gcc")
    return done.stdout


def refused(problem: str, remedy: str) -> UsageError:
    """Return the error for a task that the native kernels cannot train."""
    return kernels.kernel_error("native", problem, remedy)
