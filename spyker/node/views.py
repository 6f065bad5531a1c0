"""Views: the membership of one epoch. There is one view for each epoch, and at most one token.

A member is identified by its number and its *lineage*, a random name that was made with its state. So a server that
lost its disk, or replaced another one, is a different member under the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec

ANYBODY = ""
"""The lineage of a member of the first view: each server accepts the first lineage that it meets."""
NOBODY = "?"
"""The lineage of a member that was announced and has not joined yet."""
LONGEST = 256
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST)]
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""Every epoch is proven by a vote on the one before it, so no message can skip any: the limit is never reached."""
MOST_REVOKED = 1 << 12


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member of a view."""

    lineage: Text = ANYBODY
    address: Text = ""
    """Address for other servers; if empty, the one in their configurations."""
    learner: bool = True
    """Whether it has clients. HierFAVG's cloud has none."""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The membership of one epoch."""

    epoch: Epoch
    members: Annotated[dict[Number, Member], msgspec.Meta(max_length=1 << 12)]
    leader: Number
    """The server that makes the token of this epoch."""
    revoked: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_REVOKED)] = ()
    """Fingerprints of certificates of servers that were removed or replaced; no server is admitted with one."""

    @property
    def voters(self) -> list[int]:
        """The members that vote on the next view: all that have joined."""
        return [i for i, member in sorted(self.members.items()) if member.lineage != NOBODY]

    @property
    def ring(self) -> list[int]:
        """The members with clients, in the order of the token."""
        return [i for i, member in sorted(self.members.items()) if member.learner]

    def majority(self, servers: Any) -> bool:
        """Return whether these are more than half of the voters."""
        voters = self.voters
        return 2 * len(set(servers).intersection(voters)) > len(voters)

    def following(self, leader: int, change: MembershipChange | None = None) -> View:
        """Return the next view: with a change, or the same with a new token."""
        members, revoked = dict(self.members), self.revoked
        if change is not None and change.member is None:
            members.pop(change.server, None)
        elif change is not None and change.member is not None:
            members[change.server] = change.member
        if change is not None and change.revoke and change.revoke not in revoked:
            revoked = (*revoked, change.revoke)[-MOST_REVOKED:]
        return View(self.epoch + 1, members, leader, revoked)

    def decided_by(self, view: View, servers: Any) -> bool:
        """Return whether the votes of these servers decide that ``view`` is the next one.

        A voter that is removed or replaced does not count, unless only two vote: so it cannot help to decide something
        else instead when it turns against the others later.
        """
        voters = self.voters
        if len(voters) > 2:
            servers = [j for j in servers if self.members.get(j) == view.members.get(j)]
        return self.majority(servers)

    @property
    def content(self) -> list[Any]:
        """All that the view says, in one order: equal views have equal content."""
        members = [[i, each.lineage, each.address, each.learner] for i, each in sorted(self.members.items())]
        return [self.epoch, members, self.leader, list(self.revoked)]

    @property
    def electorate(self) -> dict[int, str]:
        """The lineages of the voters."""
        return {i: self.members[i].lineage for i in self.voters}

    def is_followed_by(self, view: View) -> bool:
        """Return whether ``view`` may be voted for: a voter leads it, and at most one entry has changed."""
        before, after = self.members, view.members
        changed = [i for i in before.keys() | after.keys() if before.get(i) != after.get(i)]
        change = None
        if changed or view.revoked != self.revoked:
            server = changed[0] if changed else next(iter(before), 0)
            revoked = [each for each in view.revoked if each not in self.revoked]
            change = MembershipChange(server, after.get(server), revoked[0] if revoked else "")
        return view.leader in self.voters and view == self.following(view.leader, change)


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A change of one server's entry; ``None`` removes it."""

    server: int
    member: Member | None
    revoke: str = ""
    """Fingerprint of a certificate with which no server is to be admitted any more."""


def first_view(learners: Any, servers: Any) -> View:
    """Return the view of epoch 0."""
    return View(0, {i: Member(learner=i in learners) for i in servers}, 0)
