"""Real server processes, and somebody who has the folder and the state of one that was removed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from deployment import Deployed, table, until
from members import announced
from test_members import QUICK, members

from spyker.cli.codes import FENCED
from spyker.cli.main import main
from spyker.net import spyker_pb2 as pb
from spyker.net.certificate_issuing import write_authority
from spyker.net.channels import PEERS_CONNECT, channel, open_stream
from spyker.net.frames import PROTOCOL
from spyker.net.member_identity import federation_of
from spyker.net.peer_signatures import CALL, sign_peer
from spyker.net.server_config import ServerConfig, deployment_digest, load_config
from spyker.net.server_parts import load_model
from spyker.net.streams import read_body, read_frame
from spyker.node.control_messages import PeerHandshake, to_json
from spyker.node.ed25519_keys import Ed25519Keys, endorse, fingerprint, server_name
from spyker.node.paxos import WIDTH
from spyker.node.view_proofs import ViewProof, Vote, vote_statement
from spyker.node.views import Member, View, first_view


class Thief:
    """Has everything that server 2 has: certificate, key and state."""

    def __init__(self, folder: Path) -> None:
        self.config: ServerConfig = load_config(folder / "server-2" / "config.toml")
        deploy, secret = self.config.deploy, json.loads((folder / "server-2/state/identity.json").read_text())["secret"]
        self.ca, self.certificate, self.key = (
            self.config.path(name).read_bytes() for name in (deploy.ca, deploy.certificate, deploy.key)
        )
        self.layout = load_model(self.config)[1].spec.digest
        self.federation = federation_of(self.config, insecure=False)
        self.keys = Ed25519Keys(bytes.fromhex(secret), self.federation, self.ca)
        self.endorsement = endorse(self.federation, 2, self.keys.lineage, self.certificate, self.key)

    def forged(self, previous: View, view: View) -> ViewProof:
        """A list that every voter seems to have signed."""
        said = {j: self.keys.sign(vote_statement(self.federation, j, previous, WIDTH, view)) for j in previous.voters}
        votes = {j: Vote(signature, self.keys.lineage, self.endorsement) for j, signature in said.items()}
        return ViewProof(view, previous, WIDTH, votes)

    def lists(self) -> list[ViewProof]:
        """Invented lists, in which only server 2 is left."""
        first, alone = first_view([0, 1, 2], [0, 1, 2]), {2: Member(self.keys.lineage)}
        far = (1 << 20) - 1
        return [
            self.forged(first, first.following(2)),
            self.forged(first, View(1, alone, 2)),
            self.forged(View(far - 1, alone, 2), View(far, alone, 2)),
        ]

    async def greet(self, server: int, *, keys: Ed25519Keys | None = None, **said: Any) -> str:
        """Return how a server answers one PeerHello."""
        keys = keys or self.keys
        address = self.config.deploy.peers[server]
        credentials = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        async with channel(address, 10.0, credentials, server_name(server)) as connection:
            stream = open_stream(connection, PEERS_CONNECT)
            nonce = (await read_body(stream, "challenge")).nonce
            mine = announced(keys, 2, 1 << 40, certificate=fingerprint(self.certificate))
            handshake = to_json(PeerHandshake(mine, 1 << 40, endorsement=self.endorsement, **said))
            hello = pb.PeerHello(
                protocol=PROTOCOL,
                layout=self.layout,
                deployment=deployment_digest(self.config.scenario),
                handshake=handshake,
                to=server,
                nonce=b"n" * 32,
                signature=sign_peer(keys, CALL, 2, server, nonce, handshake),
            )
            await stream.write(pb.Frame(peer_hello=hello).SerializeToString())
            frame = pb.Frame.FromString(await read_frame(stream))
            stream.cancel()
        assert frame.WhichOneof("body") == "peer_refusal", frame
        return str(frame.peer_refusal.reason)


@pytest.mark.slow
def test_a_removed_server_with_its_certificate_and_state_stops_nobody(tmp_path: Path, capsys: Any) -> None:
    with Deployed(table("spyker", (1, 1, 1)), tmp_path, **QUICK | {"min_clients": 0}) as deployed:
        for i in range(3):
            deployed.up(i)
        until(lambda: all(len(deployed.log(f"server-{i}", "link-up")) >= 2 for i in range(3)))
        config = str(tmp_path / "server-0" / "config.toml")
        members(capsys, "remove", config, "2")
        assert deployed.servers[2].wait(200) == FENCED, "it was shown the proof, and ended"
        thief = Thief(tmp_path)

        async def attack() -> set[str]:
            answers = set()
            for server in (0, 1):
                answers.add(await thief.greet(server))
                answers.add(await thief.greet(server, new=True))
                for proof in thief.lists():
                    answers.add(await thief.greet(server, epoch=proof.view.epoch, proofs=(proof,)))
            return answers

        assert asyncio.run(attack()) <= {"membership", "proof"}
        assert [deployed.servers[i].poll() for i in (0, 1)] == [None, None]
        now = members(capsys, "add", config, "2", deployed_address(tmp_path))
        assert now["epoch"] == 2, "changes go on"

        async def come_back() -> set[str]:
            fresh = Ed25519Keys(b"x" * 32, thief.federation, thief.ca)
            return {await thief.greet(server, keys=fresh, new=True, epoch=0) for server in (0, 1)}

        assert asyncio.run(come_back()) == {"revoked"}, "not under another lineage either"


def deployed_address(folder: Path) -> str:
    return load_config(folder / "server-2" / "config.toml").deploy.peers[2]


def test_a_change_without_a_vote_needs_the_key_of_the_authority(tmp_path: Path, capsys: Any) -> None:
    with Deployed(table("spyker", (1, 1)), tmp_path, **QUICK | {"min_clients": 0}) as deployed:
        deployed.up(0)
        until(lambda: deployed.log("server-0", "started"))
        config = str(tmp_path / "server-0" / "config.toml")
        assert main(["members", "remove", config, "1", "--force"]) == 2
        assert "--authority: is missing" in capsys.readouterr().err
        other = tmp_path / "other"
        write_authority(other, 1)
        assert main(["members", "remove", config, "1", "--force", "--authority", str(other)]) == 1
        assert "authority has not signed" in capsys.readouterr().err
        now = members(capsys, "remove", config, "1", "--force", "--authority", str(tmp_path / "certs"))
        assert [m["server"] for m in now["members"]] == [0]
        assert deployed.servers[0].poll() is None
