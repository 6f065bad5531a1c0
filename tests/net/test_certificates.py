"""Certificates that real TLS accepts and refuses, credentials, and files that only their owner can read."""

import asyncio
import json
import ssl
import stat

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_issuing import LOOPBACK, make_deployment, renew, write_server
from spyker.net.certificates import credential_digest, load_credential, load_credentials, server_of


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs") / "deployment"
    make_deployment(folder, 3, 4, ["localhost", "127.0.0.1", "::1", "2=paris.example.org"])
    return folder


def certificate(folder, server):
    return x509.load_pem_x509_certificate((folder / f"server-{server}" / "cert.pem").read_bytes())


def names(folder, server):
    return certificate(folder, server).extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def handshake(server_side, client_side, name):
    """TLS through memory; what each side knows of the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return client.getpeercert(), server.getpeercert()


def context(folder, server, purpose, ca=None):
    made = ssl.create_default_context(purpose, cafile=(ca or folder) / "ca.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(folder / f"server-{server}" / "cert.pem", folder / f"server-{server}" / "key.pem")
    return made


def meet(folder, ca=None, name="localhost"):
    """Server 1 calls server 0; each must prove who it is."""
    return handshake(context(folder, 0, ssl.Purpose.CLIENT_AUTH), context(folder, 1, ssl.Purpose.SERVER_AUTH, ca), name)


def expire(folder, server):
    """Give a server a certificate whose time was over yesterday."""
    write_server(folder, server, Authority.load(folder), LOOPBACK, -1)


# --- Certificates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "server-0.spyker"])
def test_two_servers_accept_each_other(deployment, name):
    meet(deployment, name=name)


def test_a_server_under_another_name_is_refused(deployment):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        meet(deployment, name="server-1.spyker")


def test_a_certificate_of_another_authority_is_refused(deployment, tmp_path):
    make_deployment(tmp_path / "other", 1, 0)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature failure|unable to get local issuer|self-signed"):
        meet(deployment, ca=tmp_path / "other")


def test_an_expired_certificate_is_refused(tmp_path):
    make_deployment(tmp_path / "d", 2, 0)
    expire(tmp_path / "d", 0)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        meet(tmp_path / "d")


def test_a_server_can_be_renewed_and_expired_under_the_same_authority(tmp_path):
    make_deployment(tmp_path / "d", 2, 1)
    authority = (tmp_path / "d" / "ca.pem").read_bytes()
    expire(tmp_path / "d", 0)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        meet(tmp_path / "d")
    renew(tmp_path / "d", ["server-0"])
    meet(tmp_path / "d")
    assert (tmp_path / "d" / "ca.pem").read_bytes() == authority


def test_a_host_with_a_number_is_in_that_servers_certificate_alone(deployment):
    assert [names(deployment, i).get_values_for_type(x509.DNSName) for i in (0, 2)] == [
        ["server-0.spyker", "localhost"],
        ["server-2.spyker", "localhost", "paris.example.org"],
    ]
    assert [str(a) for a in names(deployment, 0).get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_a_server_may_both_serve_and_call_but_not_sign(deployment):
    extensions = certificate(deployment, 0).extensions
    usage = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert usage == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_grpc_tells_which_server_calls(deployment):
    def read(server, name):
        return (deployment / f"server-{server}" / name).read_bytes()

    async def call():
        async def answer(request, context):
            return str(server_of(context.auth_context())).encode()

        server = grpc.aio.server()
        handlers = {"Who": grpc.unary_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
        credentials = grpc.ssl_server_credentials(
            [(read(0, "key.pem"), read(0, "cert.pem"))], read(0, "ca.pem"), require_client_auth=True
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        mine = grpc.ssl_channel_credentials(read(2, "ca.pem"), read(2, "key.pem"), read(2, "cert.pem"))
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", mine) as channel:
            answered = await channel.unary_unary("/test/Who")(b"", timeout=60)
        await server.stop(None)
        return answered

    assert asyncio.run(call()) == b"2"


@pytest.mark.parametrize(
    "names", [[], [b"localhost"], [b"server-x.spyker"], [b"server-1.spyker.evil.org"], [b"xserver-1.spyker"], [b"\xff"]]
)
def test_who_carries_no_servers_name_is_no_server(names):
    assert server_of({"x509_subject_alternative_name": names}) is None
    assert server_of({}) is None


# --- Credentials ------------------------------------------------------------------------------------------------------


def test_every_client_has_a_credential_whose_digest_the_servers_know(deployment):
    known = load_credentials(deployment / "clients.json")
    secrets = [load_credential(deployment / f"client-{k}" / "credential") for k in range(4)]
    assert [known[credential_digest(secret)] for secret in secrets] == [0, 1, 2, 3]
    assert len(set(secrets)) == 4
    assert all(len(secret) >= 40 for secret in secrets)
    assert not any(secret in (deployment / "clients.json").read_text() for secret in secrets)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("nonsense", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ('{"x": "y"}', "is not a JSON object"),
        ('{"0": "abc"}', "client 0: has no SHA-256 digest"),
        ('{"0": 5}', "client 0: has no SHA-256 digest"),
        (json.dumps({"0": "a" * 64, "1": "a" * 64}), "the same credential to two clients"),
    ],
)
def test_a_wrong_list_of_clients_is_refused(tmp_path, content, problem):
    (tmp_path / "clients.json").write_text(content)
    with pytest.raises(UsageError, match=problem):
        load_credentials(tmp_path / "clients.json")


def test_a_missing_credential_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"credential: cannot be read \(No such file or directory\)"):
        load_credential(tmp_path / "credential")


# --- Files ------------------------------------------------------------------------------------------------------------


def test_private_files_are_the_owners_alone(deployment):
    private = [deployment / "ca.key", *deployment.glob("server-*/key.pem"), *deployment.glob("client-*/credential")]
    assert len(private) == 1 + 3 + 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    folders = [*deployment.glob("server-*"), *deployment.glob("client-*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_every_folder_holds_what_its_owner_needs(deployment):
    assert sorted(p.name for p in (deployment / "server-1").iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert sorted(p.name for p in (deployment / "client-3").iterdir()) == ["ca.pem", "credential"]


# --- The command ------------------------------------------------------------------------------------------------------


def test_the_command_makes_a_deployment(tmp_path, capsys):
    out = tmp_path / "certs"
    assert main(["certs", str(out), "--servers", "2", "--clients", "1", "--host", "0=a.example", "--host", "1=b"]) == 0
    assert names(out, 1).get_values_for_type(x509.DNSName) == ["server-1.spyker", "b"]
    assert "clients.json" in capsys.readouterr().out


def test_what_exists_is_replaced_only_when_asked(tmp_path, capsys):
    make = ["certs", str(tmp_path / "certs"), "--servers", "1", "--clients", "1"]
    assert main(make) == 0
    before = (tmp_path / "certs" / "ca.pem").read_bytes()
    assert main(make) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "certs" / "ca.pem").read_bytes() == before
    assert main([*make, "--overwrite"]) == 0
    assert (tmp_path / "certs" / "ca.pem").read_bytes() != before


def test_what_is_not_ours_is_never_replaced(tmp_path, capsys):
    (tmp_path / "precious").write_text("kept")
    assert main(["certs", str(tmp_path), "--servers", "1", "--clients", "1", "--overwrite"]) == 2
    assert "was not made by spyker certs" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--servers", "0", "--clients", "1"], "--servers: 0 is not allowed"),
        (["--servers", "1", "--clients", "-1"], "--clients: -1 is not allowed"),
        (
            ["--servers", "2", "--clients", "1", "--host", "2=a"],
            '--host: "2=a" is not allowed. Before = stands a server, 0 to 1',
        ),
        (["--servers", "2", "--clients", "1", "--host", "a:7000"], '--host: "a:7000" is not allowed'),
        (["--servers", "2", "--clients", "1", "--host", "server-1.spyker"], '--host: "server-1.spyker" is not allowed'),
        (["--servers", "2", "--clients", "1", "--host", "*.spyker"], '--host: "*.spyker" is not allowed'),
        (["--servers", "2", "--clients", "1", "--days", "nan"], "--days: nan is not allowed"),
        (["--servers", "2", "--clients", "1", "--days", "0"], "--days: 0.0 is not allowed. Give more than 0"),
        (["--servers", "2", "--clients", "1", "--days", "-5"], "--days: -5.0 is not allowed. Give more than 0"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_made(tmp_path, capsys, options, problem):
    assert main(["certs", str(tmp_path / "certs"), *options]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_a_renewed_server_keeps_its_names_unless_told_otherwise(tmp_path, capsys):
    out = tmp_path / "certs"
    make_deployment(out, 2, 0, ["1=paris.example.org", "1=2001:db8::1"])
    before = (out / "server-1" / "cert.pem").read_bytes()
    assert main(["certs", str(out), "--renew", "server-1"]) == 0
    assert (out / "server-1" / "cert.pem").read_bytes() != before
    assert names(out, 1).get_values_for_type(x509.DNSName) == ["server-1.spyker", "paris.example.org"]
    assert [str(address) for address in names(out, 1).get_values_for_type(x509.IPAddress)] == ["2001:db8::1"]
    assert main(["certs", str(out), "--renew", "server-1", "--host", "rome.example.org"]) == 0
    assert names(out, 1).get_values_for_type(x509.DNSName) == ["server-1.spyker", "rome.example.org"]


def test_a_renewed_credential_takes_the_place_of_the_old_one(tmp_path, capsys):
    out = tmp_path / "certs"
    make_deployment(out, 1, 3)
    old = {k: load_credential(out / f"client-{k}" / "credential") for k in range(3)}
    assert main(["certs", str(out), "--renew", "client-1"]) == 0
    assert "clients.json" in capsys.readouterr().out
    new = load_credential(out / "client-1" / "credential")
    assert load_credentials(out / "clients.json") == {
        credential_digest(secret): k for k, secret in (old | {1: new}).items()
    }
    assert new != old[1]
    assert (out / "client-1" / "credential").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--renew", "server-0", "--renew", "server-7"], '--renew: "server-7" is not allowed'),
        (["--renew", "../certs-1"], '--renew: "../certs-1" is not allowed'),
        (["--renew", "server-0", "--servers", "1"], "Leave out --servers"),
        (["--renew", "server-0", "--days", "1e9"], "--days"),
        (["--renew", "server-0", "--days", "-5"], "--days: -5.0 is not allowed"),
        (["--clients", "1"], "--servers: is missing"),
    ],
)
def test_what_cannot_be_renewed_is_named_and_nothing_changes(tmp_path, capsys, options, complaint):
    out = tmp_path / "certs"
    make_deployment(out, 1, 1)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main(["certs", str(out), *options]) == 2
    assert complaint in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
