"""Seals of deployed clients and servers: X25519 and ChaCha20-Poly1305 for seeds, Ed25519 for statements, AES for masks.

A seal consists of the statement, an ephemeral public key, the encrypted seed, the client's signature of all this, and
the client's certificate. The key that encrypts the seed is derived from the ephemeral key and the helper's sealing key,
which the helper announces, signed by its lineage. A server that announced a sealing key of its own for another server
would have to sign as that server's lineage.

Everything here is a function of its arguments, so that an event log can be replayed. Clients draw seeds in
:mod:`spyker.net.sealing`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from spyker.node.client_certificate import CertifiedClient, certified_client
from spyker.node.ed25519_keys import issued
from spyker.privacy.fixed_point import Residues
from spyker.privacy.seals import SEED_BYTES, STATEMENT_BYTES, Opened, SealError, unpack

DERIVATION = b"spyker: the key that opens seals\0"
SIGNED = b"spyker: a client seals the seed of a mask\0"
ENCRYPTED = b"spyker: the seed of a mask\0"
KEY_BYTES, TAG_BYTES, SIGNATURE_BYTES = 32, 16, 64
BODY_BYTES = STATEMENT_BYTES + KEY_BYTES + SEED_BYTES + TAG_BYTES
KNOWN_CERTIFICATES = 65_536  # verified ones that a helper remembers


def sealing_key(secret: bytes) -> X25519PrivateKey:
    """Return the key that opens seals; it follows from a server's secret."""
    return X25519PrivateKey.from_private_bytes(hashlib.sha256(DERIVATION + secret).digest())


def announced_key(secret: bytes) -> str:
    """Return the public part of the key that opens seals, in hexadecimal."""
    return sealing_key(secret).public_key().public_bytes_raw().hex()


def seed_cipher(shared: bytes, ephemeral: bytes, helper: bytes) -> ChaCha20Poly1305:
    """Return the cipher of one seed; the key is used once."""
    derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=ENCRYPTED + ephemeral + helper).derive(shared)
    return ChaCha20Poly1305(derived)


def signed_bytes(federation: str, body: bytes) -> bytes:
    """Return what a client signs."""
    return SIGNED + hashlib.sha256(federation.encode() + b"\0" + body).digest()


def aes_mask(seed: bytes, count: int) -> Residues:
    """Return the mask that follows from a seed: the key stream of AES-256 in counter mode."""
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
    mask = np.zeros(count, np.dtype("<u4"))
    stream.update_into(bytes(4 * count), mask.view(np.uint8).data)
    return mask.view(np.uint32)


class X25519Opener:
    """Opens seals as one server."""

    def __init__(
        self,
        secret: bytes,
        federation: str,
        authorities: Sequence[x509.Certificate],
        revoked: Callable[[CertifiedClient], bool] = lambda client: False,
    ) -> None:
        """Create what a server opens seals with.

        Args:
            secret: the server's secret.
            federation: identifies the federation.
            authorities: certificates of its authorities.
            revoked: whether the certificate of a client was revoked.

        """
        self._key, self._federation, self._authorities = sealing_key(secret), federation, authorities
        self._public, self._revoked = self._key.public_key().public_bytes_raw(), revoked
        self._verified: dict[bytes, tuple[CertifiedClient, Ed25519PublicKey]] = {}  # by certificate

    def open(self, seal: bytes) -> Opened:
        """Verify and decrypt a seal; raise a ``SealError`` if that fails."""
        body, signature = seal[:BODY_BYTES], seal[BODY_BYTES : BODY_BYTES + SIGNATURE_BYTES]
        if len(signature) != SIGNATURE_BYTES:
            raise SealError(f"it has {len(seal)} bytes")
        statement = unpack(body[:STATEMENT_BYTES])
        client, key = self._certified(seal[BODY_BYTES + SIGNATURE_BYTES :])
        if client.number != statement.client:
            raise SealError(f"client {client.number} says that it is client {statement.client}")
        try:
            key.verify(signature, signed_bytes(self._federation, body))
        except InvalidSignature:
            raise SealError(f"the signature of client {client.number} does not fit") from None
        ephemeral, encrypted = body[STATEMENT_BYTES : STATEMENT_BYTES + KEY_BYTES], body[STATEMENT_BYTES + KEY_BYTES :]
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            cipher = seed_cipher(shared, ephemeral, self._public)
            return Opened(statement, cipher.decrypt(bytes(12), encrypted, body[:STATEMENT_BYTES]))
        except (InvalidTag, ValueError):
            raise SealError(f"the seed of client {client.number} is not encrypted for this server") from None

    def _certified(self, data: bytes) -> tuple[CertifiedClient, Ed25519PublicKey]:
        """Return the client and the key that a certificate names."""
        known = self._verified.get(data)
        if known is None:
            try:
                certificate = x509.load_der_x509_certificate(data)
                client, key = certified_client(certificate), certificate.public_key()
            except Exception:  # whatever a parser raises about bytes from somebody else
                raise SealError("it has no certificate") from None
            if client is None or not isinstance(key, Ed25519PublicKey):
                raise SealError("its certificate is not a client's")
            if not any(issued(certificate, authority) for authority in self._authorities):
                raise SealError(f"the certificate of client {client.number} was not issued by this federation")
            if len(self._verified) >= KNOWN_CERTIFICATES:
                self._verified.clear()
            known = self._verified[data] = client, key
        if self._revoked(known[0]):
            raise SealError(f"the certificate of client {known[0].number} was revoked")
        return known

    def mask(self, seed: bytes, count: int) -> Residues:
        """Return the mask that follows from a seed."""
        return aes_mask(seed, count)
