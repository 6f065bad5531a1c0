"""Every parameter, from the declarations by which scenario files are read."""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from collections.abc import Mapping
from typing import Any

from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.delays import Gaussian
from spyker.config.scenario import SECTIONS, TOP, Scenario, load
from spyker.config.sections import kebab, rule_of, to_toml
from spyker.net.client_folder import ClientSection
from spyker.net.server_config import DeploymentOptions
from spyker.parameters import Rule
from spyker.tasks.task_names import BUILT_IN

WORDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def every_parameter() -> str:
    """All sections of a scenario file and of a server's configuration, as Markdown."""
    default = load(None)
    top = [f for f in dataclasses.fields(Scenario) if f.name in TOP]
    parts = ["## Top level\n\n" + table(top, typing.get_type_hints(Scenario), default)]
    for name, section in SECTIONS.items():
        parts.append(described(f"[{name}]", section, getattr(default, name), default.derived, name))
    for task, module in BUILT_IN.items():
        parts.append(described(f"[task] of {task}", importlib.import_module(module).Options))
    for algorithm in ALGORITHMS.values():
        title = f"[{algorithm.section}]" + (f" of {algorithm.name}" if algorithm.name != algorithm.section else "")
        values = default.algorithms[algorithm.section]
        if not any(part.startswith(f"## {title}\n") for part in parts) and algorithm.name == algorithm.section:
            parts.append(described(title, type(values), values, default.derived, algorithm.section))
    parts.append(described("[deploy]", DeploymentOptions))
    parts.append(described("[client]", ClientSection))
    return "\n\n".join(parts)


def described(
    title: str,
    section: type[Any],
    values: Any = None,
    derived: frozenset[str] = frozenset(),
    name: str = "",
) -> str:
    """A section: its name and the table of its keys."""
    fields = list(dataclasses.fields(section))
    if not fields:
        return f"## {title}\n\nNothing to set."
    follows = {key.partition(".")[2] for key in derived if key.startswith(f"{name}.")}
    return f"## {title}\n\n" + table(fields, typing.get_type_hints(section), values or section(), follows)


def table(
    fields: list[dataclasses.Field[Any]], hints: dict[str, Any], values: Any, follows: set[str] | None = None
) -> str:
    """Keys with what they take, what holds unless they are set, and what they mean."""
    lines = ["| key | takes | default | |", "|---|---|---|---|"]
    for field in fields:
        key, rule, value = kebab(field.name), rule_of(field), getattr(values, field.name)
        derived = key in (follows or ())
        default = "derived from other keys" if derived else "unset" if value is None else code(to_toml(value))
        lines.append(f"| `{key}` | {taken(hints[field.name], rule)} | {default} | {cell(rule.doc)} |")
    return "\n".join(lines)


def taken(hint: Any, rule: Rule) -> str:
    """What may be written, in words."""
    if rule.choices:
        return ", ".join(code(f'"{choice}"') for choice in rule.choices)
    bounds = [("at least", rule.at_least), ("above", rule.above), ("at most", rule.at_most)]
    ranges = [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
    return ", ".join([kind(hint), *ranges])


def kind(hint: Any) -> str:
    """The type of a key, in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if Gaussian in arguments:
            return "see the last column"
        return kind(arguments[0])
    if origin is tuple:
        return f"list of: {kind(arguments[0])}"
    if dataclasses.is_dataclass(hint) or origin is Mapping:
        return "table"
    return WORDS[hint]


def code(text: str) -> str:
    """A value, on one line and fit for a table."""
    return f"`{cell(' '.join(text.split()))}`"


def cell(text: str) -> str:
    """A text that does not end its cell."""
    return text.replace("|", "\\|")
