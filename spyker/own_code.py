"""What results depend on besides a scenario: the code of the user's own that it names.

Nothing is imported for it. A module's source is read, and that of the modules that it imports, as far as they are the
user's own: neither the standard library's, nor an installed package's, nor Spyker's.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

OTHERS = (*sys.stdlib_module_names, "spyker")


def code_digest(name: str) -> str:
    """A digest of the code behind ``module:attribute``; empty for a name without a module, and for installed code."""
    module, colon, _ = name.partition(":")
    importlib.invalidate_caches()
    sources: dict[str, bytes] = {}
    if colon:
        collect(module, sources)
    if not sources:
        return ""
    digest = hashlib.sha256()
    for key, source in sorted(sources.items()):
        digest.update(f"{key}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()


def collect(module: str, sources: dict[str, bytes]) -> None:
    """Add the sources of a module, of the packages around it and of what they import, each once."""
    for name, spec in chain(module):
        if name in sources or spec.origin is None or not spec.has_location:
            continue
        path = Path(spec.origin)
        if not is_own(path):
            return
        sources[name] = path.read_bytes()
        if path.suffix == ".py":
            package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            for imported in imports(sources[name], package):
                collect(imported, sources)


def chain(module: str) -> Iterator[tuple[str, ModuleSpec]]:
    """A module and the packages around it, from the outside, as far as they can be found."""
    first, *rest = module.split(".")
    if first in OTHERS:
        return
    name, spec = first, PathFinder.find_spec(first, ["", *sys.path])
    while spec is not None:
        yield name, spec
        if not rest or spec.submodule_search_locations is None:
            return
        name = f"{name}.{rest.pop(0)}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))


def imports(source: bytes, package: str) -> Iterator[str]:
    """The modules that a source may import, wherever in it: ``from a import b`` may mean a module ``a.b``."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # whoever imports it will say so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            try:
                base = importlib.util.resolve_name(base, package) if node.level else base
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def is_own(path: Path) -> bool:
    """Whether a file is the user's own, and not part of something that is installed."""
    path = path.resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):  # also of another environment, which a .pth file names
        return False
    installed = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed += [*site.getsitepackages(), site.getusersitepackages()]
    return not any(path.is_relative_to(Path(folder).resolve()) for folder in installed)
