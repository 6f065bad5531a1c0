"""Digests of the user's own code, and of what a program gives to Spyker: what results depend on besides a scenario.

The code of a module is its source, and that of the modules that it imports, as far as they are the user's own: neither
the standard library's, nor an installed package's, nor Spyker's. Nothing is imported for it.

A function or an object of a program is digested by :func:`value_digest`, such that two processes that run the same
program get the same digest. Pickles differ between processes: they hold addresses, and sets in any order.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import importlib.machinery
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

OTHERS = (*sys.stdlib_module_names, "spyker")
PROGRAM = "__main__"
PLAIN = {bool, bytes, complex, float, int, str, type(None), type(Ellipsis)}  # told apart by their repr
UNTOLD = ("__dict__", "__doc__", "__module__", "__weakref__", "_abc_impl")  # of a class: not what it does


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
        sources[name] = path.read_bytes().replace(b"\r\n", b"\n")  # the same on all systems
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


def value_digest(value: object) -> str:
    """A digest of a function, a class or an object, with the code and the data that it refers to.

    Code of the program itself (``__main__``: a script or a notebook) counts as it was compiled, without its comments;
    code of a module that can be imported counts as the source of that module.
    """
    return Digester().of(value).hex()


class Digester:
    """Digests values from the inside out, each object once."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._under_way: dict[int, int] = {}  # objects that contain the current one, and how deep they are
        self._alive: list[object] = []  # an id is that of another object when the first is gone
        self._modules: dict[str, str] = {}

    def of(self, value: object) -> bytes:
        """The digest of anything."""
        if type(value) in PLAIN:
            return made("plain", [repr(value).encode()])
        key = id(value)
        if key in self._known:
            return self._known[key]
        if key in self._under_way:
            return made("cycle", [str(self._under_way[key]).encode()])
        self._under_way[key] = len(self._under_way)
        self._alive.append(value)
        kind, parts = self._parts(value)
        self._known[key] = found = made(kind, parts)
        del self._under_way[key]
        return found

    def _parts(self, value: Any) -> tuple[str, list[bytes]]:
        """What an object is, and the digests of what it consists of."""
        match value:
            case tuple() | list() if type(value) in (tuple, list):
                if set(map(type, value)) <= PLAIN:
                    return type(value).__name__, [repr(value).encode()]
                return type(value).__name__, self._all(value)
            case set() | frozenset() if type(value) in (set, frozenset):
                return type(value).__name__, sorted(self._all(value))
            case dict() if type(value) is dict:
                return "dict", self._items(value)
            case np.ndarray() if value.dtype != object:
                return "array", [f"{value.dtype} {value.shape}".encode(), np.ascontiguousarray(value).tobytes()]
            case ModuleType():
                return "module", [self._module(value.__name__)]
            case FunctionType():
                return "function", self._function(value)
            case type():
                return "class", self._class(value)
            case CodeType():
                return "code", code_parts(value, self)
            case CellType():
                return "cell", self._all([value.cell_contents] if holds(value) else [])
            case MethodType():
                return "method", self._all([value.__func__, value.__self__])
            case staticmethod() | classmethod():
                return type(value).__name__, [self.of(value.__func__)]
            case property():
                return "property", self._all([value.fget, value.fset, value.fdel])
            case BuiltinFunctionType():
                return "builtin", [value.__qualname__.encode()]
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            flat = value.detach().cpu().reshape(-1).contiguous()
            return "tensor", [f"{value.dtype} {tuple(value.shape)}".encode(), flat.view(torch.uint8).numpy().tobytes()]
        return "object", self._object(value)

    def _object(self, value: Any) -> list[bytes]:
        """What an object would be pickled as; of one that cannot be pickled, its class."""
        kind = self.of(type(value))
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            return [kind]
        if isinstance(reduced, str):
            return [kind, reduced.encode(), self.of(getattr(value, "__wrapped__", None))]
        make, arguments, state, items, pairs = [*reduced, None, None, None][:5]
        parts = [kind, self.of(make), self.of(arguments), self.of(state)]
        return [*parts, *self._all(items or ()), *(part for pair in pairs or () for part in self._all(pair))]

    def _function(self, function: FunctionType) -> list[bytes]:
        parts = [function.__qualname__.encode(), self._module(function.__module__)]
        parts += self._all([function.__defaults__, function.__kwdefaults__, function.__closure__])
        if parts[1] == PROGRAM.encode():
            there = function.__globals__
            used = {name: there[name] for name in sorted(globals_of(function.__code__)) if name in there}
            parts += [self.of(function.__code__), *self._items(used)]
        return parts

    def _class(self, kind: type) -> list[bytes]:
        parts = [kind.__qualname__.encode(), self._module(kind.__module__)]
        if parts[1] == PROGRAM.encode():
            members = {name: member for name, member in vars(kind).items() if name not in UNTOLD}
            parts += [*self._all(kind.__bases__), *self._items(members)]
        return parts

    def _module(self, name: str | None) -> bytes:
        """A module by its name, and its source if that is the user's own; the program itself by its name alone."""
        name = name or PROGRAM
        if name not in self._modules:
            self._modules[name] = name if name == PROGRAM else f"{name} {code_digest(f'{name}:')}"
        return self._modules[name].encode()

    def _all(self, values: Iterable[object]) -> list[bytes]:
        return [self.of(value) for value in values]

    def _items(self, values: Mapping[Any, object]) -> list[bytes]:
        return [part for key, value in values.items() for part in (self.of(key), self.of(value))]


def made(kind: str, parts: Iterable[bytes]) -> bytes:
    """A digest of some parts."""
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        digest.update(f" {len(part)} ".encode())
        digest.update(part)
    return digest.digest()


def code_parts(code: CodeType, digester: Digester) -> list[bytes]:
    """What compiled code does: neither where it stands, nor how it was written."""
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return [code.co_code, *map(digester.of, (names, arguments, code.co_consts))]


def globals_of(code: CodeType) -> set[str]:
    """The global names that compiled code reads, also in the functions inside of it."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def holds(cell: CellType) -> bool:
    """Whether a cell of a closure has been filled."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
