"""The examples that come with Spyker: in an installed package they lie inside it, in a clone beside it."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import spyker
from spyker.config.suggest import suggest
from spyker.errors import UsageError

LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "runs")


@dataclass(frozen=True, slots=True)
class Example:
    """A file or a folder."""

    path: Path

    @property
    def name(self) -> str:
        """How it is called."""
        return self.path.name

    @property
    def about(self) -> str:
        """What it says of itself, in one line."""
        return first_sentence(words(self.path))


def examples_folder() -> Path:
    """Where they are."""
    inside = Path(spyker.__file__).parent / "examples"
    return inside if inside.is_dir() else inside.parents[1] / "examples"


def all_examples() -> list[Example]:
    """What there is, in the order of names."""
    folder = examples_folder()
    found = [path for path in folder.iterdir() if path.name[0] not in "._"] if folder.is_dir() else []
    if not found:
        raise UsageError("examples", f"{folder} holds none", "Install spyker-fl from a wheel, or clone it")
    return [Example(path) for path in sorted(found) if path.name != "README.md"]


def words(path: Path) -> str:
    """The text at the beginning of a file, or of what explains a folder."""
    if path.is_dir():
        inner = [path / name for name in ("README.md", "scenario.toml", "pyproject.toml") if (path / name).exists()]
        return words(inner[0]) if inner else ""
    text = path.read_text("utf-8")
    match path.suffix:
        case ".py":
            return ast.get_docstring(ast.parse(text)) or ""
        case ".ipynb":
            cells = json.loads(text)["cells"]
            return "".join(cells[0]["source"]).lstrip("# ") if cells else ""
        case ".md":
            return text.lstrip("# ")
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("#")]
    return " ".join(lines)


def first_sentence(text: str) -> str:
    """The first sentence of a text, or its first paragraph if that is no sentence."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph[: end + 1] if end > 0 else paragraph


def copy_examples(names: Sequence[str], folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Copy some examples, or all of them, into a folder. Nothing is copied if one of them stands there already."""
    known = {example.name: example for example in all_examples()}
    for name in names:
        if name not in known:
            raise UsageError("NAME", f"{name!r} is unknown", suggest(name, known))
    chosen = [known[name] for name in names] or list(known.values())
    taken = [str(folder / example.name) for example in chosen if (folder / example.name).exists()]
    if taken and not overwrite:
        raise UsageError("--out", f"{', '.join(taken)} exist already", "Choose another folder, or add --overwrite")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for example in chosen:
            if example.path.is_dir():
                shutil.copytree(example.path, folder / example.name, ignore=LEFT_OUT, dirs_exist_ok=overwrite)
            else:
                shutil.copyfile(example.path, folder / example.name)
    except OSError as error:
        raise UsageError("--out", f"{folder} cannot be written ({error.strerror})", "Choose another") from None
    return [folder / example.name for example in chosen]
