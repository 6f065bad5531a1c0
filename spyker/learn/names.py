"""From the name of a task to the function that makes it.

Names without a colon are built in, or belong to an installed package that announces them as entry points of the group
``spyker.tasks``. A name with a colon, ``module:function``, is found from the current folder.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from spyker.config.sections import ScenarioError, show

BUILT_IN: dict[str, str] = {
    name: f"spyker.learn.built_in.{name}" for name in ("digits", "mnist", "cifar10", "wikitext2", "quadratic")
}
"""Modules with a section ``Options`` and a function ``make(options, clients, seed, training)``."""
GROUP = "spyker.tasks"


def installed() -> dict[str, EntryPoint]:
    """The tasks of installed packages, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def check_name(name: str) -> None:
    """Refuse a name that nobody has."""
    if ":" in name or name in BUILT_IN or name in installed():
        return
    if "." in name:
        raise ScenarioError(
            "task.name",
            f"{show(name)} was a function or an object of a Python program, which is not in this file",
            "Run that program again, or put a function that makes the task into a module and write module:function",
        )
    known = [*BUILT_IN, *installed()]
    close = difflib.get_close_matches(name, known, 1)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    raise ScenarioError(
        "task.name", f"is {show(name)}", f"{guess}Choose one of {', '.join(known)}, or write module:function"
    )


def place_of(name: str) -> str:
    """Where the function of a task stands that is not built in, as ``module:function``."""
    return name if ":" in name else installed()[name].value


def find_function(name: str) -> Any:
    """The function that makes a task that is not built in."""
    module, _, function = place_of(name).partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            "task.name", f"{show(name)} cannot be imported ({error})", "Run from the folder that holds the module"
        ) from None
