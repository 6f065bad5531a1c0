"""The files of the page, and how the report, which is one file, has all of them."""

from __future__ import annotations

import re
from importlib.resources import files

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
"""Each imports only from those before it."""
STYLE = "style.css"
STATIC = frozenset((*SCRIPTS, STYLE, "index.html", "icon.svg"))
KINDS = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}

IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.MULTILINE)


def text(name: str) -> str:
    """One file of the page."""
    return files("spyker.dashboard").joinpath("static", name).read_text("utf-8")


def script() -> str:
    """All modules as one, each a function that returns what it exports."""
    return "\n".join(module(name.removesuffix(".js"), text(name)) for name in SCRIPTS)


def module(name: str, source: str) -> str:
    """One of them."""
    exported = ", ".join(EXPORT.findall(source))
    body = EXPORT.sub("", IMPORT.sub(r"const \1 = module_\2;", source))
    return f"const module_{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n"
