"""Keys of deployed servers: Ed25519 for lineages, certificates of the federation's authority for endorsements.

Everything here is a function of its arguments. The validity period of a certificate is not checked, because a proof
must stay valid for as long as somebody has to follow it; TLS checks it for each connection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from spyker.node.control_messages import succession_statement
from spyker.node.keys import statement

DERIVATION = b"spyker: the key of a lineage\0"


class CertifiedSignature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endorsement: a signature and the certificate whose key made it, with intermediate certificates."""

    certificates: bytes
    """As PEM."""
    signature: bytes


_endorsements = msgspec.msgpack.Decoder(CertifiedSignature)


def private_key(secret: bytes) -> Ed25519PrivateKey:
    """Return the key that follows from a server's secret."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(DERIVATION + secret).digest())


def lineage_of(secret: bytes) -> str:
    """Return the lineage that follows from a server's secret: the public key in hexadecimal."""
    return private_key(secret).public_key().public_bytes_raw().hex()


class Ed25519Keys:
    """Signs as one lineage, and verifies signatures of others, endorsements and forced changes.

    Without authorities, as in a deployment without TLS, endorsements and forced changes are not authenticated.
    """

    def __init__(self, secret: bytes, federation: str, authorities: bytes = b"", endorsement: bytes = b"") -> None:
        """``authorities`` are the certificates of the federation's authorities, as PEM."""
        self._key = private_key(secret)
        self.federation, self.endorsement, self._pem = federation, endorsement, authorities
        self.lineage = lineage_of(secret)

    @cached_property
    def _authorities(self) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(self._pem) if self._pem else []

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement as this server's lineage."""
        return self._key.sign(statement)

    def verify(self, lineage: str, statement: bytes, signature: bytes) -> bool:
        """Return whether a lineage has signed a statement."""
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(lineage)).verify(signature, statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    def endorsed(self, server: int, lineage: str, endorsement: bytes) -> bool:
        """Return whether the certificate of a server endorses a lineage."""
        if not self._authorities:
            return True
        try:
            said = _endorsements.decode(endorsement)
            own, *between = x509.load_pem_x509_certificates(said.certificates)
            names = dns_names(own)
            key = own.public_key()
        except (msgspec.DecodeError, ValueError, UnsupportedAlgorithm):
            return False
        expected = endorsement_statement(self.federation, server, lineage)
        named = server_name(server) in names and leads_to(own, between, self._authorities)
        return named and verified(key, expected, said.signature)

    def authorised(self, statement: bytes, signature: bytes) -> bool:
        """Return whether one of the federation's authorities has signed a statement."""
        keys = [each.public_key() for each in self._authorities]
        return not keys or any(verified(key, statement, signature) for key in keys)


# --- Signatures of certificates ---------------------------------------------------------------------------------------


def endorsement_statement(federation: str, server: int, lineage: str) -> bytes:
    """Return what the certificate of a server signs."""
    return statement("lineage", federation, server, lineage)


def endorse(federation: str, server: int, lineage: str, certificates: bytes, key: bytes) -> bytes:
    """Sign a lineage with the key of a server's certificate, both as PEM."""
    loaded: Any = serialization.load_pem_private_key(key, None)
    signature = sign_with(loaded, endorsement_statement(federation, server, lineage))
    return msgspec.msgpack.encode(CertifiedSignature(certificates, signature))


def succeed(secret: bytes, federation: str, server: int, lineage: str) -> bytes:
    """Sign the lineage under which a server restarts as a new member, with the secret of its former one."""
    return private_key(secret).sign(succession_statement(federation, server, lineage))


def sign_with(key: Any, statement: bytes) -> bytes:
    """Sign with the private key of a certificate."""
    match key:
        case ec.EllipticCurvePrivateKey():
            return key.sign(statement, ec.ECDSA(hashes.SHA256()))
        case rsa.RSAPrivateKey():
            return key.sign(statement, padding.PKCS1v15(), hashes.SHA256())
        case Ed25519PrivateKey():
            return key.sign(statement)
    raise ValueError(f"a key of the kind {type(key).__name__} cannot sign here; use EC, RSA or Ed25519")


def verified(key: Any, statement: bytes, signature: bytes) -> bool:
    """Return whether the key of a certificate has signed a statement."""
    try:
        match key:
            case ec.EllipticCurvePublicKey():
                key.verify(signature, statement, ec.ECDSA(hashes.SHA256()))
            case rsa.RSAPublicKey():
                key.verify(signature, statement, padding.PKCS1v15(), hashes.SHA256())
            case Ed25519PublicKey():
                key.verify(signature, statement)
            case _:
                return False
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(certificate: bytes) -> str:
    """Return the fingerprint of the key in a certificate, which is PEM."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(*form)).hexdigest()


def federation_id(authorities: bytes, learning: bytes) -> str:
    """Return what identifies a federation: the key of its first authority, and what is learnt."""
    key = fingerprint(authorities) if authorities else ""
    return statement("federation", key, learning.hex()).hex()[-64:]


def server_name(server: int) -> str:
    """Return the name in a certificate by which a server is known, wherever it runs."""
    return f"server-{server}.spyker"


def dns_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names in a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return names.get_values_for_type(x509.DNSName)


def leads_to(
    own: x509.Certificate, between: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]
) -> bool:
    """Return whether a chain of intermediate certificates leads from a certificate to an authority."""
    current, unused = own, list(between)
    while not any(current == authority or issued(current, authority) for authority in authorities):
        issuer = next((each for each in unused if issued(current, each)), None)
        if issuer is None:
            return False
        unused.remove(issuer)
        current = issuer
    return True


def issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether ``issuer`` has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
