"""Python, Spyker itself, and the packages that it needs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import spyker
from spyker.api.doctor.finding import Finding, fine, note, wrong
from spyker.version import __version__

PACKAGE = "spyker-fl"
OLDEST = (3, 11)
CPU_ONLY = "with the command that https://pytorch.org/get-started/locally/ shows for CPU"


def installation() -> Iterator[Finding]:
    """What is installed here."""
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < OLDEST:
        yield wrong("Python", found, "Use Python 3.11 or newer")
    else:
        yield fine("Python", found)
    place = Path(spyker.__file__).parent
    try:
        installed = metadata.version(PACKAGE)
        wanted = [Requirement(text) for text in metadata.requires(PACKAGE) or ()]
    except metadata.PackageNotFoundError:
        yield note("Spyker", f"{__version__}, {place}, which pip does not know of", f"Run pip install {PACKAGE}")
        return
    if installed != __version__:
        yield note("Spyker", f"{__version__}, {place}; pip says {installed}", "Install it again")
    else:
        yield fine("Spyker", f"{__version__}, {place}")
    always = packages_of("", wanted)
    yield from packages(always)
    for extra in metadata.metadata(PACKAGE).get_all("Provides-Extra") or ():
        if extra != "dev":
            yield of_extra(extra, [each for each in packages_of(extra, wanted) if each not in always])


def packages(wanted: list[Requirement]) -> Iterator[Finding]:
    """What Spyker cannot do without."""
    problems = [problem for each in wanted if (problem := lacking(each))]
    if problems:
        yield wrong("packages", "; ".join(problems), f"Run pip install --upgrade {PACKAGE}")
    else:
        yield fine("packages", ", ".join(f"{each.name} {metadata.version(each.name)}" for each in wanted))


def packages_of(extra: str, wanted: list[Requirement]) -> list[Requirement]:
    """The packages of an extra; of none, what is needed in any case."""
    return [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": extra})]


def of_extra(extra: str, wanted: list[Requirement]) -> Finding:
    """Whether an extra is here."""
    problems = [problem for each in wanted if (problem := lacking(each))]
    if problems:
        return note(f"extra [{extra}]", "; ".join(problems), f"If you need it: pip install '{PACKAGE}[{extra}]'")
    return fine(f"extra [{extra}]", "complete")


def lacking(wanted: Requirement) -> str:
    """What is wrong with a package, if anything."""
    try:
        there = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return f"no {wanted.name}"
    return (
        "" if wanted.specifier.contains(there, prereleases=True) else f"{wanted.name} {there}, not {wanted.specifier}"
    )
