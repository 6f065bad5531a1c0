"""The certificates and credentials of a deployment. It needs the extra ``[deploy]``."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from spyker.api.doctor.finding import Finding, fine, note, wrong
from spyker.errors import UsageError
from spyker.net.certificates import (
    CA,
    CERTIFICATE,
    CLIENTS,
    CREDENTIAL,
    KEY,
    credential_digest,
    load_credential,
    load_credentials,
    server_name,
)

SOON = 30  # days


def folder_of_certificates(folder: Path) -> Iterator[Finding]:
    """What ``spyker certs`` made."""
    for server in sorted(folder.glob("server-*"), key=number):
        yield from server_certificate(
            number(server), server / CA, server / CERTIFICATE, server / KEY, f"spyker certs {folder} --renew"
        )
    yield credentials(folder)


def number(path: Path) -> int:
    """The number at the end of a folder's name."""
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def server_certificate(server: int, ca: Path, certificate: Path, key: Path, renew: str) -> Iterator[Finding]:
    """Whether a server can prove who it is, and for how long."""
    what, remedy = f"server {server}", f"Run {renew} server-{server}"
    try:
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
        own = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    except OSError as error:
        yield wrong(what, f"{error.filename} cannot be read ({error.strerror})", remedy)
        return
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        yield wrong(what, f"{certificate.parent} holds something that is no certificate, or no key ({error})", remedy)
        return
    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        yield wrong(what, f"{certificate} was not signed by {ca}", remedy)
        return
    if private.public_key() != own.public_key():
        yield wrong(what, f"{key} is not the key of {certificate}", remedy)
    elif server_name(server) not in names:
        yield wrong(what, f"{certificate} does not name {server_name(server)}", remedy)
    elif stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield wrong(what, f"{key} can be read by others", f"Run chmod 600 {key}")
    else:
        end = min(own.not_valid_after_utc, authority.not_valid_after_utc)
        yield expiry(what, certificate, end, remedy)


def expiry(what: str, certificate: Path, end: datetime, remedy: str) -> Finding:
    """For how long a certificate is valid."""
    days = (end - datetime.now(UTC)).total_seconds() / 86_400
    if days <= 0:
        return wrong(what, f"{certificate} has expired on {end:%Y-%m-%d}", remedy)
    found = f"{certificate} is valid until {end:%Y-%m-%d}"
    return note(what, found, f"{remedy} in time") if days < SOON else fine(what, found)


def credentials(folder: Path) -> Finding:
    """Whether the credentials that lie here are those that servers know."""
    try:
        known = load_credentials(folder / CLIENTS)
        own = {number(client): client / CREDENTIAL for client in folder.glob("client-*")}
        strange = [k for k, path in own.items() if known.get(credential_digest(load_credential(path))) != k]
    except UsageError as error:
        return wrong("clients", str(error), f"Run spyker certs {folder} --renew client-K")
    if strange:
        names = ", ".join(f"client-{k}" for k in sorted(strange)[:5])
        return wrong(
            "clients",
            f"{folder / CLIENTS} does not know the credential of {names}",
            f"Run spyker certs {folder} --renew",
        )
    return fine("clients", f"{len(known):,} in {folder / CLIENTS}")
