"""What deployed clients mask their updates with. Seeds and keys come from the operating system's generator."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from spyker.net.client_identity import ClientIdentity
from spyker.node.x25519_seals import aes_mask, seed_cipher, signed_bytes
from spyker.privacy.seals import SEED_BYTES, Sealed, Statement


class X25519Sealer:
    """Seals as one client."""

    def __init__(self, identity: ClientIdentity, federation: str, key_of: Callable[[int], str | None]) -> None:
        """Create what a client seals with.

        Args:
            identity: certificate and key of the client.
            federation: identifies the federation.
            key_of: returns the sealing key that a server has announced, in hexadecimal, once it is known.

        """
        self.life = time.time_ns() // 1_000_000  # a later process has a higher one, unless the clock was set back
        self._identity, self._federation, self._key_of = identity, federation, key_of

    def knows(self, helper: int) -> bool:
        """Return whether the sealing key of a server is known."""
        return bool(self._key_of(helper))

    def seal(self, statement: Statement, count: int) -> Sealed:
        """Draw a seed, and return its seal and the mask of ``count`` numbers that follows from it."""
        announced = self._key_of(statement.helper)
        if not announced:
            raise RuntimeError(f"client {statement.client}: the sealing key of server {statement.helper} is not known")
        helper = bytes.fromhex(announced)
        own, seed, said = X25519PrivateKey.generate(), secrets.token_bytes(SEED_BYTES), statement.pack()
        ephemeral = own.public_key().public_bytes_raw()
        shared = own.exchange(X25519PublicKey.from_public_bytes(helper))
        body = said + ephemeral + seed_cipher(shared, ephemeral, helper).encrypt(bytes(12), seed, said)
        signature = self._identity.key.sign(signed_bytes(self._federation, body))
        seal = body + signature + self._identity.certificate
        return Sealed(np.frombuffer(seal, np.uint8), aes_mask(seed, count))
