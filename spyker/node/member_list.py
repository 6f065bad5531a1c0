"""The member list for clients: views with their proofs, and what each server announces of itself.

A server sends it; a client verifies it with what it was created with: the first view, from the scenario, and the
certificate of the federation's authority. So a client believes no server more than it has to: one that lies about the
members is recognised, and one that was removed or replaced drops out of the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from spyker.node.control_messages import Announcement
from spyker.node.keys import Keys
from spyker.node.membership import Membership
from spyker.node.rejection import Rejection
from spyker.node.view_proofs import Endorsement, Proofs, ViewChain
from spyker.node.views import ANYBODY, View


class ListedServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one server has announced, and the endorsement by its certificate."""

    announcement: Announcement
    endorsement: Endorsement


class MemberList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The members, for clients."""

    proofs: Proofs
    """Of the views since the last one that the client knows."""
    servers: Annotated[tuple[ListedServer, ...], Meta(max_length=1 << 12)]

    def encode(self) -> bytes:
        """Return the list as JSON."""
        return msgspec.json.encode(self)


_lists = msgspec.json.Decoder(MemberList)


def member_list(membership: Membership, since: int = 0) -> MemberList:
    """Return the member list for a client that knows the view of epoch ``since``."""
    known = {membership.id: ListedServer(membership.announcement, membership.keys.endorsement)}
    for j, announcement in membership.announcements.items():
        known[j] = ListedServer(announcement, membership.endorsements.get(j, b""))
    return MemberList(membership.chain.since(since), tuple(known[j] for j in sorted(known)))


class FollowedMembers:
    """The members as a client knows them: it follows the lists that servers send."""

    def __init__(self, first: View, keys: Keys) -> None:
        """``first`` is the first view; ``keys`` verifies, and signs nothing."""
        self.view, self._keys = first, keys
        self._known: dict[int, Announcement] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the last view that is known here; a client tells it when it connects."""
        return self.view.epoch

    @property
    def addresses(self) -> Mapping[int, str]:
        """Per server with clients that has joined, its address; empty if only the client's folder has it."""
        joined = [j for j in self.view.ring if j in self.view.voters]
        return {j: self._known[j].clients if j in self._known else "" for j in joined}

    def sealing_key(self, server: int) -> str | None:
        """Return the public key for the seeds of masks that a server has announced, if it is known."""
        return self._known[server].sealing or None if server in self._known else None

    def lineage(self, server: int) -> str | None:
        """Return the lineage of a server, if it is known."""
        return self._known[server].lineage if server in self._known else None

    def update(self, data: bytes) -> bool:
        """Follow a list that a server has sent; return whether anything has changed.

        Raises:
            Rejection: the list is malformed, or a view in it is not proven. Nothing has changed.

        """
        try:
            said = _lists.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Rejection("malformed", f"not a member list: {error}") from None
        proofs = ViewChain(self._keys).follow(self.view, said.proofs, {})
        before = self.view, self.addresses
        if proofs:
            self.view = proofs[-1].view
        for listed in said.servers:
            self._note(listed)
        self._known = {j: each for j, each in self._known.items() if self._is_member(each)}
        return before != (self.view, self.addresses)

    def _is_member(self, said: Announcement) -> bool:
        member = self.view.members.get(said.server)
        return member is not None and member.lineage in (ANYBODY, said.lineage)

    def _note(self, listed: ListedServer) -> None:
        """Note what a server announces, unless a later process of it is known or it is not proven."""
        said, known = listed.announcement, self._known.get(listed.announcement.server)
        if not self._is_member(said) or said.certificate in self.view.revoked:
            return
        if known is not None and known.lineage == said.lineage and known.incarnation >= said.incarnation:
            return
        unproven = self.view.members[said.server].lineage == ANYBODY
        if known is not None and unproven and known.lineage != said.lineage:
            return  # a member of the first view has one lineage
        if said.genuine(self._keys) and (
            not unproven or self._keys.endorsed(said.server, said.lineage, listed.endorsement)
        ):
            self._known[said.server] = said
