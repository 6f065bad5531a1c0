"""The identity of a client: an Ed25519 key, a certificate of the federation's authority, and a signed challenge.

The key never leaves the client. A server sends a random nonce and its own number; the client signs both. So whoever
reads along, such as a proxy that ends TLS, or another server, cannot use the signature anywhere else.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from spyker.errors import UsageError
from spyker.net import spyker_pb2 as pb
from spyker.net.certificate_check import out_of_time, read_authorities, read_certificates
from spyker.net.certificates import CA, CERTIFICATE, KEY
from spyker.net.channels import read_file
from spyker.net.frames import PROTOCOL
from spyker.net.revocations import Revocations
from spyker.node.client_certificate import CertifiedClient, certified_client
from spyker.node.ed25519_keys import issued
from spyker.node.rejection import Rejection

CONTEXT = b"spyker: a client greets a server\0"
NONCE_BYTES = 32
LARGEST_CERTIFICATE = 4096  # bytes; ours have about 500
REASON = "identity"


def challenge_bytes(nonce: bytes, server: int) -> bytes:
    """Return what a client signs to greet a server."""
    return CONTEXT + struct.pack(">II", PROTOCOL, server) + nonce


def new_nonce() -> bytes:
    """Return a nonce for one challenge."""
    return secrets.token_bytes(NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A client's certificate and key, on the client's side."""

    client: CertifiedClient
    certificate: bytes
    """In DER."""
    key: Ed25519PrivateKey

    def sign(self, nonce: bytes, server: int) -> bytes:
        """Answer a server's challenge."""
        if len(nonce) != NONCE_BYTES:
            raise Rejection("malformed", f"a challenge of {len(nonce)} bytes; it must have {NONCE_BYTES}")
        return self.key.sign(challenge_bytes(nonce, server))


def load_identity(folder: Path, number: int, now: datetime | None = None) -> ClientIdentity:
    """Read and check the identity of a client.

    Args:
        folder: a folder with ``ca.pem``, ``cert.pem`` and ``key.pem``.
        number: the number that the client is to have.
        now: the time at which the certificate must be valid; default: the present.

    Raises:
        UsageError: names the file, what is wrong with it and the remedy.

    """
    path, key_path, ca_path = folder / CERTIFICATE, folder / KEY, folder / CA
    again = "Copy the client's folder again from the folder of the federation"
    certificate = read_certificates(path, str(path))[0]
    client = certified_client(certificate)
    if client is None:
        raise UsageError(str(path), "is not a client's certificate", again)
    if client.number != number:
        raise UsageError(str(path), f"is for client {client.number}, and this is client {number}", again)
    try:
        key = serialization.load_pem_private_key(read_file(key_path, str(key_path)), None)
    except (ValueError, TypeError):
        raise UsageError(str(key_path), "is not a private key", again) from None
    if not isinstance(key, Ed25519PrivateKey) or key.public_key() != certificate.public_key():
        raise UsageError(str(key_path), f"is not the key of {path}", again)
    if wrong := out_of_time(certificate, now):
        remedy = f"Let the operator run spyker federation renew {client.name}, or set this machine's clock"
        raise UsageError(str(path), wrong, remedy)
    if not any(issued(certificate, each) for each in read_authorities(ca_path, str(ca_path), now)):
        raise UsageError(str(path), f"was not issued by {ca_path}", again)
    return ClientIdentity(client, certificate.public_bytes(serialization.Encoding.DER), key)


def answer_challenge(
    hello: pb.Hello, challenge: pb.Challenge, identity: ClientIdentity | None, server: int | None
) -> None:
    """Add certificate and signature to Hello; raise a rejection if the challenge is not of the intended server.

    Args:
        hello: the client's answer.
        challenge: what the server said.
        identity: the client's; ``None``: the client is not authenticated.
        server: the number of the server that is meant, if it is known.

    """
    if challenge.protocol != PROTOCOL:
        raise Rejection("mismatch", f"the server speaks version {challenge.protocol} of the protocol, not {PROTOCOL}")
    if server is not None and challenge.server != server:
        raise Rejection("wrong-server", f"server {challenge.server} answers where server {server} is expected")
    if identity is not None:
        hello.certificate = identity.certificate
        hello.signature = identity.sign(challenge.nonce, challenge.server)


class ClientVerifier:
    """Verifies on a server who a client is."""

    def __init__(self, authorities: Sequence[x509.Certificate], revocations: Revocations) -> None:
        self.authorities, self.revocations = authorities, revocations

    def verify(self, certificate: bytes, signature: bytes, nonce: bytes, server: int) -> CertifiedClient:
        """Return the client that signed a challenge, or raise a rejection."""
        if not certificate:
            raise Rejection(REASON, "no certificate came with Hello")
        if len(certificate) > LARGEST_CERTIFICATE:
            raise Rejection(REASON, f"a certificate of {len(certificate):,} bytes")
        try:
            shown = x509.load_der_x509_certificate(certificate)
            client, key = certified_client(shown), shown.public_key()
        except Exception:  # whatever a parser raises about bytes from a stranger
            raise Rejection(REASON, "not a certificate") from None
        if client is None or not isinstance(key, Ed25519PublicKey):
            raise Rejection(REASON, "not a client's certificate")
        who = f"the certificate of client {client.number}"
        if not any(issued(shown, authority) for authority in self.authorities):
            raise Rejection(REASON, f"{who} was not issued by this federation's authority")
        try:
            key.verify(signature, challenge_bytes(nonce, server))
        except InvalidSignature:
            raise Rejection(REASON, f"the signature does not fit {who}, or was made for another server") from None
        if wrong := out_of_time(shown, datetime.now(UTC)):
            raise Rejection(REASON, f"{who} ({client.name}) {wrong}")
        self.check(client)
        return client

    def check(self, client: CertifiedClient) -> None:
        """Raise a rejection if a client's certificate was revoked."""
        if self.revocations.revoked(client.number, client.serial):
            raise Rejection(REASON, f"the certificate of client {client.number} ({client.name}) was revoked")
