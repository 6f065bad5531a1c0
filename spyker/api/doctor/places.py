"""What was asked about: this machine, and the folders or files of deployments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from spyker.api.doctor.finding import Finding, wrong
from spyker.api.doctor.installation import PACKAGE, installation
from spyker.api.doctor.machine import folders, machine
from spyker.api.doctor.network import loopback
from spyker.errors import UsageError

NEEDED = ("cryptography", "grpc")


def examine(places: Sequence[Path]) -> Iterator[Finding]:
    """Everything about this machine, then everything about each place, as it is found."""
    for place in places:
        if not place.exists():
            remedy = "Name a server's configuration, or a folder that spyker certs or spyker up --keep made"
            raise UsageError("PLACE", f"{place} does not exist", remedy)
    yield from installation()
    yield from machine()
    yield from folders()
    yield from loopback()
    for place in places:
        yield from deployed(place)


def deployed(place: Path) -> Iterator[Finding]:
    """A server's configuration; a folder of certificates; or one with both, as ``spyker up --keep`` leaves it."""
    missing = [name for name in NEEDED if not find_spec(name)]
    if missing:
        yield wrong(str(place), f"needs {', '.join(missing)} to be read", f"Run pip install '{PACKAGE}[net]'")
        return
    from spyker.api.doctor.certificate_checks import folder_of_certificates  # only now: an extra
    from spyker.api.doctor.deployment import configuration

    if place.is_file():
        yield from configuration(place)
        return
    certificates = [folder for folder in (place, place / "certs") if (folder / "ca.pem").exists()]
    configurations = sorted(place.glob("*/config.toml"))
    if not certificates and not configurations:
        yield wrong(str(place), "holds neither certificates nor configurations", "Name a folder that spyker certs made")
    for folder in certificates[:1]:
        yield from folder_of_certificates(folder)
    for file in configurations:
        yield from configuration(file)
