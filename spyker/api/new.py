"""Where a task or an algorithm of one's own begins: a file that runs as it stands, and its test."""

from __future__ import annotations

import keyword
import sys
from importlib.resources import files
from pathlib import Path

from spyker.config.sections import show
from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.records import write_atomically

KINDS = ("task", "algorithm")


def write_new(kind: str, name: str, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a module and its test into a folder. Returns the two files."""
    if kind not in KINDS:
        raise UsageError("KIND", f"is {show(kind)}", suggest(kind, KINDS))
    module = name.replace("-", "_").lower()
    if not module.isidentifier() or keyword.iskeyword(module) or not module.isascii():
        raise UsageError("NAME", f"{show(name)} is no name of a module", "Use letters, digits and _, such as my_task")
    if module in sys.stdlib_module_names or module in ("spyker", "torch", "numpy"):
        raise UsageError("NAME", f"{show(name)} is the name of a module that exists", f"Choose another: my_{module}")
    titled = "".join(part.capitalize() for part in module.split("_"))
    places = [folder / f"{module}.py", folder / f"test_{module}.py"]
    taken = [str(place) for place in places if place.exists()]
    if taken and not overwrite:
        raise UsageError("NAME", f"{' and '.join(taken)} exist already", "Choose another, or add --overwrite")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place, template in zip(places, (kind, f"test_{kind}"), strict=True):
            text = files("spyker.api").joinpath("templates", f"{template}.py.txt").read_text("utf-8")
            for word, own in (("my_name", module), ("MyName", titled), ("myname", titled.lower())):
                text = text.replace(word, own)
            write_atomically(place, text)
    except OSError as error:
        raise UsageError("--out", f"{folder} cannot be written ({error.strerror})", "Choose another") from None
    return places


def name_in_scenarios(kind: str, module: Path) -> str:
    """How a scenario, or the command line, names it."""
    titled = "".join(part.capitalize() for part in module.stem.split("_"))
    return f"{module.stem}:{'make' if kind == 'task' else titled}"
