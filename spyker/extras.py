"""Packages that only some commands need, and the extras that install them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from spyker.errors import UsageError

SERVER = ("cryptography", "google", "grpc", "grpc_health", "prometheus_client", "websockets")
SIMULATION = ("matplotlib", "pooch", "requests", "sklearn", "torch")
EXTRAS = {
    "server": SERVER,
    "client": (*SERVER, "torch"),
    "simulation": SIMULATION,
    "dashboard": ("starlette", "uvicorn"),
    "flower": ("flwr",),
    "flower-datasets": ("flwr_datasets",),
    "pandas": ("pandas",),
    "privacy": ("opacus",),
    "ray": ("ray",),
}
"""The modules that each extra installs, as in pyproject.toml."""
SINGLE = ("opacus", "pandas", "ray")
"""Packages that are all their extra installs, in any version: Flower has an upper bound."""


class MissingPackageError(UsageError, ImportError):
    """A package is not installed. Says what needs it and how to install it, in a clone and with a release.

    Where ``spyker-fl`` is installed, ``pip install 'spyker-fl[…]'`` keeps it and adds the packages of the extra.
    """

    def __init__(self, field: str, missing: Iterable[str], extra: str | None = None) -> None:
        names = list(missing)
        one = extra or extra_with(names)
        extras = one or ",".join(sorted({extra_with([name]) or name for name in names}))
        install = " ".join(names) if set(names) <= set(SINGLE) else f"'spyker-fl[{extras}]'"
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        problem = f"needs {', '.join(names)}, which {verb} not installed"
        super().__init__(field, problem, f"Install {them}: pip install {install}")


def require(field: str, *modules: str, extra: str | None = None) -> None:
    """Raise a ``MissingPackageError`` if one of ``modules`` is not installed.

    Args:
        field: what needs them.
        modules: names of modules.
        extra: the extra to install; default: the smallest one that contains the missing modules.

    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingPackageError(field, missing, extra)


def explain(field: str, error: Exception) -> MissingPackageError | None:
    """Return the error to show if ``error`` is an import that needs an extra; otherwise ``None``."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    known = any(module in modules for modules in EXTRAS.values())
    return MissingPackageError(field, [module]) if known and find_spec(module) is None else None


def extra_with(names: Iterable[str]) -> str | None:
    """Return the extra that installs all of these modules; of several, the one with the fewest missing modules."""
    extras = [extra for extra, modules in EXTRAS.items() if set(names) <= set(modules)]
    return min(extras, key=lambda extra: sum(find_spec(each) is None for each in EXTRAS[extra]), default=None)
