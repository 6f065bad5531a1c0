"""Seals of deployed clients: who can open them, and what is noticed."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509

from spyker.net.certificate_issuing import make_deployment
from spyker.net.client_identity import ClientIdentity, load_identity
from spyker.net.sealing import X25519Sealer
from spyker.node.control_messages import Announcement
from spyker.node.ed25519_keys import Ed25519Keys, lineage_of
from spyker.node.x25519_seals import BODY_BYTES, SIGNATURE_BYTES, X25519Opener, announced_key
from spyker.privacy.seals import STATEMENT_BYTES, SealError, Statement

HELPER, OTHER = b"secret of the helper", b"secret of another server"
FEDERATION = "a federation"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    for name in ("ours", "theirs"):
        make_deployment(folder / name, 1, 2)
    return folder


def identity(folders: Path, client: int = 0, name: str = "ours") -> ClientIdentity:
    return load_identity(folders / name / f"client-{client}", client)


def statement(client: int = 0) -> Statement:
    return Statement(client, 3, 1, 5, 7, 0.5, 64.0, 12, 1.5)


def sealer(who: ClientIdentity, secret: bytes = HELPER, federation: str = FEDERATION) -> X25519Sealer:
    return X25519Sealer(who, federation, lambda server: announced_key(secret))


def opener(folders: Path, secret: bytes = HELPER, **more: Any) -> X25519Opener:
    authorities = x509.load_pem_x509_certificates((folders / "ours" / "ca.pem").read_bytes())
    return X25519Opener(secret, FEDERATION, authorities, **more)


def test_the_helper_learns_the_statement_and_the_mask(folders: Path) -> None:
    sealed, helper = sealer(identity(folders)).seal(statement(), 1001), opener(folders)
    opened = helper.open(sealed.seal.tobytes())
    assert opened.statement == statement()
    assert np.array_equal(helper.mask(opened.seed, 1001), sealed.mask)
    assert len(np.unique(sealed.mask)) > 990


def test_no_two_seals_have_the_same_mask(folders: Path) -> None:
    """The operating system draws the seeds: equal statements of one client are masked differently."""
    mine = sealer(identity(folders))
    one, other = mine.seal(statement(), 100), mine.seal(statement(), 100)
    assert not np.array_equal(one.mask, other.mask)
    assert not np.array_equal(one.seal, other.seal)


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (lambda seal: seal[:3] + bytes([seal[3] ^ 1]) + seal[4:], "says that it is client"),
        (lambda seal: seal[:40] + bytes([seal[40] ^ 1]) + seal[41:], "does not fit|weight"),
        (lambda seal: seal[:STATEMENT_BYTES] + bytes(32) + seal[STATEMENT_BYTES + 32 :], "does not fit"),
        (lambda seal: seal[: BODY_BYTES - 1] + bytes([seal[BODY_BYTES - 1] ^ 1]) + seal[BODY_BYTES:], "does not fit"),
        (lambda seal: seal[: BODY_BYTES + SIGNATURE_BYTES] + b"no certificate", "it has no certificate"),
        (lambda seal: seal[:50], "it has 50 bytes"),
    ],
)
def test_a_changed_seal_is_refused(folders: Path, tamper: Callable[[bytes], bytes], reason: str) -> None:
    seal = sealer(identity(folders)).seal(statement(), 10).seal.tobytes()
    with pytest.raises(SealError, match=reason):
        opener(folders).open(tamper(seal))


def test_a_seal_can_be_opened_by_its_helper_only(folders: Path) -> None:
    seal = sealer(identity(folders)).seal(statement(), 10).seal.tobytes()
    with pytest.raises(SealError, match="not encrypted for this server"):
        opener(folders, OTHER).open(seal)


def test_a_client_cannot_speak_for_another_one(folders: Path) -> None:
    seal = sealer(identity(folders, 1)).seal(statement(0), 10).seal.tobytes()
    with pytest.raises(SealError, match="client 1 says that it is client 0"):
        opener(folders).open(seal)


def test_a_client_that_the_authority_does_not_know_is_refused(folders: Path) -> None:
    """A home server that invents clients, to be left with one real update, cannot sign for them."""
    seal = sealer(identity(folders, name="theirs")).seal(statement(), 10).seal.tobytes()
    with pytest.raises(SealError, match="was not issued by this federation"):
        opener(folders).open(seal)


def test_a_revoked_client_is_refused(folders: Path) -> None:
    seal = sealer(identity(folders)).seal(statement(), 10).seal.tobytes()
    with pytest.raises(SealError, match="was revoked"):
        opener(folders, revoked=lambda client: client.number == 0).open(seal)


def test_a_seal_of_another_federation_is_refused(folders: Path) -> None:
    seal = sealer(identity(folders), federation="another one").seal(statement(), 10).seal.tobytes()
    with pytest.raises(SealError, match="does not fit"):
        opener(folders).open(seal)


def test_a_home_server_cannot_announce_a_sealing_key_for_the_helper() -> None:
    """The lineage of the helper signs its announcement, and the key is a part of what is signed."""
    keys = Ed25519Keys(HELPER, FEDERATION)
    said = Announcement(1, lineage_of(HELPER), sealing=announced_key(HELPER)).signed(keys)
    assert said.genuine(keys)
    forged = Announcement(1, said.lineage, sealing=announced_key(OTHER), signature=said.signature)
    assert not forged.genuine(keys)


def test_deployed_processes_do_not_load_the_seals_of_simulations() -> None:
    """Their seeds follow from the seed of a run, so that anybody could compute the masks."""
    code = (
        "import sys, spyker.net.server_process, spyker.net.client_process;"
        "print([name for name in sys.modules if name.startswith('spyker.sim')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_statements_with_impossible_weights_are_refused(folders: Path) -> None:
    for wrong in (replace(statement(), weight=2.0), replace(statement(), largest=float("inf"))):
        with pytest.raises(SealError, match="weight"):
            opener(folders).open(sealer(identity(folders)).seal(wrong, 10).seal.tobytes())
