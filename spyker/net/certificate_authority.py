"""A certificate authority for development and small deployments."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spyker.errors import UsageError
from spyker.net.certificates import CA, CA_KEY, client_name
from spyker.node.client_certificate import CLIENT_USAGE
from spyker.node.ed25519_keys import server_name
from spyker.untrusted_files import LARGEST_TABLE, read_bytes

AUTHORITY_DAYS = 3650.0
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
HOST_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.I)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, days: float = AUTHORITY_DAYS) -> Authority:
        """Create a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Spyker development CA")])
        usage = key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True)
        builder = (
            begin(subject, subject, key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Load the authority of a federation's folder."""
        try:
            certificate = x509.load_pem_x509_certificate(read_bytes(folder / CA, LARGEST_TABLE))
            key = serialization.load_pem_private_key(read_bytes(folder / CA_KEY, LARGEST_TABLE), None)
        except (OSError, ValueError) as error:
            raise UsageError(
                str(folder),
                f"holds no certificate authority ({error})",
                "Name a folder that spyker federation create wrote",
            ) from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(certificate, key)

    def pem(self) -> tuple[bytes, bytes]:
        """Return the authority's own certificate and key."""
        return self.certificate.public_bytes(serialization.Encoding.PEM), private_pem(self.key)

    def issue(self, server: int, hosts: Sequence[str], days: float) -> tuple[bytes, bytes]:
        """Issue a certificate for a server with these names and addresses.

        Args:
            server: number of the server.
            hosts: DNS names and addresses.
            days: validity in days; with a negative number, the certificate has already expired.

        Returns:
            The certificate and its key, as PEM.

        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(server_name(server)), *map(general_name, dict.fromkeys(hosts))]
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._sign(key, server_name(server), names, usage, days)

    def issue_client(self, client: int, name: str, days: float) -> tuple[bytes, bytes]:
        """A certificate for a client with this number and name, and its key, both as PEM."""
        key = ed25519.Ed25519PrivateKey.generate()
        return self._sign(key, name, [x509.DNSName(client_name(client))], [CLIENT_USAGE], days)

    def _sign(
        self,
        key: PrivateKey,
        common_name: str,
        names: Sequence[x509.GeneralName],
        usage: Sequence[x509.ObjectIdentifier],
        days: float,
    ) -> tuple[bytes, bytes]:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        issuer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        certificate = (
            begin(subject, self.certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), private_pem(key)


def is_host(name: str) -> bool:
    """Return whether this is a valid DNS name or address for a certificate."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return HOST_NAME.fullmatch(name) is not None and len(name) <= 253 and not name.lower().endswith(".spyker")
    return True


def general_name(host: str) -> x509.GeneralName:
    """Return a host as a general name of X.509."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def begin(subject: x509.Name, issuer: x509.Name, key: PrivateKey, days: float) -> x509.CertificateBuilder:
    """Return a builder with the common fields. Certificates are valid from an hour ago, because clocks differ."""
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - timedelta(hours=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    """Return a key usage extension with only these uses."""
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def private_pem(key: PrivateKey) -> bytes:
    """Return a private key as PEM, unencrypted: the mode of its file protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
