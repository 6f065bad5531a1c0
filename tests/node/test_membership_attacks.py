"""What a removed server, a thief of a certificate and one malicious member try against server 0 of three."""

from typing import Any

import msgspec
import pytest
from driven import Driven
from members import announced, handshake, promised, proven, real_keys
from msgspec.structs import replace
from test_membership import FIRST, begun

from spyker.net.certificate_authority import Authority
from spyker.node.control_messages import (
    Accept,
    Accepted,
    Decided,
    Declined,
    Heartbeat,
    LaterIncarnation,
    Prepare,
    Promise,
    succession_statement,
)
from spyker.node.ed25519_keys import Ed25519Keys, sign_with
from spyker.node.effects import SendControl, StopProcess
from spyker.node.events import (
    CheckpointSaved,
    ControlReceived,
    MembershipChangeForced,
    PeerConnected,
    PeerHelloReceived,
    RejectedByPeer,
    TimerFired,
)
from spyker.node.inbox import HEARTBEAT
from spyker.node.membership import ARRIVAL, OPERATOR, RENEW, Membership
from spyker.node.paxos import STEP, WIDTH, Proposal
from spyker.node.rejection import Rejection
from spyker.node.view_proofs import ViewChain, ViewProof, Vote, cast, forced_statement, vote_statement
from spyker.node.views import NOBODY, Member, MembershipChange, View, first_view

KEYS = {j: real_keys(f"server {j}") for j in range(5)}
KEYS[0].authorised = lambda statement, signature: False  # type: ignore[method-assign]
OTHERS = {j: KEYS[j] for j in (1, 2)}
HONEST = {j: KEYS[j] for j in (0, 1)}


def met() -> Driven:
    """Server 0, which has met the other two."""
    driven = begun(KEYS[0])
    for j, keys in OTHERS.items():
        driven.tell(PeerConnected, j, handshake(j, keys=keys), 0, 0.0)
    driven.take()
    return driven


def removed(server: int = 2) -> View:
    return FIRST.following(1, MembershipChange(server, None))


def without_server_2() -> Driven:
    """Servers 0 and 1 have removed server 2."""
    driven = met()
    driven.tell(ControlReceived, 1, Decided((proven(FIRST, removed(), HONEST),)))
    assert sorted(driven.node.view.members) == [0, 1]
    return driven


def unharmed(driven: Driven) -> bool:
    return not any(isinstance(effect, StopProcess) for effect in driven.take())


def said(driven: Driven, kind: type[Any]) -> list[Any]:
    """The control messages of this kind that were sent, once a checkpoint is saved."""
    driven.tell(CheckpointSaved)
    found = [effect.message for effect in driven.take() if isinstance(effect, SendControl)]
    return [message for message in found if isinstance(message, kind)]


# --- A removed server that keeps talking ------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [2, 7, (1 << 20) - 1])
def test_a_removed_server_with_an_invented_list_changes_nothing(epoch: int) -> None:
    driven = without_server_2()
    before = driven.node.view
    invented = View(epoch, {2: Member(KEYS[2].lineage)}, 2)
    previous = before if epoch == 2 else replace(invented, epoch=epoch - 1)
    forged = ViewProof(invented, previous, WIDTH, {2: Vote(KEYS[2].sign(b"this is so"), KEYS[2].lineage)})
    hello = handshake(2, keys=KEYS[2], epoch=epoch, proofs=(forged,))
    with pytest.raises(Rejection, match=r"^(proof|membership): "):
        driven.tell(PeerHelloReceived, hello, b"", b"")
    driven.tell(ControlReceived, 2, Decided((forged,)))
    driven.tell(ControlReceived, 2, Heartbeat(epoch, 1.0, None, True, None))
    assert driven.node.view == before
    assert unharmed(driven)


def test_a_removed_server_that_brings_a_valid_proof_changes_nothing() -> None:
    """Whoever is not a member teaches nobody, not even what is true."""
    driven = met()
    proof = proven(FIRST, removed(), HONEST)
    with pytest.raises(Rejection, match="membership: server 2 is not one of the servers"):
        driven.tell(PeerHelloReceived, handshake(2, keys=KEYS[2], epoch=1, proofs=(proof,)), b"", b"")
    assert driven.node.view == FIRST


def test_a_removed_server_is_shown_the_proof_and_stops_also_after_a_restart_of_the_others() -> None:
    driven = without_server_2()
    again = Membership(0, FIRST, float, keys=KEYS[0])
    again.restore(msgspec.json.decode(msgspec.json.encode(driven.node.membership.numbers())))
    with pytest.raises(Rejection, match="server 2 is not one of the servers") as refused:
        again.authenticate(handshake(2, keys=KEYS[2]))
    gone = Membership(2, FIRST, float, keys=KEYS[2])
    gone.refused(0, "", refused.value)
    assert "server 2 was removed in epoch 1" in gone.fenced


def test_a_removed_server_votes_for_nothing() -> None:
    driven = without_server_2()
    view = removed().following(2)
    driven.tell(ControlReceived, 2, Prepare(1, WIDTH + 2, view, OPERATOR))
    assert driven.node.membership.paxos.grants
    statement = vote_statement("federation", 2, removed(), WIDTH, view)
    vote = Vote(KEYS[2].sign(statement), KEYS[2].lineage)
    forged = ViewProof(view, removed(), WIDTH, {1: cast(KEYS[1], 1, removed(), WIDTH, view), 2: vote})
    driven.tell(ControlReceived, 1, Decided((forged,)))
    assert driven.node.view == removed()


def test_the_certificate_of_a_removed_server_is_revoked_for_every_number_also_after_a_restart() -> None:
    driven = met()
    gone = FIRST.following(1, MembershipChange(2, None, "its certificate"))
    announced_again = gone.following(1, MembershipChange(2, Member(NOBODY)))
    two = {0: KEYS[0], 1: KEYS[1]}
    proofs = proven(FIRST, gone, two), proven(gone, announced_again, two)
    driven.tell(ControlReceived, 1, Decided(proofs))
    assert driven.node.view == announced_again
    again = Membership(0, FIRST, float, keys=KEYS[0])
    again.restore(driven.node.membership.numbers())
    thief = handshake(2, keys=real_keys("thief"), certificate="its certificate", new=True)
    for membership in (driven.node.membership, again):
        with pytest.raises(Rejection, match="revoked: the certificate of server 2 was revoked"):
            membership.authenticate(thief)
        with pytest.raises(Rejection, match="voting on server 2"):
            membership.authenticate(handshake(2, keys=KEYS[3], certificate="a new one", new=True))


def test_a_certificate_alone_does_not_succeed_a_silent_member() -> None:
    driven = met()
    driven.time = 9.0
    driven.tell(TimerFired, HEARTBEAT)
    assert driven.node.membership.suspected == {1, 2}
    thief = real_keys("thief")
    claim: dict[str, Any] = {"new": True, "former": KEYS[1].lineage}
    statement = succession_statement("federation", 1, thief.lineage)
    for signature in (b"", thief.sign(statement), KEYS[2].sign(statement)):
        with pytest.raises(Rejection, match="another one than the one known here"):
            driven.tell(PeerHelloReceived, handshake(1, keys=thief, succession=signature, **claim), b"", b"")
    genuine = KEYS[1].sign(statement)
    with pytest.raises(Rejection, match="voting on server 1"):
        driven.tell(PeerHelloReceived, handshake(1, keys=thief, succession=genuine, **claim), b"", b"")


# --- One malicious member: lists --------------------------------------------------------------------------------------


def malformed_proofs() -> list[Any]:
    view = FIRST.following(2, MembershipChange(0, None))
    good = proven(FIRST, view, OTHERS)
    vote = good.votes[2]
    jump = replace(FIRST, epoch=(1 << 20) - 2)
    scalar = int.from_bytes(vote.signature[32:], "little") + (1 << 252) + 27742317777372353535851937790883648493
    other_form = replace(vote, signature=vote.signature[:32] + scalar.to_bytes(32, "little"))
    malleable = replace(good, votes={1: good.votes[1], 2: other_form})
    elsewhere = {j: real_keys(f"server {j}", "other") for j in (1, 2)}
    leap = replace(proven(jump, jump.following(2), OTHERS), previous=FIRST)
    two_changes = replace(view, members={2: FIRST.members[2]})
    huge = replace(view, members={j: Member(str(j)) for j in range(4000)} | {2: FIRST.members[2]})
    return [
        pytest.param(proven(FIRST, view, {2: KEYS[2]}), id="one vote"),
        pytest.param(replace(good, votes={1: vote, 2: vote}), id="one voter twice"),
        pytest.param(proven(FIRST, view, {1: KEYS[2], 2: KEYS[2]}), id="one key for two voters"),
        pytest.param(replace(good, votes={2: vote, 3: good.votes[1]}), id="a voter that is none"),
        pytest.param(replace(good, ballot=good.ballot + 1), id="another ballot"),
        pytest.param(replace(good, votes={1: cast(KEYS[1], 1, FIRST, 2 * WIDTH, view), 2: vote}), id="two ballots"),
        pytest.param(replace(good, view=FIRST.following(2, MembershipChange(1, None))), id="votes for another view"),
        pytest.param(proven(FIRST, view, elsewhere), id="another federation"),
        pytest.param(proven(jump, jump.following(2), {2: KEYS[2]}), id="an epoch jump"),
        pytest.param(leap, id="an epoch that does not follow"),
        pytest.param(proven(FIRST, two_changes, OTHERS), id="two changes"),
        pytest.param(proven(FIRST, huge, OTHERS), id="a huge list"),
        pytest.param(malleable, id="a signature in another form"),
        pytest.param(ViewProof(view, FIRST, authority=b"signed"), id="a forced change"),
    ]  # fmt: skip


@pytest.mark.parametrize("proof", malformed_proofs())
def test_a_list_without_the_signatures_of_a_majority_is_ignored(proof: ViewProof) -> None:
    driven = met()
    driven.tell(ControlReceived, 2, Decided((proof,)))
    with pytest.raises(Rejection, match=r"^proof: "):
        driven.tell(PeerHelloReceived, handshake(2, keys=KEYS[2], epoch=1, proofs=(proof,)), b"", b"")
    assert driven.node.view == FIRST
    assert unharmed(driven)
    driven.tell(ControlReceived, 2, Decided((proven(FIRST, removed(1), {0: KEYS[0], 2: KEYS[2]}),)))
    assert driven.node.view == removed(1), "changes go on"


def test_an_old_list_is_not_adopted_again() -> None:
    driven = met()
    first = proven(FIRST, FIRST.following(1), OTHERS)
    second = proven(first.view, first.view.following(2), OTHERS)
    driven.tell(ControlReceived, 1, Decided((first, second)))
    other = proven(FIRST, FIRST.following(2, MembershipChange(0, None)), OTHERS)
    driven.tell(ControlReceived, 1, Decided((first,)))
    driven.tell(ControlReceived, 1, Decided((other,)))
    assert driven.node.view == second.view
    assert unharmed(driven)


def test_members_of_the_first_view_are_those_that_were_met() -> None:
    """Their certificates endorse lineages; another one of theirs does not vote here."""
    driven = met()
    forged = proven(FIRST, FIRST.following(2, MembershipChange(0, None)), {1: real_keys("thief"), 2: KEYS[2]})
    driven.tell(ControlReceived, 2, Decided((forged,)))
    assert driven.node.view == FIRST


# --- One malicious member: votes --------------------------------------------------------------------------------------


def test_no_voter_votes_twice_in_one_ballot() -> None:
    driven = met()
    shown = promised(FIRST, OTHERS, WIDTH + 2)
    driven.tell(ControlReceived, 2, Accept(0, WIDTH + 2, FIRST.following(2), shown))
    driven.tell(ControlReceived, 2, Accept(0, WIDTH + 2, FIRST.following(2, MembershipChange(1, None)), shown))
    assert driven.node.membership.paxos.voted == (WIDTH + 2, FIRST.following(2))
    assert len(said(driven, Accepted)) <= 1


def test_a_proposer_gets_votes_only_for_what_the_promises_of_a_majority_allow() -> None:
    """So a server that was removed cannot have something else decided by one that has not heard of it yet."""
    driven = met()
    gone = FIRST.following(1, MembershipChange(2, None))
    driven.tell(ControlReceived, 1, Accept(0, WIDTH + 1, gone, promised(FIRST, OTHERS, WIDTH + 1)))
    paxos, ballot = driven.node.membership.paxos, 2 * WIDTH + 2
    assert paxos.voted == (WIDTH + 1, gone)
    stays = FIRST.following(2, MembershipChange(1, None))
    own, mine = promised(FIRST, {2: KEYS[2]}, ballot), promised(FIRST, {0: KEYS[0]}, ballot, WIDTH + 1, gone)
    forged = promised(FIRST, {1: KEYS[2], 2: KEYS[2]}, ballot)
    earlier = promised(FIRST, OTHERS, WIDTH + 2)
    rewritten = {0: replace(mine[0], voted=None, view=None)}
    for shown in ({}, own, own | mine, forged, earlier, own | rewritten):
        driven.tell(ControlReceived, 2, Accept(0, ballot, stays, shown))
    assert paxos.voted == (WIDTH + 1, gone)
    driven.tell(ControlReceived, 2, Accept(0, ballot, gone, own | mine))
    assert paxos.voted == (ballot, gone)


def test_a_server_does_not_count_where_its_own_removal_is_decided() -> None:
    """Otherwise it could vote once more, for something else, with one that has not voted yet."""
    chain = ViewChain(KEYS[0])
    gone = FIRST.following(1, MembershipChange(2, None))
    with pytest.raises(Rejection, match="no majority has signed"):
        chain.follow(FIRST, [proven(FIRST, gone, OTHERS)], {})
    assert chain.follow(FIRST, [proven(FIRST, gone, {0: KEYS[0], 1: KEYS[1]})], {})


@pytest.mark.parametrize(
    ("ballot", "view"),
    [
        (WIDTH + 1, FIRST.following(2)),  # the ballot of another server
        ((1 << 62) // WIDTH * WIDTH + 2, FIRST.following(2)),  # no number would be left
        (WIDTH + 2, replace(FIRST.following(2), epoch=9)),
        (WIDTH + 2, replace(FIRST.following(2), members={2: Member()})),
        (WIDTH + 2, replace(FIRST.following(2), leader=9)),
    ],
)
def test_nobody_votes_for_what_cannot_follow(ballot: int, view: View) -> None:
    driven = met()
    driven.tell(ControlReceived, 2, Prepare(0, ballot, view, OPERATOR))
    driven.tell(ControlReceived, 2, Accept(0, ballot, view, promised(FIRST, OTHERS, ballot)))
    paxos = driven.node.membership.paxos
    assert (paxos.promised, paxos.voted) == (0, None)


@pytest.mark.parametrize("proposer", [0, 1])
def test_votes_go_on_after_the_highest_ballots_that_one_member_can_cause(proposer: int) -> None:
    """A voter whose ballot is far behind is led up to it step by step, whatever the number of the proposer is."""
    one, other = (Membership(j, FIRST, float, keys=KEYS[j]) for j in (proposer, 1 - proposer))
    for step in range(1, 4):
        one.paxos.receive(2, Prepare(0, step * (STEP - WIDTH) + 2, FIRST.following(2), OPERATOR))
    assert one.paxos.promised == 3 * (STEP - WIDTH) + 2
    one.paxos.outgoing.clear()
    one.paxos.propose(Proposal(OPERATOR, MembershipChange(2, None)))
    for _ in range(10):
        for sender, receiver in ((one, other), (other, one)):
            messages, sender.paxos.outgoing = sender.paxos.outgoing, []
            for to, message in messages:
                if to == receiver.id:
                    receiver.receive(sender.id, message, saves=True)
    assert sorted(one.view.members) == sorted(other.view.members) == [0, 1]


def test_a_refused_ballot_raises_the_next_one_by_a_step_at_most() -> None:
    driven = met()
    paxos = driven.node.membership.paxos
    paxos.propose(Proposal(RENEW))
    assert paxos.open_ballot is not None
    driven.tell(ControlReceived, 2, Declined(0, paxos.open_ballot.ballot, (1 << 63) - 1))
    paxos.propose(Proposal(RENEW))
    assert paxos.promised == paxos.open_ballot.ballot, "it follows its own ballot"
    assert STEP <= paxos.promised <= WIDTH + STEP


def test_one_member_that_declines_a_ballot_does_not_end_it() -> None:
    driven = met()
    paxos = driven.node.membership.paxos
    paxos.propose(Proposal(RENEW))
    assert paxos.open_ballot is not None
    ballot, view = paxos.open_ballot.ballot, FIRST.following(0)
    lie = Declined(0, ballot, (1 << 63) - 1)
    driven.tell(ControlReceived, 2, lie)
    driven.tell(ControlReceived, 1, Promise(0, ballot, promised(FIRST, OTHERS, ballot)[1]))
    driven.tell(ControlReceived, 2, lie)
    driven.tell(ControlReceived, 1, Accepted(0, ballot, cast(KEYS[1], 1, FIRST, ballot, view)))
    assert driven.node.view == view


def test_a_suspected_member_cannot_hold_up_a_vote() -> None:
    """Whoever has stolen its key can talk without end, while its successor asks to be admitted."""
    driven = met()
    paxos = driven.node.membership.paxos
    driven.time = 9.0
    driven.tell(ControlReceived, 1, Heartbeat(0, 1.0, 8.9, True, None))
    driven.tell(TimerFired, HEARTBEAT)
    assert driven.node.membership.suspected == {2}
    before = paxos.promised
    driven.tell(ControlReceived, 2, Prepare(0, 9 * WIDTH + 2, FIRST.following(2), OPERATOR))
    assert paxos.promised == before
    driven.tell(ControlReceived, 1, Prepare(0, 9 * WIDTH + 1, FIRST.following(1), OPERATOR))
    driven.tell(ControlReceived, 2, Prepare(0, 10 * WIDTH + 2, FIRST.following(2), OPERATOR))
    assert paxos.promised == 9 * WIDTH + 1


def test_a_suspected_member_that_claims_the_token_does_not_keep_it_from_being_renewed() -> None:
    driven = met()
    for at in range(1, 20):
        driven.time = float(at)
        driven.tell(ControlReceived, 1, Heartbeat(0, driven.time, driven.time, True, None))
        driven.tell(ControlReceived, 2, Heartbeat(0, driven.time, None, True, 0.0))
    assert driven.node.membership.failure_detector.token_missed_for(0) > 10.0


def test_a_reported_vote_for_an_impossible_view_is_no_promise() -> None:
    driven = met()
    paxos = driven.node.membership.paxos
    paxos.propose(Proposal(RENEW))
    assert paxos.open_ballot is not None
    evil = replace(FIRST.following(2), members={2: Member()})
    ballot = paxos.open_ballot.ballot
    driven.tell(ControlReceived, 2, Promise(0, ballot, promised(FIRST, OTHERS, ballot, WIDTH, evil)[2]))
    driven.tell(ControlReceived, 2, Promise(0, ballot, promised(FIRST, {2: KEYS[1]}, ballot)[2]))
    assert paxos.open_ballot is not None
    assert paxos.open_ballot.asking


def test_a_vote_with_a_wrong_signature_does_not_count() -> None:
    driven = met()
    paxos = driven.node.membership.paxos
    paxos.propose(Proposal(RENEW))
    assert paxos.open_ballot is not None
    ballot = paxos.open_ballot.ballot
    driven.tell(ControlReceived, 1, Promise(0, ballot, promised(FIRST, OTHERS, ballot)[1]))
    view = FIRST.following(0)
    driven.tell(ControlReceived, 1, Accepted(0, ballot, cast(KEYS[2], 1, FIRST, ballot, view)))
    assert driven.node.view == FIRST
    driven.tell(ControlReceived, 1, Accepted(0, ballot, cast(KEYS[1], 1, FIRST, ballot, view)))
    assert driven.node.view == view


# --- One malicious member: reports ------------------------------------------------------------------------------------


def test_a_report_of_a_later_process_stops_nobody_unless_that_process_has_signed_it() -> None:
    driven = met()
    forged = replace(announced(KEYS[2], 0, 9), lineage=KEYS[0].lineage)
    driven.tell(ControlReceived, 2, Heartbeat(0, 1.0, None, True, None, announcements=(forged,)))
    driven.tell(ControlReceived, 2, LaterIncarnation(forged))
    driven.tell(RejectedByPeer, 2, "duplicate", "a later process", KEYS[2].lineage, LaterIncarnation(forged))
    about_another = replace(announced(KEYS[2], 1, 9), lineage=KEYS[1].lineage)
    driven.tell(ControlReceived, 2, Heartbeat(0, 1.0, None, True, None, announcements=(about_another,)))
    assert unharmed(driven)
    driven.tell(PeerHelloReceived, handshake(1, keys=KEYS[1], incarnation=2), b"", b"")
    genuine = announced(KEYS[0], 0, 9)
    driven.tell(ControlReceived, 2, Heartbeat(0, 1.0, None, True, None, announcements=(genuine,)))
    assert not unharmed(driven)


@pytest.mark.parametrize("reason", ["membership", "duplicate", "lineage", "revoked", "outdated", "epoch"])
def test_a_rejection_without_a_proof_stops_nobody(reason: str) -> None:
    driven = met()
    driven.tell(RejectedByPeer, 2, reason, "go away", KEYS[2].lineage)
    driven.tell(RejectedByPeer, 2, reason, "go away")
    assert unharmed(driven)


def test_only_a_member_that_proves_who_it_is_makes_a_server_begin_anew() -> None:
    driven = without_server_2()
    driven.tell(RejectedByPeer, 2, "rolled-back", "an older state", KEYS[2].lineage)
    driven.tell(RejectedByPeer, 1, "rolled-back", "an older state")
    driven.tell(RejectedByPeer, 1, "rolled-back", "an older state", KEYS[2].lineage)
    assert unharmed(driven)
    driven.tell(RejectedByPeer, 1, "rolled-back", "an older state", KEYS[1].lineage)
    assert not unharmed(driven)


def test_an_announcement_must_be_signed_by_the_lineage_that_it_names() -> None:
    driven = met()
    forged = replace(handshake(1, keys=KEYS[2]), announcement=replace(announced(KEYS[2], 1), lineage=KEYS[1].lineage))
    with pytest.raises(Rejection, match=r"^identity: "):
        driven.tell(PeerHelloReceived, forged, b"", b"")


# --- The chain --------------------------------------------------------------------------------------------------------


def test_a_server_that_was_away_for_many_epochs_catches_up_and_renewals_of_the_token_cost_nothing() -> None:
    view, chain, views = FIRST, ViewChain(KEYS[0]), [FIRST]
    for epoch in range(1, 31):
        change = MembershipChange(2 + epoch // 10, Member(f"{epoch:064x}")) if epoch in (10, 20) else None
        following = view.following(1, change)
        chain.append(proven(view, following, {j: KEYS[j] for j in range(3)}))
        view = following
        views.append(view)
    assert len(chain.proofs) == 3, "one for each change of the voters, and the last"
    for known in views[:-1]:
        assert chain.follow(known, chain.since(known.epoch), {})[-1].view == view
    with pytest.raises(Rejection, match="do not follow from those known here"):
        chain.follow(FIRST, chain.proofs[1:], {})


def test_an_arrival_is_voted_for_with_the_lineage_that_came() -> None:
    driven = met()
    driven.tell(
        ControlReceived, 2, Prepare(0, WIDTH + 2, FIRST.following(2, MembershipChange(1, Member("x"))), ARRIVAL)
    )
    assert driven.node.membership.paxos.grants, "server 1 is heard"


# --- A change without a vote ------------------------------------------------------------------------------------------


def test_a_forced_change_needs_the_signature_of_the_authority() -> None:
    authority, other = Authority.create(), Authority.create()
    keys = Ed25519Keys(b"0" * 32, "federation", authority.pem()[0])
    membership = Membership(0, first_view([0, 1], [0, 1]), float, keys=keys)
    before = membership.view
    view = before.following(0, MembershipChange(1, None))
    for signer, federation in ((other, "federation"), (authority, "another federation")):
        signature = sign_with(signer.key, forced_statement(federation, before, view))
        with pytest.raises(Rejection, match="authority has not signed"):
            membership.force(ViewProof(view, before, authority=signature))
    with pytest.raises(Rejection, match="no forced change"):
        membership.force(ViewProof(view, before))
    signature = sign_with(authority.key, forced_statement("federation", before, view))
    proof = ViewProof(view, before, authority=signature)
    membership.force(proof)
    assert membership.view == view
    with pytest.raises(Rejection, match="no forced change"):
        membership.force(proof)
    late = Membership(
        3, first_view([0, 1], [0, 1]), float, keys=Ed25519Keys(b"3" * 32, "federation", authority.pem()[0])
    )
    late._follow(Decided(membership.chain.since(0)))
    assert late.view == view


def test_a_forced_change_that_nobody_signed_is_refused_by_a_node() -> None:
    driven = met()
    view = FIRST.following(0, MembershipChange(1, None))
    with pytest.raises(Rejection, match=r"^proof: "):
        driven.tell(MembershipChangeForced, ViewProof(view, FIRST))
    assert driven.node.view == FIRST
