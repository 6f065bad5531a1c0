"""Pages link to files of the repository, as they stand there. In the site these files have pages of their own.

A *home* is a page's path in the repository, such as ``docs/concepts/stride.md``; a *uri* is its path in the site.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRONT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
"""Pages that stand outside of docs/, and their names in the site."""
SOURCES = "source"
"""The folder of the site for all other files."""

LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCED = re.compile(r"(^```.*?^```$)", flags=re.M | re.S)
HOSTED = re.compile(
    r"https://(?:raw\.githubusercontent\.com/[^/]+/[^/]+/(?:refs/heads/)?|github\.com/[^/]+/[^/]+/(?:blob|tree|raw)/)[^/]+/(.+)"
)
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".sh": "bash"}


def home_of(uri: str) -> str:
    """Where a page of the site stands in the repository."""
    return next((home for home, front in FRONT.items() if front == uri), f"docs/{uri}")


def target(link: str, home: str) -> str | None:
    """The file or folder of the repository that a link of a page means; none if it leads elsewhere."""
    hosted = HOSTED.fullmatch(link)
    if hosted:
        path = os.path.normpath(hosted[1])
    elif not link or re.match(r"[a-z]+:|/", link):
        return None
    else:
        path = os.path.normpath(os.path.join(os.path.dirname(home), link))
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def each_link(text: str, change: Callable[[str], str]) -> str:
    """The text with its links changed, except in code."""
    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(lambda link: link[1] + change(link[2]) + link[3], part) for part in parts[::2]]
    return "".join(parts)


def place(path: str) -> str:
    """Where a file of the repository stands in the site."""
    if path in FRONT:
        return FRONT[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{SOURCES}/{path}.md"


def rewritten(text: str, home: str, uri: str) -> str:
    """The text of a page with links that hold in the site."""

    def change(link: str) -> str:
        file, hash, anchor = link.partition("#")
        path = target(file, home)
        return link if path is None else os.path.relpath(place(path), os.path.dirname(uri) or ".") + hash + anchor

    return each_link(text, change)


def linked_files(text: str, home: str) -> set[str]:
    """The files and folders that a page links to and that need a page of their own, with what lies in the folders."""
    found: set[str] = set()

    def change(link: str) -> str:
        path = target(link.partition("#")[0], home)
        if path is not None and place(path).startswith(SOURCES):
            found.update([path, *(entries(path) if (ROOT / path).is_dir() else [])])
        return link

    each_link(text, change)
    return found


def entries(folder: str) -> list[str]:
    """What lies in a folder, at any depth, that is text."""
    inside = sorted((ROOT / folder).rglob("*"))
    return [str(path.relative_to(ROOT)) for path in inside if path.is_file() and "__pycache__" not in path.parts]


def source_page(path: str) -> str:
    """The page of a file or of a folder."""
    file = ROOT / path
    if file.is_dir():
        lines = [f"- [{entry}]({os.path.relpath(entry, os.path.dirname(path))}.md)" for entry in entries(path)]
        return f"# {path}/\n\n" + "\n".join(lines) + "\n"
    text = file.read_text("utf-8")
    if file.suffix == ".ipynb":
        return f"# {path}\n\n" + notebook(text)
    return f"# {path}\n\n`````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n`````\n"


def notebook(text: str) -> str:
    """The cells of a notebook, one below the other."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells) + "\n"
