"""The objects of a Flower app, and its ``pyproject.toml``: the ServerApp of a ClientApp, and the run config."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spyker.config.name_lookup import NameLookup
from spyker.config.sections import show
from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.untrusted_files import parse_toml, read_toml

FILE = "pyproject.toml"
PAIR = re.compile(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)")
Config = dict[str, bool | float | int | str]


@dataclass(frozen=True, slots=True)
class Project:
    """The content of ``[tool.flwr.app]``."""

    path: Path | None = None
    server: str | None = None
    """The ServerApp, as ``package.module:app``, if it is the named ClientApp's."""
    config: Config = field(default_factory=dict)

    def run_config(self, changes: str) -> Config:
        """Return the project's run config, with ``changes`` merged into it as by ``flwr run``."""
        changed = read_pairs(changes, "task.run-config")
        for key in changed:
            if self.path is not None and key not in self.config:
                raise UsageError(
                    f"task.run-config: {key}",
                    f"is not in [tool.flwr.app.config] of {self.path}",
                    suggest(key, self.config, "There are"),
                )
        return self.config | changed


def find_object(name: str, where: str, kind: str) -> Any:
    """Import an object of a Flower app by its name, ``package.module:app`` for a ``kind`` of app."""
    form = f"package.module:{kind}"
    if ":" not in name:
        raise UsageError(where, f"{show(name)} is not allowed", f"Write {form}")
    return NameLookup((), "", form).find(name, where)


def find_project(app: str) -> Project:
    """Return the project whose folder contains the module of a ClientApp; an empty one if there is none."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        spec = find_spec(app.partition(":")[0])
    except ImportError:  # of a parent package; the import of the app reports it
        return Project()
    if spec is None or spec.origin is None:
        return Project()
    for folder in Path(spec.origin).resolve().parents:
        path = folder / FILE
        if path.is_file():
            table = section(path)
            return Project() if table is None else read_project(path, table, app)
    return Project()


def section(path: Path) -> Mapping[str, Any] | None:
    """Return ``[tool.flwr.app]``, or ``None``."""
    try:
        table: Any = read_toml(path)
    except (OSError, ValueError) as error:
        raise UsageError(str(path), f"cannot be read ({error})", "Fix it, as flwr run would ask you to") from None
    for key in ("tool", "flwr", "app"):
        table = table.get(key) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else None


def read_project(path: Path, table: Mapping[str, Any], app: str) -> Project:
    """Parse a project. Its ServerApp is used only if the project names this ClientApp."""
    components = table.get("components", {})
    server = components.get("serverapp") if components.get("clientapp") == app else None
    return Project(path, server, flat(table.get("config", {})))


def flat(table: Mapping[str, Any], before: str = "") -> Config:
    """Flatten nested tables into dotted keys, as Flower does."""
    config: Config = {}
    for key, value in table.items():
        config |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return config


def read_pairs(text: str, where: str) -> Config:
    """Parse ``key=value key2="a text"``, the syntax of Flower's commands."""
    pairs = PAIR.findall(text)
    try:
        if PAIR.sub("", text).strip():
            raise ValueError
        return flat(parse_toml("\n".join(f"{key} = {value}" for key, value in pairs)))
    except ValueError:
        raise UsageError(
            where,
            f"{show(text)} is not allowed",
            "Write key=value pairs with spaces between them, and texts in quotation marks",
        ) from None
