"""What masking costs servers and clients, in processor time per update, against an update that is not masked.

Arithmetic and cryptography alone, without transport. A round has 25 updates. A home server adds masked updates up and,
once per round, subtracts the masks and decodes; without masking it measures the norm of differences and adds them. A
helper opens seals and adds masks up. A client clips, encodes, seals and masks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography import x509

from benchmarks.measure import Result, in_turn
from spyker.net.certificate_issuing import make_deployment
from spyker.net.client_identity import load_identity
from spyker.net.sealing import X25519Sealer
from spyker.node.x25519_seals import X25519Opener, aes_mask, announced_key
from spyker.privacy.fixed_point import accumulate, decode, encode
from spyker.privacy.seals import Statement
from spyker.protocol.weights import Weights
from spyker.vectors import length

ROUND, SECRET, FEDERATION = 25, b"the secret of a helper", "a federation"
SIZES = {21_840: 2.0, 5_500_000: 2.0}  # parameters: bar


def timed(function: Callable[[], object], repeat: int) -> float:
    """Return the processor time of a call."""
    began = time.thread_time()
    for _ in range(repeat):
        function()
    return (time.thread_time() - began) / repeat


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        make_deployment(Path(folder) / "certs", 1, 1)
        return [result for size, bar in SIZES.items() for result in measure_size(Path(folder) / "certs", size, bar)]


def measure_size(certs: Path, size: int, bar: float) -> list[Result]:
    identity = load_identity(certs / "client-0", 0)
    sealer = X25519Sealer(identity, FEDERATION, lambda server: announced_key(SECRET))
    authorities = x509.load_pem_x509_certificates((certs / "ca.pem").read_bytes())
    opener = X25519Opener(SECRET, FEDERATION, authorities)
    said = Statement(0, 0, 1, 0, 1, 1.0, 64.0, 20, 1.0)
    difference = np.random.default_rng(1).standard_normal(size).astype(np.float32) * np.float32(1e-3)
    total, plain = np.zeros(size, np.uint32), Weights.zeros(difference)
    masked, repeat = aes_mask(bytes(32), size), max(1, 3_000_000 // size)
    seal = sealer.seal(said, size).seal.tobytes()

    def unmasked() -> None:
        plain.add(difference, 0.5 * length(difference))

    def end_of_round() -> None:
        np.subtract(total, masked, out=total)
        decode(total, 1.0, 20)

    def help_one() -> None:
        accumulate(total, opener.mask(opener.open(seal).seed, size), 16)

    def client() -> None:
        coded = encode(difference, 1.0 / length(difference), 20)
        np.add(coded, sealer.seal(said, size).mask, out=coded)

    def home() -> float:
        return timed(lambda: accumulate(total, masked, 16), repeat) + timed(end_of_round, repeat) / ROUND

    homes, before = in_turn(home, lambda: timed(unmasked, repeat), 7)
    helpers, _ = in_turn(lambda: timed(help_one, repeat), lambda: timed(unmasked, repeat), 7)
    clients, _ = in_turn(lambda: timed(client, repeat), lambda: timed(unmasked, repeat), 7)
    details = {"unmasked_us": 1e6 * before, "home_us": 1e6 * homes, "helper_us": 1e6 * helpers}
    name = f"masked / unmasked update, {size:,} parameters"
    return [
        Result(f"home server: {name}", homes / before, bar, at_most=True, details=details),
        Result(f"home server and helper: {name}", (homes + helpers) / before, None, at_most=True, details=details),
        Result(f"client: {name}", clients / before, None, at_most=True, details={"client_us": 1e6 * clients}),
    ]
