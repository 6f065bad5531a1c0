"""The member list for clients: what a client believes, and what it does not."""

import pytest
from members import announced, proven
from msgspec.structs import replace

from spyker.net.certificate_authority import Authority
from spyker.node.control_messages import Decided, PeerHandshake
from spyker.node.ed25519_keys import Ed25519Keys, endorse
from spyker.node.member_list import FollowedMembers, ListedServer, MemberList, member_list
from spyker.node.membership import Membership
from spyker.node.rejection import Rejection
from spyker.node.views import Member, MembershipChange, first_view

FIRST = first_view([0, 1, 2], [0, 1, 2])
AUTHORITY = Authority.create()
CA = AUTHORITY.pem()[0]


def certified(name: str, server: int, authority: Authority = AUTHORITY) -> Ed25519Keys:
    """Keys of a server whose certificate is the authority's."""
    secret = name.encode().ljust(32, b".")
    lineage = Ed25519Keys(secret, "federation").lineage
    certificate, key = authority.issue(server, ["127.0.0.1"], 1)
    return Ed25519Keys(secret, "federation", CA, endorse("federation", server, lineage, certificate, key))


KEYS = {j: certified(f"server {j}", j) for j in range(4)}


def address(j: int) -> str:
    return f"server-{j}.example.org:7000"


def serving() -> Membership:
    """Server 0, which has met servers 1 and 2."""
    membership = Membership(0, FIRST, float, keys=KEYS[0], clients=address(0))
    for j in (1, 2):
        said = announced(KEYS[j], j, clients=address(j))
        membership.authenticate(PeerHandshake(said, 1, endorsement=KEYS[j].endorsement))
    return membership


def client() -> FollowedMembers:
    """A client that has only the scenario and the authority's certificate."""
    return FollowedMembers(FIRST, Ed25519Keys(b"", "federation", CA))


def test_a_client_learns_the_addresses_of_servers_that_it_was_not_created_with() -> None:
    membership, follower = serving(), client()
    assert follower.addresses == {0: "", 1: "", 2: ""}
    assert follower.update(member_list(membership).encode())
    assert follower.addresses == {j: address(j) for j in range(3)}
    assert not follower.update(member_list(membership).encode()), "nothing new"
    added = FIRST.following(1, MembershipChange(3, Member(KEYS[3].lineage)))
    smaller = added.following(1, MembershipChange(2, None, "a certificate"))
    voters = {j: KEYS[j] for j in (0, 1, 2)}
    later = {j: KEYS[j] for j in (0, 1, 3)}
    membership._follow(Decided((proven(FIRST, added, voters), proven(added, smaller, later))))
    said = announced(KEYS[3], 3, clients=address(3))
    membership.authenticate(PeerHandshake(said, 1, epoch=2, endorsement=KEYS[3].endorsement))
    assert follower.update(member_list(membership, follower.epoch).encode())
    assert follower.addresses == {0: address(0), 1: address(1), 3: address(3)}
    assert follower.epoch == 2
    assert client().update(member_list(membership).encode()), "also from the beginning"


def test_a_client_believes_no_server_that_lies_about_the_members() -> None:
    follower = client()
    follower.update(member_list(serving()).encode())
    evil = FIRST.following(0, MembershipChange(1, None))
    thief = certified("server 1", 1, Authority.create())
    for voters in ({0: KEYS[0]}, {0: KEYS[0], 1: thief, 2: certified("x", 1)}):
        with pytest.raises(Rejection, match=r"^proof: "):
            follower.update(MemberList((proven(FIRST, evil, voters),), ()).encode())
    for data in (b"", b"{", b'{"proofs":[],"servers":[1]}', b"[" * 100_000):
        with pytest.raises(Rejection, match=r"^malformed: "):
            follower.update(data)
    assert follower.addresses == {j: address(j) for j in range(3)}


def test_a_client_follows_no_address_that_its_server_has_not_signed() -> None:
    follower = client()
    follower.update(member_list(serving()).encode())
    elsewhere = announced(KEYS[1], 1, 9, clients="evil.example.org:7000")
    stolen = certified("thief", 1, Authority.create())
    lies = [
        ListedServer(replace(elsewhere, signature=b""), KEYS[1].endorsement),
        ListedServer(replace(elsewhere, signature=KEYS[0].sign(b"")), KEYS[1].endorsement),
        ListedServer(announced(KEYS[0], 1, 9, clients="evil.example.org:7000"), KEYS[0].endorsement),
        ListedServer(announced(stolen, 1, 9, clients="evil.example.org:7000"), stolen.endorsement),
        ListedServer(announced(KEYS[3], 3, 9, clients="evil.example.org:7000"), KEYS[3].endorsement),
    ]
    for lie in lies:
        assert not follower.update(MemberList((), (lie,)).encode())
        assert not client().update(MemberList((), (lie,)).encode())
    assert follower.addresses[1] == address(1)
    assert follower.update(MemberList((), (ListedServer(elsewhere, KEYS[1].endorsement),)).encode())


def test_the_list_of_another_federation_is_not_followed() -> None:
    follower = FollowedMembers(FIRST, Ed25519Keys(b"", "another federation", CA))
    assert not follower.update(member_list(serving()).encode())
    proof = proven(FIRST, FIRST.following(1), {j: KEYS[j] for j in (1, 2)})
    with pytest.raises(Rejection, match=r"^proof: "):
        follower.update(MemberList((proof,), ()).encode())
