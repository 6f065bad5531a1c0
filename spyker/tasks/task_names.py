"""Names of tasks. A task that is not built in is a factory function."""

from __future__ import annotations

from spyker.config.name_lookup import NameLookup, in_folder
from spyker.config.sections import show
from spyker.errors import UsageError

BUILT_IN: dict[str, str] = {
    name: f"spyker.tasks.built_in.{name}" for name in ("digits", "mnist", "cifar10", "wikitext2", "quadratic")
} | {"flower": "spyker.flower.options"}
"""Modules with a section ``Options`` and a function ``make(options, clients, seed, training)``."""
PACKAGES = {"digits": ("sklearn", "torch"), "mnist": ("torch",), "cifar10": ("torch",), "wikitext2": ("torch",)}
"""Modules that built-in tasks import."""
NAMES = NameLookup(BUILT_IN, "spyker.tasks", "module:function")
WHERE = "task.name"


def check_name(name: str) -> None:
    """Raise a ``UsageError`` if the name is unknown."""
    if "." in name and ":" not in name and not in_folder(name):
        raise UsageError(
            WHERE,
            f"{show(name)} is not allowed here: it was an object of a Python program",
            "Run that program again, or move the factory function into a module and write module:function",
        )
    NAMES.check(name, WHERE)
