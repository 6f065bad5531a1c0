"""Certificates that real TLS accepts and refuses, identities of clients, and files that only their owner can read."""

import asyncio
import ssl
import stat
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from spyker.errors import UsageError
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_issuing import LOOPBACK, make_deployment, write_server
from spyker.net.certificates import server_of
from spyker.net.client_identity import ClientVerifier, load_identity, new_nonce
from spyker.net.json_log import JsonLog
from spyker.net.revocations import Revocation, Revocations, load_revocations, write_revocations
from spyker.node.client_certificate import certified_client
from spyker.node.rejection import Rejection


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs") / "deployment"
    make_deployment(folder, 3, 4)
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
    write_server(folder / f"server-{server}", server, Authority.load(folder), LOOPBACK, -1)


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
    write_server(tmp_path / "d" / "server-0", 0, Authority.load(tmp_path / "d"), LOOPBACK, 1)
    meet(tmp_path / "d")
    assert (tmp_path / "d" / "ca.pem").read_bytes() == authority


def test_a_certificate_names_its_server_and_its_hosts(deployment):
    assert names(deployment, 2).get_values_for_type(x509.DNSName) == ["server-2.spyker", "localhost"]
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
            answered = await channel.unary_unary("/test/Who")(b"", timeout=200)
        await server.stop(None)
        return answered

    assert asyncio.run(call()) == b"2"


@pytest.mark.parametrize(
    "names", [[], [b"localhost"], [b"server-x.spyker"], [b"server-1.spyker.evil.org"], [b"xserver-1.spyker"], [b"\xff"]]
)
def test_who_carries_no_servers_name_is_no_server(names):
    assert server_of({"x509_subject_alternative_name": names}) is None
    assert server_of({}) is None


# --- Clients ----------------------------------------------------------------------------------------------------------


def test_a_client_is_known_by_number_and_name(deployment):
    clients = [load_identity(deployment / f"client-{k}", k).client for k in range(4)]
    assert [(each.number, each.name) for each in clients] == [(k, f"client-{k}") for k in range(4)]
    assert len({each.serial for each in clients}) == 4


def test_a_client_certificate_is_not_for_tls(deployment):
    """It proves who a client is to the port for clients, and nothing to any other."""
    shown = x509.load_pem_x509_certificate((deployment / "client-0" / "cert.pem").read_bytes())
    usage = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} & set(usage)
    assert certified_client(certificate(deployment, 0)) is None


def test_an_identity_that_does_not_fit_is_refused(deployment, tmp_path):
    def refused(number, **others):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name in ("ca.pem", "cert.pem", "key.pem"):
            source = others.get(name.partition(".")[0], deployment / "client-0" / name)
            (folder / name).write_bytes(source.read_bytes())
        with pytest.raises(UsageError) as error:
            load_identity(folder, number)
        return str(error.value)

    assert "is for client 0, and this is client 1" in refused(1)
    assert "is not the key of" in refused(0, key=deployment / "client-1" / "key.pem")
    assert "is not a private key" in refused(0, key=deployment / "ca.pem")
    assert "is not a client's certificate" in refused(0, cert=deployment / "server-0" / "cert.pem")
    make_deployment(tmp_path / "other", 1, 0)
    assert "was not issued by" in refused(0, ca=tmp_path / "other" / "ca.pem")
    with pytest.raises(UsageError, match=r"expired on .*spyker federation renew client-0"):
        load_identity(deployment / "client-0", 0, datetime.now(UTC) + timedelta(days=366))


def test_a_signature_is_for_one_nonce_and_one_server(deployment):
    identity, nonce = load_identity(deployment / "client-0", 0), new_nonce()
    authority = x509.load_pem_x509_certificate((deployment / "ca.pem").read_bytes())
    verifier = ClientVerifier([authority], Revocations(deployment / "revoked.json"))
    signature = identity.sign(nonce, 1)
    assert verifier.verify(identity.certificate, signature, nonce, 1) == identity.client
    for other, server in ((nonce, 2), (new_nonce(), 1)):
        with pytest.raises(Rejection, match="the signature does not fit the certificate of client 0"):
            verifier.verify(identity.certificate, signature, other, server)
    with pytest.raises(Rejection, match="a challenge of 5 bytes"):
        identity.sign(b"short", 1)


@pytest.mark.parametrize("content", ["nonsense", "{}", '[{"client": "x", "name": "y"}]', '[{"client": 0, "x": 1}]'])
def test_a_wrong_list_of_revocations_is_refused(tmp_path, content):
    (tmp_path / "revoked.json").write_text(content)
    with pytest.raises(UsageError, match="is not a list of revocations"):
        load_revocations(tmp_path / "revoked.json")


def test_one_certificate_is_revoked_or_all_of_a_client(tmp_path):
    path = tmp_path / "revoked.json"
    write_revocations(path, [Revocation(1, "charite", "ff"), Revocation(2, "mayo")])
    revocations = Revocations(path)
    assert [revocations.revoked(*each) for each in ((1, 255), (1, 254), (2, 7), (3, 7))] == [True, False, True, False]
    log = JsonLog()
    assert not revocations.refresh(log), "it has not changed"
    write_revocations(path, [Revocation(3, "oslo")])
    assert revocations.refresh(log)
    assert revocations.revoked(3, 7)
    path.write_text("nonsense")
    assert not revocations.refresh(log)
    assert revocations.revoked(3, 7), "what cannot be read changes nothing"


# --- Files ------------------------------------------------------------------------------------------------------------


def test_private_files_are_the_owners_alone(deployment):
    private = [deployment / "ca.key", *deployment.glob("*-*/key.pem")]
    assert len(private) == 1 + 3 + 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    folders = [*deployment.glob("server-*"), *deployment.glob("client-*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_every_folder_holds_what_its_owner_needs(deployment):
    for folder in ("server-1", "client-3"):
        assert sorted(p.name for p in (deployment / folder).iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
