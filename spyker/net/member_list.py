"""The member list on its way to clients: a server's side, and what a client verifies it with."""

from __future__ import annotations

from typing import Any

from spyker.config.scenario import Scenario
from spyker.net import spyker_pb2 as pb
from spyker.net.certificates import CA
from spyker.net.channels import read_file
from spyker.net.client_folder import ClientFolder
from spyker.net.server_config import learning_digest
from spyker.node.ed25519_keys import Ed25519Keys, federation_id
from spyker.node.member_list import FollowedMembers, member_list
from spyker.node.membership import Membership
from spyker.node.views import first_view


class ListedMembers:
    """What one client that asked for the member list was sent."""

    def __init__(self, epoch: int) -> None:
        """``epoch`` is that of the last view that the client knows."""
        self.epoch = epoch
        self._sent: Any = None

    def news(self, membership: Membership) -> bytes | None:
        """Return the frame to send next, or ``None`` if the client knows everything."""
        state = membership.view, tuple(membership.announcements.values())
        if state == self._sent and self.epoch >= membership.view.epoch:
            return None
        listed = member_list(membership, self.epoch)
        self._sent = state
        self.epoch = listed.proofs[-1].view.epoch if listed.proofs else membership.view.epoch
        return pb.Frame(member_list=pb.MemberList(json=listed.encode())).SerializeToString()


def members_of(folder: ClientFolder) -> FollowedMembers:
    """Return what a client follows member lists with, from the folder that it was created with."""
    return members_from(folder.scenario, read_file(folder.path / CA, str(folder.path / CA)))


def members_from(scenario: Scenario, authorities: bytes) -> FollowedMembers:
    """Return what follows member lists of a federation, given the certificates of its authorities as PEM."""
    places = scenario.placement()
    keys = Ed25519Keys(b"", federation_id(authorities, learning_digest(scenario)), authorities)
    return FollowedMembers(first_view(places.learners, places.servers), keys)
