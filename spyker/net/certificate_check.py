"""Checks of a process's own certificates before it starts.

Other servers would reject a certificate of another server or authority, or one that has expired, but the cause would be
hard to find in their logs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from spyker.errors import UsageError
from spyker.net.channels import read_file
from spyker.net.server_config import ServerConfig
from spyker.node.ed25519_keys import dns_names, leads_to, server_name

CERTIFICATE, KEY, CA = "deploy.certificate", "deploy.key", "deploy.ca"


def check_certificate(config: ServerConfig, now: datetime | None = None) -> None:
    """Check that certificate, key and authority match, belong to this server and are valid now.

    Raises:
        UsageError: one of them does not.

    """
    deploy = config.deploy
    path, key_path, ca_path = (config.path(name) for name in (deploy.certificate, deploy.key, deploy.ca))
    own, *between = read_certificates(path, CERTIFICATE)
    authorities = read_authorities(ca_path, CA, now)
    same = f"Take {CERTIFICATE}, {KEY} and {CA} from one folder of the federation"
    if not is_key_of(read_file(key_path, KEY), own):
        raise UsageError(KEY, f"{key_path} is not the key of {CERTIFICATE}, {path}", same)
    if server_name(deploy.server) not in (names := dns_names(own)):
        problem = f"{path} is for {', '.join(names) or 'nobody'}, and this is server {deploy.server}"
        raise UsageError(CERTIFICATE, problem, f"Take that of {server_name(deploy.server)}, or fix deploy.server")
    if wrong := out_of_time(own, now):
        remedy = "Renew it with spyker federation renew, or set this machine's clock"
        raise UsageError(CERTIFICATE, f"{path} {wrong}", remedy)
    if not leads_to(own, between, authorities):
        raise UsageError(CERTIFICATE, f"{path} was not issued by {CA}, {ca_path}", same)


def read_authorities(path: Path, what: str, now: datetime | None = None) -> list[x509.Certificate]:
    """Return the authorities in a file that are valid now; raise a ``UsageError`` if there is none."""
    found = read_certificates(path, what)
    valid = [each for each in found if not out_of_time(each, now)]
    if not valid:
        remedy = "Create the federation again, or set this machine's clock"
        raise UsageError(what, f"{path} {out_of_time(found[0], now)}", remedy)
    return valid


def read_certificates(path: Path, what: str) -> list[x509.Certificate]:
    """Return all certificates in a file."""
    try:
        return x509.load_pem_x509_certificates(read_file(path, what))
    except ValueError:
        raise UsageError(what, f"{path} holds no certificate", "spyker federation create writes such files") from None


def is_key_of(pem: bytes, certificate: x509.Certificate) -> bool:
    """Return whether this is the private key of a certificate."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return key.public_key() == certificate.public_key()


def out_of_time(certificate: x509.Certificate, now: datetime | None = None) -> str:
    """Return a problem with the validity period of a certificate, or an empty string."""
    now = now or datetime.now(UTC)
    if now > (end := certificate.not_valid_after_utc):
        return f"expired on {end:%Y-%m-%d %H:%M} UTC"
    if now < (begin := certificate.not_valid_before_utc):
        return f"is not valid before {begin:%Y-%m-%d %H:%M} UTC"
    return ""
