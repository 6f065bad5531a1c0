"""What a server refuses. Every test finds the model, its age and all counts as they were, and honest clients served."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from deployment import Deployed, Speaker, client_in, deployed, load_client_pem, speaking, table, until
from members import handshake, real_keys

from spyker.net import spyker_pb2 as pb
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_issuing import make_deployment, write_client
from spyker.net.channels import PEERS_CONNECT, channel, open_stream
from spyker.net.client_identity import answer_challenge, load_identity
from spyker.net.frames import FRAME_LIMIT, PROTOCOL
from spyker.net.member_identity import federation_of
from spyker.net.peer_signatures import CALL, sign_peer
from spyker.net.revocations import Revocation, write_revocations
from spyker.net.server_config import load_config
from spyker.net.streams import StreamEnded, end_status, read_body
from spyker.node.control_messages import to_json
from spyker.node.ed25519_keys import fingerprint
from spyker.node.rejection import Rejection


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """One server for all; max-norm is far above what honest clients send, and client 1 alone answers all the time."""
    with deployed(table(robust={"rate": 1e6}), tmp_path_factory.mktemp("border"), max_norm=100.0) as deployment:
        deployment.up()
        yield deployment


Attack = Callable[[Speaker], Coroutine[Any, Any, None]]


def refused(server: Deployed, reason: str, attack: Attack, *, client: int = 0, code: str = "INVALID_ARGUMENT") -> None:
    """Let somebody do something, which must be refused for this reason and change nothing."""

    async def scene() -> None:
        async with speaking(server, 1) as honest:  # it also makes the server begin
            task = await honest.enter()
            rejections, updates = server.metric("rejections_total", reason=reason), server.metric("updates_total")
            async with speaking(server, client) as stranger:
                await attack(stranger)
                ended, details = await stranger.rejection()
            assert ended == code
            assert details.startswith(reason) or code == "CANCELLED"
            until(lambda: server.metric("rejections_total", reason=reason) == rejections + 1)
            assert server.metric("updates_total") == updates
            await honest.answer(task.token)
            following = await honest.task()
            assert following.said.version == task.said.version + 1, "an honest answer is the only one that counts"

    asyncio.run(scene())
    assert reason in {entry["reason"] for entry in server.log("server-0", "rejected")}, "once in a while"


def test_an_answer_is_taken_once(server: Deployed) -> None:
    async def scene() -> None:
        async with speaking(server, 2) as client:
            task = await client.enter()
            await client.answer(task.token)
            following = await client.task()
            updates = server.metric("updates_total")
            await client.answer(task.token)
            assert await client.rejection() == (
                "INVALID_ARGUMENT",
                f"replayed: task {task.said.number} has been answered already",
            )
            assert server.metric("updates_total") == updates
        async with speaking(server, 2) as client:  # it comes back and offers the same thing again
            client.hello.held_tokens[:] = [task.token]
            await client.greet()
            welcome = (await client.read()).welcome
            assert (welcome.received, welcome.ask) == (task.said.number, False)
            again = await client.task()
            assert again.said.number > following.said.number
            assert again.said.version == following.said.version, "no second application, the current model again"

    asyncio.run(scene())


def test_a_task_that_was_never_given(server: Deployed) -> None:
    async def unknown(client: Speaker) -> None:
        task = await client.enter()
        await client.answer(task.forged(number=task.said.number + 1))

    refused(server, "unknown-task", unknown)


def test_the_task_of_another_client(server: Deployed) -> None:
    async def scene() -> None:
        async with speaking(server, 0) as one, speaking(server, 2) as other:
            stolen = (await one.enter()).token
            await other.enter()
            await other.answer(stolen)
            code, details = await other.rejection()
            assert code == "INVALID_ARGUMENT"
            assert details.startswith("unknown-task")

    asyncio.run(scene())


def test_an_age_that_was_made_up(server: Deployed) -> None:
    async def younger(client: Speaker) -> None:
        task = await client.enter()
        await client.answer(task.forged(age=task.said.age + 1000.0))

    refused(server, "unknown-task", younger)


@pytest.mark.parametrize("ticket", [b"", b"short", bytes(1000)])
def test_a_ticket_of_another_form(server: Deployed, ticket: bytes) -> None:
    async def nonsense(client: Speaker) -> None:
        await client.enter()
        await client.answer(ticket)

    refused(server, "unknown-task", nonsense)


def test_a_message_that_no_client_sends(server: Deployed) -> None:
    async def strange(client: Speaker) -> None:
        answer, _ = client.reply((await client.enter()).token)
        answer.content.kind = "token"
        await client.say(update=answer)

    refused(server, "malformed", strange)


def test_a_field_that_the_message_does_not_have(server: Deployed) -> None:
    async def talkative(client: Speaker) -> None:
        answer, arrays = client.reply((await client.enter()).token)
        answer.content.fields = b'{"weight": 1000}'
        await client.say(update=answer, chunk=arrays[0].tobytes())

    refused(server, "malformed", talkative)


def test_a_task_that_another_one_took_the_place_of(server: Deployed) -> None:
    async def scene() -> None:
        async with speaking(server, 0) as client:
            old = (await client.enter()).token
        async with speaking(server, 0) as client:
            await client.enter()
            await client.answer(old)
            assert (await client.rejection())[1].startswith("superseded")

    asyncio.run(scene())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(server: Deployed, value: float) -> None:
    async def poison(client: Speaker) -> None:
        weights = np.ones(client.parameters, np.float32)
        weights[3] = value
        await client.answer((await client.enter()).token, weights)

    refused(server, "not-finite", poison)


def test_weights_beyond_the_norm_limit(server: Deployed) -> None:
    async def giant(client: Speaker) -> None:
        await client.answer((await client.enter()).token, np.full(client.parameters, 1e3))

    refused(server, "norm", giant)


def test_too_many_weights(server: Deployed) -> None:
    async def oversized(client: Speaker) -> None:
        await client.answer((await client.enter()).token, np.ones(client.parameters + 1))

    refused(server, "oversized", oversized)


def test_too_few_weights(server: Deployed) -> None:
    async def truncated(client: Speaker) -> None:
        ticket = (await client.enter()).token
        await client.answer(ticket, np.ones(client.parameters - 1))
        await client.stream.done_writing()

    refused(server, "truncated", truncated)


def test_a_message_that_another_one_cuts_short(server: Deployed) -> None:
    async def cut_short(client: Speaker) -> None:
        ticket = (await client.enter()).token
        await client.answer(ticket, np.ones(client.parameters - 1))
        await client.answer(ticket)

    refused(server, "truncated", cut_short)


def test_a_connection_that_breaks_in_the_middle_of_a_message(server: Deployed) -> None:
    async def scene() -> None:
        rejections = server.metric("rejections_total", reason="truncated")
        async with speaking(server, 1) as honest:
            task = await honest.enter()
            pause = 0.1  # the server must be in the middle of reading it; there is no way to see that
            while server.metric("rejections_total", reason="truncated") == rejections:
                async with speaking(server, 0) as client:
                    await client.answer((await client.enter()).token, np.ones(client.parameters - 1))
                    await asyncio.sleep(pause)
                    client.stream.cancel()
                    until(lambda: server.metric("connected_clients") == 1)
                pause *= 2
            assert server.metric("rejections_total", reason="truncated") == rejections + 1
            await honest.answer(task.token)
            assert (await honest.task()).said.version == task.said.version + 1

    asyncio.run(scene())


def test_bytes_that_are_no_weights(server: Deployed) -> None:
    async def odd(client: Speaker) -> None:
        answer, _ = client.reply((await client.enter()).token)
        await client.say(chunk=b"123", update=answer)

    refused(server, "malformed", odd)


def test_bytes_that_are_no_frame(server: Deployed) -> None:
    async def noise(client: Speaker) -> None:
        await client.enter()
        await client.stream.write(b"\xff\xff\xff\xff")

    refused(server, "malformed", noise)


def test_a_frame_beyond_the_size_limit(server: Deployed) -> None:
    async def oversized(client: Speaker) -> None:
        answer, _ = client.reply((await client.enter()).token)
        await client.say(chunk=bytes(FRAME_LIMIT), update=answer)

    refused(server, "oversized", oversized)


def test_a_frame_far_beyond_the_size_limit_is_not_even_read(server: Deployed) -> None:
    async def scene() -> None:
        updates = server.metric("updates_total")
        async with speaking(server, 0) as client:
            await client.enter()  # strangers that send so much are disconnected
            with contextlib.suppress(grpc.aio.AioRpcError):  # the stream may end while it is sent
                await client.say(hello=client.hello, chunk=bytes(8 * FRAME_LIMIT))
            # gRPC tells why, or resets the stream before that has been sent.
            assert (await client.rejection())[0] in ("RESOURCE_EXHAUSTED", "INTERNAL")
        assert server.metric("updates_total") == updates

    asyncio.run(scene())


def test_a_first_frame_beyond_the_size_of_a_hello(server: Deployed) -> None:
    async def large(client: Speaker) -> None:
        await client.read()
        await client.say(hello=client.hello, chunk=bytes(20_000))

    refused(server, "oversized", large)


def test_another_layout(server: Deployed) -> None:
    async def other(client: Speaker) -> None:
        client.hello.layout = bytes(32)
        await client.greet()

    refused(server, "mismatch", other, code="FAILED_PRECONDITION")


def test_another_version_of_the_protocol(server: Deployed) -> None:
    async def newer(client: Speaker) -> None:
        client.hello.protocol += 1
        await client.greet()

    refused(server, "mismatch", newer, code="FAILED_PRECONDITION")


def test_another_scenario(server: Deployed) -> None:
    async def other(client: Speaker) -> None:
        client.hello.learning = bytes(32)
        await client.greet()

    refused(server, "mismatch", other, code="FAILED_PRECONDITION")


def test_a_client_does_not_speak_for_another(server: Deployed) -> None:
    async def impostor(client: Speaker) -> None:
        client.hello.client = 2
        await client.greet()

    refused(server, "identity", impostor, code="UNAUTHENTICATED")


def stranger_is_refused(deployment: Deployed, why: str, identity: Path | None = None, **changes: bytes | int) -> None:
    """Greet with another certificate, signature or challenge; it must be refused, for this reason."""

    async def attack(client: Speaker) -> None:
        challenge = (await client.read()).challenge
        for key, value in changes.items():
            setattr(challenge, key, value)
        own = client.identity if identity is None else load_identity(identity, client_in(identity))
        answer_challenge(client.hello, challenge, own, None)
        await client.say(hello=client.hello)
        code, details = await client.rejection()
        assert (code, why in details) == ("UNAUTHENTICATED", True), details

    async def scene() -> None:
        rejections = deployment.metric("rejections_total", reason="identity")
        async with speaking(deployment, 0) as stranger:
            await attack(stranger)
        until(lambda: deployment.metric("rejections_total", reason="identity") == rejections + 1)

    asyncio.run(scene())


def test_a_signature_of_another_nonce(server: Deployed) -> None:
    stranger_is_refused(server, "the signature does not fit", nonce=bytes(32))


def test_a_signature_that_was_made_for_another_server(server: Deployed) -> None:
    """A server that a client has greeted cannot greet another one with what it was told."""
    stranger_is_refused(server, "made for another server", server=7)


def test_a_certificate_of_another_federation(server: Deployed, tmp_path: Path) -> None:
    make_deployment(tmp_path / "other", 1, 1)
    stranger_is_refused(server, "was not issued by this federation", tmp_path / "other" / "client-0")


def test_a_certificate_that_expired(server: Deployed, tmp_path: Path) -> None:
    certificate, key = Authority.load(server.folder / "certs").issue_client(0, "charite", -1)
    identity = load_client_pem(certificate, key)

    async def scene() -> None:
        async with speaking(server, 0) as client:
            client.identity = identity
            await client.greet()
            code, details = await client.rejection()
            assert code == "UNAUTHENTICATED"
            assert "the certificate of client 0 (charite) expired on " in details

    asyncio.run(scene())


@pytest.mark.parametrize("certificate", [b"", b"short", bytes(5000)])
def test_bytes_that_are_no_certificate(server: Deployed, certificate: bytes) -> None:
    async def scene() -> None:
        async with speaking(server, 0) as client:
            await client.read()
            client.hello.certificate = certificate
            await client.say(hello=client.hello)
            assert (await client.rejection())[0] == "UNAUTHENTICATED"

    asyncio.run(scene())


def test_the_certificate_of_a_server_is_not_that_of_a_client(server: Deployed) -> None:
    pem = (server.folder / "certs" / "server-0" / "cert.pem").read_bytes()

    async def scene() -> None:
        async with speaking(server, 0) as client:
            await client.read()
            shown = x509.load_pem_x509_certificate(pem)
            client.hello.certificate = shown.public_bytes(serialization.Encoding.DER)
            await client.say(hello=client.hello)
            assert "not a client's certificate" in (await client.rejection())[1]

    asyncio.run(scene())


def test_a_check_verifies_a_client_and_registers_nothing(server: Deployed) -> None:
    async def scene() -> None:
        async with speaking(server, 2) as first:
            await first.enter()
            async with speaking(server, 2) as second:
                second.hello.check = True
                await second.greet()
                assert (await second.read()).WhichOneof("body") == "welcome"
                assert (await second.rejection())[0] == "OK"
            await first.say(goodbye=pb.Goodbye())  # it was not replaced
            assert (await first.rejection())[0] == "OK"

    asyncio.run(scene())


def test_a_client_greets_no_other_server_than_the_one_it_means(server: Deployed) -> None:
    async def scene() -> None:
        async with speaking(server, 0) as client:
            challenge = (await client.read()).challenge
            with pytest.raises(Rejection, match="server 0 answers where server 1 is expected"):
                answer_challenge(client.hello, challenge, client.identity, 1)
            assert not client.hello.signature

    asyncio.run(scene())


def test_a_revoked_certificate_ends_the_connection(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as server:
        server.up()
        certs = tmp_path / "certs"

        async def scene() -> None:
            async with speaking(server, 0) as old, speaking(server, 1) as other:
                await old.enter()
                task = await other.enter()
                assert old.identity is not None
                serial = f"{old.identity.client.serial:x}"
                write_revocations(certs / "revoked.json", [Revocation(0, "client-0", serial)])
                assert "was revoked" in (await old.rejection())[1]
                await other.answer(task.token)
                await other.task()  # nobody else is sent away
                async with speaking(server, 0) as again:
                    await again.greet()
                    assert (await again.rejection())[0] == "UNAUTHENTICATED"
                write_client(certs / "client-0", 0, "client-0", Authority.load(certs), 1)
                async with speaking(server, 0) as new:
                    await new.enter()
                (line,) = server.log("server-0", "revoked")
                assert (line["client"], line["name"]) == (0, "client-0")

        asyncio.run(scene())


def test_a_client_knows_its_server_by_the_authority(server: Deployed, tmp_path: Path) -> None:
    make_deployment(tmp_path / "other", 1, 1)

    async def scene() -> None:
        async with speaking(server, 0, certs=tmp_path / "other") as client:
            with pytest.raises(grpc.aio.AioRpcError) as rejection:
                await client.enter()
            assert rejection.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "CERTIFICATE_VERIFY_FAILED" in str(rejection.value.details())

    asyncio.run(scene())


def test_a_client_does_not_speak_to_a_server_whose_certificate_has_expired(tmp_path: Path) -> None:
    """A server of ours would not begin with one, but it may expire while that runs."""
    with deployed(table(), tmp_path) as deployment:
        certificate, key = Authority.load(tmp_path / "certs").issue(0, ["127.0.0.1"], -1)

        async def scene() -> None:
            outdated = grpc.aio.server()
            outdated.add_secure_port(deployment.addresses[0], grpc.ssl_server_credentials([(key, certificate)]))
            await outdated.start()
            async with speaking(deployment, 0) as client:
                with pytest.raises(grpc.aio.AioRpcError) as rejection:
                    await client.enter()
                assert "CERTIFICATE_VERIFY_FAILED: certificate has expired" in str(rejection.value.details())
            await outdated.stop(None)

        asyncio.run(scene())


def test_servers_know_each_other_by_their_certificates(tmp_path: Path) -> None:
    """Another authority, an expired certificate, and a certificate of another server are refused at the peer port."""
    with deployed(table("spyker", (1, 1)), tmp_path) as deployment:
        deployment.up(0)
        port = deployment.log("server-0", "listening")[0]["peers"]
        certs, config = tmp_path / "certs", tmp_path / "server-0" / "config.toml"
        make_deployment(tmp_path / "other", 2, 1)
        expired = Authority.load(certs).issue(1, ["127.0.0.1"], -1)
        theirs = [(tmp_path / "other" / "server-1" / name).read_bytes() for name in ("key.pem", "cert.pem")]
        mine = [(certs / "server-1" / name).read_bytes() for name in ("key.pem", "cert.pem")]

        async def greet(chain: list[bytes] | None, server: int) -> str:
            authority = (certs / "ca.pem").read_bytes()
            credentials = grpc.ssl_channel_credentials(authority, *(chain or ()))
            async with channel(f"127.0.0.1:{port}", 10.0, credentials) as connection:
                stream = open_stream(connection, PEERS_CONNECT)
                try:
                    keys = real_keys("life", federation_of(load_config(config), insecure=False))
                    challenge = (await read_body(stream, "challenge")).nonce
                    used = fingerprint(chain[1]) if chain else ""
                    greeting = to_json(handshake(server, keys=keys, certificate=used, new=True))
                    signature = sign_peer(keys, CALL, server, 0, challenge, greeting)
                    hello = pb.PeerHello(protocol=PROTOCOL, handshake=greeting, nonce=b"n", signature=signature)
                    await stream.write(pb.Frame(peer_hello=hello).SerializeToString())
                    while await stream.read() is not grpc.aio.EOF:
                        pass
                except (grpc.aio.AioRpcError, StreamEnded) as error:
                    return " ".join(map(str, (end_status(error)[0].name, end_status(error)[1])))
                return f"{(await stream.code()).name} {await stream.details()}"

        async def scene() -> None:
            assert (await greet(None, 1)).startswith("UNAVAILABLE"), "no certificate"
            assert (await greet(theirs, 1)).startswith("UNAVAILABLE"), "another authority"
            assert (await greet([expired[1], expired[0]], 1)).startswith("UNAVAILABLE"), "expired"
            assert "certificate of server 1" in await greet(mine, 0), "another server's"
            assert "mismatch" in await greet(mine, 1), "the right certificate, and another scenario"

        asyncio.run(scene())


def test_plaintext_never_leaves_the_machine(tmp_path: Path) -> None:
    with deployed(table(), tmp_path, listen_clients="0.0.0.0:0") as deployment:
        process = deployment.serve(0, "--insecure")
        assert process.wait(200) == 2
        assert "plaintext" in (tmp_path / "server-0.log").read_text()
