"""Who is who in a deployment: a certificate authority, a certificate per server, a secret credential per client.

``spyker certs`` makes all of it for development and small deployments. Who has an authority of their own needs only
certificates that carry the name :func:`server_name` of their server, and a ``clients.json``.

The folder of a deployment::

    ca.pem ca.key                  the authority; the key is needed again only to renew a certificate
    clients.json                   for every client, the SHA-256 digest of its credential: goes to every server
    server-0/{ca,cert,key}.pem     goes to server 0, and to nobody else
    client-0/{ca.pem,credential}   goes to client 0, and to nobody else
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spyker.config.sections import ScenarioError, show
from spyker.records import write_atomically

CA, CA_KEY, CERTIFICATE, KEY, CREDENTIAL, CLIENTS = (
    "ca.pem",
    "ca.key",
    "cert.pem",
    "key.pem",
    "credential",
    "clients.json",
)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
AUTHORITY_DAYS, MOST_DAYS = 3650.0, 36500.0
SERVER = re.compile(r"server-(\d{1,9})\.spyker")
HOST_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.I)


def server_name(server: int) -> str:
    """The name in a certificate by which a server is known to the others, wherever it runs."""
    return f"server-{server}.spyker"


def server_of(auth_context: Mapping[str, Iterable[bytes]]) -> int | None:
    """Which server is at the other end of a gRPC connection, as its verified certificate says."""
    for name in auth_context.get("x509_subject_alternative_name", ()):
        if match := SERVER.fullmatch(name.decode(errors="replace")):
            return int(match[1])
    return None


def credential_digest(secret: str) -> str:
    """What a server keeps of a client's credential. Secrets are random and long, so a plain hash protects them."""
    return hashlib.sha256(secret.encode()).hexdigest()


def load_credentials(path: Path) -> dict[str, int]:
    """The clients of a deployment by the digests of their credentials."""
    remedy = "Name the clients.json that spyker certs made"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        clients = {digest: int(client) for client, digest in table.items()}
    except OSError as error:
        raise ScenarioError(str(path), f"cannot be read ({error.strerror})", remedy) from None
    except (ValueError, AttributeError, TypeError):
        raise ScenarioError(str(path), "is not a JSON object of clients and digests", remedy) from None
    for digest, client in clients.items():
        if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ScenarioError(f"{path}: client {client}", "has no SHA-256 digest of 64 hexadecimal digits", remedy)
    if len(clients) < len(table):
        raise ScenarioError(str(path), "gives the same credential to two clients", "Give each client its own")
    return clients


def load_credential(path: Path) -> str:
    """A client's secret."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ScenarioError(str(path), f"cannot be read ({reason})", "Name a file that spyker certs made") from None
    if not secret or not secret.isascii() or not secret.isprintable():
        raise ScenarioError(str(path), "is not a credential", "Name a file that spyker certs made")
    return secret


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, days: float = AUTHORITY_DAYS) -> Authority:
        """A new one."""
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
        """The one of a folder that :func:`make_deployment` made."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ScenarioError(
                str(folder), f"holds no certificate authority ({error})", "Name a folder that spyker certs made"
            ) from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(certificate, key)

    def issue(self, server: int, hosts: Sequence[str], days: float) -> tuple[bytes, bytes]:
        """A certificate for a server that is reached under these names and addresses, and its key, both as PEM.

        With negative ``days`` it expired so many days ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, server_name(server))])
        names = [x509.DNSName(server_name(server)), *map(general_name, dict.fromkeys(hosts))]
        issuer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        certificate = (
            begin(subject, self.certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(digital_signature=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), private_pem(key)


def make_deployment(
    folder: Path,
    servers: int,
    clients: int,
    hosts: Sequence[str] = LOOPBACK,
    days: float = 365.0,
    *,
    overwrite: bool = False,
) -> None:
    """Make an authority, certificates and credentials in ``folder``.

    A host is a DNS name or an address of all servers; written ``2=paris.example.org``, of server 2 alone. The servers'
    certificates are valid for so many days; if that is negative, they have expired already.
    """
    if servers < 1:
        raise ScenarioError("--servers", f"is {servers}", "Give at least 1")
    if clients < 0:
        raise ScenarioError("--clients", f"is {clients}", "Give 0 or more")
    check_days(days)
    names = [hosts_of(server, hosts, servers) for server in range(servers)]  # checked before anything is removed
    clear(folder, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(max(AUTHORITY_DAYS, days))
    (folder / CA).write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    write_private(folder / CA_KEY, private_pem(authority.key))
    for server in range(servers):
        write_server(folder, server, authority, names[server], days)
    digests = {}
    for client in range(clients):
        own = folder / f"client-{client}"
        own.mkdir(mode=0o700)
        secret = secrets.token_urlsafe(32)
        digests[str(client)] = credential_digest(secret)
        write_private(own / CREDENTIAL, f"{secret}\n".encode())
        shutil.copyfile(folder / CA, own / CA)
    (folder / CLIENTS).write_text(as_json(digests), encoding="utf-8")


def renew(folder: Path, names: Sequence[str], hosts: Sequence[str] | None = None, days: float = 365.0) -> None:
    """Give every ``server-I`` a new certificate and key, every ``client-K`` a new credential. The authority stays.

    Unless ``hosts`` are given, a server keeps its names and addresses.
    """
    check_days(days)
    authority = Authority.load(folder)
    digests = {str(client): digest for digest, client in load_credentials(folder / CLIENTS).items()}
    certificates: dict[int, list[str]] = {}
    credentials: dict[str, str] = {}
    for name in names:
        kind, _, number = name.rpartition("-")
        if kind not in ("server", "client") or not number.isdecimal() or not (folder / name).is_dir():
            remedy = "Name a folder in it, such as server-0 or client-12"
            raise ScenarioError("--renew", f"is {show(name)}, which {folder} does not hold", remedy)
        if kind == "client":
            credentials[number] = secrets.token_urlsafe(32)
        else:
            server = int(number)
            certificates[server] = hosts_of(server, hosts or hosts_in(folder / name / CERTIFICATE), server + 1)
    for server, own in certificates.items():
        write_server(folder, server, authority, own, days)
    if credentials:
        new = {client: credential_digest(secret) for client, secret in credentials.items()}
        write_atomically(folder / CLIENTS, as_json(digests | new))
    for client, secret in credentials.items():
        write_private(folder / f"client-{client}" / CREDENTIAL, f"{secret}\n".encode())


def hosts_in(certificate: Path) -> list[str]:
    """The names and addresses that a server's certificate was made for."""
    try:
        content = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = content.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise ScenarioError(str(certificate), f"cannot be read ({error})", "Add --host for each of its names") from None
    return [host for name in names if is_host(host := str(name.value))]


def write_server(folder: Path, server: int, authority: Authority, hosts: Sequence[str], days: float) -> None:
    """Write what one server needs into a folder of its own."""
    certificate, key = authority.issue(server, hosts, days)
    own = folder / f"server-{server}"
    own.mkdir(mode=0o700, exist_ok=True)
    (own / CERTIFICATE).write_bytes(certificate)
    write_private(own / KEY, key)
    shutil.copyfile(folder / CA, own / CA)


def check_days(days: float) -> None:
    """For so many days a certificate can be valid."""
    if not abs(days) <= MOST_DAYS:
        raise ScenarioError("--days", f"is {show(days)}", f"Give at most {MOST_DAYS:g}")


def as_json(digests: Mapping[str, str]) -> str:
    """The content of ``clients.json``."""
    return json.dumps(digests, indent=1) + "\n"


def clear(folder: Path, *, overwrite: bool) -> None:
    """Make room, unless something stands there that may not go."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise ScenarioError(str(folder), "exists already", "Choose another folder, or add --overwrite to replace it")
    if not (folder / CA_KEY).is_file():
        raise ScenarioError(
            str(folder), "was not made by spyker certs, so --overwrite leaves it alone", "Choose another folder"
        )
    shutil.rmtree(folder)


def hosts_of(server: int, hosts: Sequence[str], servers: int) -> list[str]:
    """The names and addresses of one server."""
    own = []
    for host in hosts:
        number, equals, name = host.rpartition("=")
        if equals and not (number.isdecimal() and int(number) < servers):
            raise ScenarioError("--host", f"is {show(host)}", f"Before = stands a server, 0 to {servers - 1}")
        if not is_host(name):
            raise ScenarioError("--host", f"is {show(host)}", "Write a DNS name or an address, without a port")
        if not equals or int(number) == server:
            own.append(name)
    return own


def is_host(name: str) -> bool:
    """Whether a certificate can hold this as a DNS name or an address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return HOST_NAME.fullmatch(name) is not None and len(name) <= 253 and not name.lower().endswith(".spyker")
    return True


def general_name(host: str) -> x509.GeneralName:
    """A host as a certificate names it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    """What all certificates have. Clocks differ, so they are valid from an hour ago."""
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
    """What a key may be used for, and nothing else."""
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


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key, unencrypted: the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that was never readable by others, not even for a moment."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    new.replace(path)
