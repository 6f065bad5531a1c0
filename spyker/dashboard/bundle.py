"""Content for the browser: the static files of the dashboard, their bundle for the report, and JSON."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from spyker.records.lines import jsonable

SCRIPTS = (
    "dom.js",
    "format.js",
    "theme.js",
    "source.js",
    "playback.js",
    "chart.js",
    "strips.js",
    "bars.js",
    "map.js",
    "log.js",
    "panels.js",
    "transport.js",
    "app.js",
)
"""In order: each imports only from earlier ones."""
STYLE = "style.css"
STATIC = frozenset((*SCRIPTS, STYLE, "index.html", "icon.svg"))
KINDS = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}

IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.MULTILINE)


def json_text(payload: Any) -> str:
    """Return the JSON for the browser; numbers of a record that are not finite are ``null``."""
    try:
        return json.dumps(payload, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(jsonable(payload), separators=(",", ":"))


def text(name: str) -> str:
    """Return a static file."""
    return files("spyker.dashboard").joinpath("static", name).read_text("utf-8")


def script() -> str:
    """Return all modules as one script, in which each is a function that returns its exports."""
    return "\n".join(module(name.removesuffix(".js"), text(name)) for name in SCRIPTS)


def module(name: str, source: str) -> str:
    """Return a module as such a function."""
    exported = ", ".join(EXPORT.findall(source))
    body = EXPORT.sub("", IMPORT.sub(r"const \1 = module_\2;", source))
    return f"const module_{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n"
