"""Conversion between TOML tables and documented dataclasses.

A section is a frozen dataclass whose fields are declared with :func:`spyker.parameters.parameter`. Keys are the field
names in kebab-case. An invalid value raises a ``UsageError`` that names the field, the value and a remedy.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from spyker.config.suggest import suggest
from spyker.errors import UsageError
from spyker.parameters import Rule

T = TypeVar("T")
OTHER_NAMES = {"lr": "training.rate", "learning-rate": "training.rate"}
"""Keys by the names that they have in other tools."""
SIMILAR = 0.7  # difflib's ratio of keys that may be each other's misspelling; "precision" and "regions" have 0.63


def kebab(name: str) -> str:
    """Return the key in a scenario file for a Python field name."""
    return name.replace("_", "-")


def rule_of(field: dataclasses.Field[Any]) -> Rule:
    """Return the description and allowed values of a field."""
    rule = field.metadata["rule"]
    assert isinstance(rule, Rule)
    return rule


def show(value: object) -> str:
    """Return a value in TOML, truncated for an error message."""
    text = to_toml(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read(section: type[T], table: object, where: str) -> T:
    """Parse a section from a TOML table; ``where`` is the section's name in error messages."""
    if not isinstance(table, Mapping):
        raise UsageError(
            where, f"{show(table)} is not allowed: it must be a section", f"Write it as [{where}] with keys below it"
        )
    fields = {kebab(f.name): f for f in dataclasses.fields(section)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(section)
    refuse_unknown(table, fields, where)
    values = {
        f.name: convert(table[key], hints[f.name], rule_of(f), f"{where}.{key}")
        for key, f in fields.items()
        if key in table
    }
    return section(**values)


def keys(section: type[Any]) -> list[str]:
    """Return the keys of a section."""
    return [kebab(field.name) for field in dataclasses.fields(section)]


def refuse_unknown(
    table: Mapping[str, object], known: Iterable[str], where: str, everywhere: Sequence[str] = ()
) -> None:
    """Raise a ``UsageError`` for an unknown key, with a suggestion.

    The suggestion is the same key in another section (``everywhere``), a similar key of this section, or a similar
    key of another section.
    """
    known = sorted(known)
    for key in table:
        if key not in known:
            other = OTHER_NAMES.get(kebab(key))
            same = [other] if other else [dotted for dotted in everywhere if dotted.rpartition(".")[2] == kebab(key)]
            similar = difflib.get_close_matches(key, known, 1, SIMILAR)
            by_key = {dotted.rpartition(".")[2]: dotted for dotted in everywhere}
            elsewhere = [by_key[each] for each in difflib.get_close_matches(key, by_key, 1, SIMILAR)]
            guesses = same or similar or elsewhere
            field = f"{where}.{key}" if where else key
            meant = " or ".join(map(repr, guesses))
            raise UsageError(
                field, "unknown key", f"Did you mean {meant}?" if guesses else f"Known keys: {', '.join(known)}"
            )


def convert(value: object, hint: Any, rule: Rule, where: str) -> Any:
    """Convert a TOML value to the type of a field, element by element."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):  # always "T | None"
        return convert(value, arguments[0], rule, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return read(hint, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UsageError(where, f"{show(value)} is not allowed: it must be a list", "Write it in square brackets")
        return tuple(convert(v, arguments[0], rule, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise UsageError(where, f"{show(value)} is not allowed: it must be a table", "Write it as { name = value }")
        return dict(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise UsageError(where, f"{show(value)} is not allowed: it must be a boolean", "Write true or false")
        return value
    if hint is str:
        if not isinstance(value, str):
            raise UsageError(where, f"{show(value)} is not allowed: it must be a string", "Write it in quotation marks")
        if rule.choices and value not in rule.choices:
            raise UsageError(where, f"{show(value)} is not allowed", suggest(value, rule.choices))
        return value
    return convert_number(value, hint, rule, where)


def convert_number(value: object, hint: type[int] | type[float], rule: Rule, where: str) -> int | float:
    """Check a number's type, finiteness and range."""
    whole = hint is int
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        kind = "an integer" if whole else "a number"
        raise UsageError(
            where, f"{show(value)} is not allowed: it must be {kind}", f"Write {kind} without quotation marks"
        )
    if not math.isfinite(value):
        raise UsageError(where, f"{show(value)} is not allowed", "Write a finite number")
    if rule.above is not None and value <= rule.above:
        raise UsageError(where, f"{show(value)} is not allowed", f"It must be greater than {rule.above:g}")
    if rule.at_least is not None and value < rule.at_least:
        raise UsageError(where, f"{show(value)} is not allowed", f"It must be at least {rule.at_least:g}")
    if rule.at_most is not None and value > rule.at_most:
        raise UsageError(where, f"{show(value)} is not allowed", f"It must be at most {rule.at_most:g}")
    return hint(value)


def to_toml(value: object) -> str:
    """Return a value in TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + re.sub(r'[\x00-\x1f"\\\x7f]', lambda m: f"\\u{ord(m[0]):04x}", value) + '"'
        case int() | float():
            return repr(value)
        case list() | tuple():
            if value and isinstance(value[0], list | tuple) and len(value) > 1:
                return "[\n" + "".join(f"  {to_toml(row)},\n" for row in value) + "]"
            return "[" + ", ".join(map(to_toml, value)) + "]"
        case Mapping():
            return "{ " + ", ".join(f"{to_key(k)} = {to_toml(v)}" for k, v in value.items()) + " }"
        case _ if dataclasses.is_dataclass(value):
            values = {kebab(f.name): getattr(value, f.name) for f in dataclasses.fields(value)}
            return to_toml({key: each for key, each in values.items() if each is not None})
    return str(value)


def to_key(name: str) -> str:
    """Return a key in TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else to_toml(name)


def write(section: object, *, comments: bool, derived: Collection[str] = ()) -> str:
    """Return the lines of a section, with descriptions if ``comments``. Unset and ``derived`` keys are comments."""
    lines = []
    for field in dataclasses.fields(section):  # type: ignore[arg-type]
        value, key = getattr(section, field.name), kebab(field.name)
        if comments:
            lines.append(f"# {rule_of(field).doc}")
        if key in derived:
            lines.append(f"# {key} = {to_toml(value)}".replace("\n", "\n# ") + "  # derived from other keys")
        elif value is not None:
            lines.append(f"{key} = {to_toml(value)}")
        elif comments:
            lines.append(f"# {key} =")
    return "\n".join(lines) + "\n"
