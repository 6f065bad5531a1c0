"""Who the servers are: a list with a number, its *epoch*. There is one list for each epoch, and one token at most.

A member is known by its number and by its *lineage*, a name that was made at random when its state began. So a machine
that lost its disk, and one that was put in the place of another, is somebody else under the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec

ANYBODY = ""
"""The lineage of a member of the first list: whoever comes first under its number, as each of the others sees it."""
NOBODY = "?"
"""The lineage of a member that was announced and has not come yet."""
LONGEST = 256
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST)]
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One server."""

    lineage: Text = ANYBODY
    address: Text = ""
    """Where other servers reach it; nothing: where their configurations say."""
    learner: bool = True
    """Whether it has clients."""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The servers of one epoch."""

    epoch: Epoch
    members: Annotated[dict[Number, Member], msgspec.Meta(max_length=1 << 12)]
    leader: Number
    """Who makes the token of this epoch."""

    @property
    def voters(self) -> list[int]:
        """Those who decide on the next list: all but those who have yet to come."""
        return [i for i, member in sorted(self.members.items()) if member.lineage != NOBODY]

    @property
    def ring(self) -> list[int]:
        """Those who have clients, in the order in which the token passes them."""
        return [i for i, member in sorted(self.members.items()) if member.learner]

    def majority(self, servers: Any) -> bool:
        """Whether these are more than half of the voters."""
        voters = self.voters
        return 2 * len(set(servers).intersection(voters)) > len(voters)

    def following(self, leader: int, change: MembershipChange | None = None) -> View:
        """The next list: with this change, or the same with a new token."""
        members = dict(self.members)
        if change is not None and change.member is None:
            members.pop(change.server, None)
        elif change is not None and change.member is not None:
            members[change.server] = change.member
        return View(self.epoch + 1, members, leader)


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What somebody wants changed: the entry of one server; ``None``: it goes."""

    server: int
    member: Member | None


def first_view(learners: Any, servers: Any) -> View:
    """The list with which everything begins."""
    return View(0, {i: Member(learner=i in learners) for i in servers}, 0)
