"""Read-only summaries of a node, for operators and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spyker.node.views import NOBODY

if TYPE_CHECKING:
    from spyker.node.node_state import NodeState


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One server as another one sees it."""

    server: int
    state: str
    """``here`` (the server that was asked), ``there``, ``suspected``, or ``expected`` (announced, not yet joined).

    ``cannot save`` replaces ``there``, and ``here, cannot save`` replaces ``here``, if no checkpoint reaches its disk.
    """
    address: str
    lineage: str
    silent: float
    """Seconds since it last responded."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The state of one server process."""

    server: int
    started: bool
    draining: bool
    epoch: int
    has_token: bool
    members: tuple[MemberStatus, ...]
    pending_proposals: int
    """Membership changes that were requested and not decided."""
    connected_clients: int
    waiting: int
    """Entries in the inbox."""
    saved_version: int
    """The model's version in the last checkpoint on disk."""
    cannot_save: bool
    """Whether no checkpoint has reached the disk for ``suspect-after``."""
    unsaved_seconds: float
    """Age in seconds of the oldest checkpoint attempt that is not on disk; 0 if all are saved."""


def node_status(node: NodeState, now: float) -> NodeStatus:
    """Return the status of a node at a time on its driver's clock."""
    membership = node.membership
    members = []
    cannot_save = membership.save_monitor.cannot_save(now)
    for j, member in sorted(node.view.members.items()):
        here = j == node.id
        if here:
            state = "here, cannot save" if cannot_save else "here"
        elif member.lineage == NOBODY:
            state = "expected"
        else:
            state = "suspected" if j in membership.suspected else "there"
            state = "cannot save" if j in membership.cannot_save else state
        lineage = node.options.lineage if here else membership.lineages.get(j, member.lineage)
        silent = 0.0 if here else membership.failure_detector.silent_for(j, now)
        members.append(MemberStatus(j, state, member.address, lineage, silent))
    return NodeStatus(
        server=node.id,
        started=node.server is not None,
        draining=node.draining,
        epoch=node.view.epoch,
        has_token=node.server is not None and node.server.has_token,
        members=tuple(members),
        pending_proposals=len(membership.proposals),
        connected_clients=len(node.sessions),
        waiting=node.waiting,
        saved_version=node.saved_version,
        cannot_save=cannot_save,
        unsaved_seconds=membership.save_monitor.unsaved_for(now),
    )
