"""Documents and examples use public names only."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = {"spyker", "spyker.algorithm", "spyker.records", "spyker.flower.partitioners"}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))


def code_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [text]


def imported(code: str) -> list[tuple[str, list[str]]]:
    """Modules of Spyker that a program imports, each with the names that it takes from it."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, [name.name for name in node.names]))
        elif isinstance(node, ast.Import):
            found += [(name.name, []) for name in node.names]
    return [(module, names) for module, names in found if module.partition(".")[0] == "spyker"]


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_are_imported(path: Path) -> None:
    for code in code_of(path):
        for module, names in imported(code):
            assert module in PUBLIC, f"{module} is private"
            public = getattr(importlib.import_module(module), "__all__", names)
            assert set(names) <= set(public), f"{module} does not offer these publicly"


@pytest.mark.parametrize("module", ["spyker", "spyker.algorithm", "spyker.records"])
def test_every_public_name_exists(module: str) -> None:
    home = importlib.import_module(module)
    assert [name for name in home.__all__ if getattr(home, name, None) is None] == []
