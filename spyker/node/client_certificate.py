"""Certificates of clients: which client one is for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from spyker.node.ed25519_keys import dns_names

CLIENT = re.compile(r"client-(\d{1,9})\.spyker")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
"""The name of a client or a server: letters, digits and dashes, a letter first."""
CLIENT_USAGE = ObjectIdentifier("2.25.38032418952091306081219859836805586518")
"""Extended key usage of clients: their certificates are valid neither for a TLS server nor for a TLS client."""


@dataclass(frozen=True, slots=True)
class CertifiedClient:
    """The client that a certificate names."""

    number: int
    name: str
    serial: int


def certified_client(certificate: x509.Certificate) -> CertifiedClient | None:
    """Return the client that a certificate is for, or ``None`` if it is no client's certificate."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    numbers = [match for name in dns_names(certificate) if (match := CLIENT.fullmatch(name))]
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if CLIENT_USAGE not in usage or len(numbers) != 1 or len(names) != 1:
        return None
    name = str(names[0].value)
    return CertifiedClient(int(numbers[0][1]), name, certificate.serial_number) if NAME.fullmatch(name) else None
