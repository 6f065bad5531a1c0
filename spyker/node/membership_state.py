"""The part of a checkpoint that concerns the membership."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from spyker.node.control_messages import Announcement, ProcessIncarnation, to_json

if TYPE_CHECKING:
    from spyker.node.membership import Membership


def membership_numbers(membership: Membership) -> dict[str, Any]:
    """Return what a checkpoint holds of the membership."""
    membership.paxos.changed = False
    announcements, met = membership.announcements, membership.met_processes
    return {
        "paxos": membership.paxos.numbers(),
        "checkpoints": membership.saves,
        "lineages": {str(j): lineage for j, lineage in membership.lineages.items()},
        "announcements": [to_json(announcements[j]).decode() for j in sorted(announcements)],
        "proofs": membership.chain.numbers(),
        "known_checkpoints": {str(j): saves for j, saves in membership.known_checkpoints.items()},
        "met": {str(j): [life.incarnation, life.nonce] for j, life in met.items()},
    }


def restore_membership(membership: Membership, numbers: Mapping[str, Any]) -> None:
    """Restore the membership from a checkpoint."""
    membership.paxos.restore(numbers["paxos"])
    membership.saves = membership.saved = numbers["checkpoints"]
    membership.lineages = {int(j): lineage for j, lineage in numbers["lineages"].items()}
    announcements = [msgspec.json.decode(each, type=Announcement) for each in numbers["announcements"]]
    membership.announcements = {each.server: each for each in announcements}
    membership.chain.restore(numbers["proofs"])
    membership.known_checkpoints = {int(j): saves for j, saves in numbers["known_checkpoints"].items()}
    membership.met_processes = {int(j): ProcessIncarnation(*life) for j, life in numbers["met"].items()}
