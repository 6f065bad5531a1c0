"""Lookup of algorithms and tasks by name: built-in, installed as entry points, or ``module:attribute``.

``module:attribute`` is imported from the current folder.
"""

from __future__ import annotations

import ast
import importlib
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from spyker.config.sections import show
from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.extras import explain
from spyker.own_code import is_own

LAB = {
    "spyker.algorithms": ("fadas", "asyncfeded", "fedasyncm", "fedavgm", "hierfavgm"),
    "spyker.commands": ("reproduce", "race"),
    "spyker.kernels": ("native",),
}
"""Names that the distribution ``spyker-fl-lab`` provides, by entry point group; an error says how to install it."""
FEW = 3  # names that a suggestion lists
INSTALL_LAB = "Run pip install spyker-fl-lab, or make in the repository"


@dataclass(frozen=True, slots=True)
class NameLookup:
    """The names of algorithms or of tasks."""

    built_in: Iterable[str]
    group: str
    """Entry point group."""
    form: str
    """Form of a user's own name, such as ``module:Class``; empty if the name must be installed."""

    def installed(self) -> dict[str, str]:
        """Return the entry points of installed packages, as ``module:attribute`` by name."""
        return {entry.name: entry.value for entry in entry_points(group=self.group)}

    def check(self, name: str, where: str) -> None:
        """Raise a ``UsageError`` with a suggestion if the name is unknown."""
        if (":" in name and self.form) or name in self.built_in:
            return
        known = self.known()
        if name not in known:
            if name in LAB.get(self.group, ()):
                raise UsageError(where, f"{show(name)} is not installed", INSTALL_LAB)
            if self.form and (found := in_folder(name)):
                raise UsageError(where, f"{show(name)} is not allowed", f"Write {found}")
            others = f"Write {self.form}, or choose one of" if self.form else "Choose one of"
            raise UsageError(where, f"{show(name)} is not allowed", suggest(name, known, others))

    def known(self) -> list[str]:
        """Return all names, the built-in ones first."""
        return list(dict.fromkeys([*self.built_in, *self.installed()]))

    def release(self, name: str) -> str:
        """Return the package and version that provide a name, or an empty string."""
        for entry in entry_points(group=self.group):
            if entry.name == name and entry.dist is not None:
                return f"{entry.dist.name} {entry.dist.version}"
        return ""

    def place(self, name: str) -> str:
        """Return the ``module:attribute`` of a name that is not built in."""
        return name if ":" in name else self.installed()[name]

    def find(self, name: str, where: str) -> Any:
        """Import the object with a name that is not built in."""
        module, _, attribute = self.place(name).partition(":")
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            imported = importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                problem, remedy = f" ({error})", "Run from the folder that holds the module"
            elif (missing := explain(f"{where} {show(name)}", error)) is not None:
                raise missing from None
            else:
                problem = f": {type(error).__name__}: {error} ({place_of(error)})"
                remedy = "Fix that line, or install the missing module"
            raise UsageError(where, f"{show(name)} cannot be imported{problem}", remedy) from None
        if not hasattr(imported, attribute):
            public = [each for each in vars(imported) if not each.startswith("_")]
            problem = f"{show(name)} cannot be imported ({module} has no {attribute!r})"
            raise UsageError(where, problem, suggest(attribute, public, "It has"))
        return getattr(imported, attribute)


def in_folder(name: str) -> str:
    """Return the names of tasks or algorithms in a module of the current folder, or an empty string.

    Classes that extend another one, such as ``spyker.FederatedTask``, are preferred to functions. Nothing is imported.
    """
    module = name.removesuffix(".py")
    try:
        tree = ast.parse(Path(f"{module}.py").read_bytes()) if module.isidentifier() else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return ""
    classes = {
        node.name: [ast.unparse(base) for base in node.bases] for node in tree.body if isinstance(node, ast.ClassDef)
    }
    own = [each for each, bases in classes.items() if any(base.endswith(("Task", "Server")) for base in bases)]
    own = own or [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return " or ".join(f"{module}:{each}" for each in own[:FEW] if not each.startswith("_"))


def place_of(error: Exception) -> str:
    """Return the file and line in the user's code that raised an import error."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if not f.filename.startswith("<frozen ")]
    place = [*frames[-1:], *(frame for frame in frames if is_own(Path(frame.filename)))][-1]
    return f"{place.filename}, line {place.lineno}"
