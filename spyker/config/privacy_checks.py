"""Checks of ``[privacy]`` against the algorithm and the world of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spyker.compression.block_codec import NONE
from spyker.config.sections import show
from spyker.errors import UsageError

if TYPE_CHECKING:
    from spyker.config.scenario import Scenario


def check_masking(scenario: Scenario) -> None:
    """Raise a ``UsageError`` if clients are to mask their updates and no sum could be opened."""
    privacy, regions = scenario.privacy, scenario.world.regions
    if not privacy.masking:
        return
    if not scenario.chosen.supports_masking:
        raise UsageError(
            "privacy.masking",
            f"true is not allowed: {scenario.algorithm} applies each update by itself, so a server must see it",
            "Use an algorithm with rounds or a buffer: stride, fedavg, hierfavg or fedbuff",
        )
    if scenario.compression.updates != NONE:
        raise UsageError(
            "compression.updates",
            f"{show(scenario.compression.updates)} is not allowed with privacy.masking: masks hide all bits of a "
            "number, so rounded numbers take no fewer bytes",
            'Write "none", or switch masking off',
        )
    unknown = [region for region in privacy.helpers or () if region >= len(regions)]
    if unknown:
        raise UsageError(
            "privacy.helpers", f"{unknown[0]} is not allowed", f"Regions are numbered from 0 to {len(regions) - 1}"
        )
    if not all(scenario.mask_helpers().values()):
        raise UsageError(
            "privacy.helpers",
            "is missing: there is no other server to open sums",
            "Write the region of one, such as [0]",
        )
    places = scenario.placement()
    fewest = min(len(places.clients_of(i)) for i in places.learners)
    if fewest < privacy.threshold:
        raise UsageError(
            "privacy.threshold",
            f"{privacy.threshold} is not allowed: a server has {fewest} clients",
            "Use fewer regions or more clients, or lower it",
        )


def check_client_privacy(scenario: Scenario) -> None:
    """Raise a ``UsageError`` if servers are to add noise to sums, and the algorithm has none."""
    if scenario.privacy.per_client and not scenario.chosen.supports_client_privacy:
        raise UsageError(
            "privacy.unit",
            f"client is not allowed: {scenario.algorithm} applies each update by itself, so there is no sum of many "
            "updates to add noise to",
            "Use an algorithm with rounds or a buffer: stride, fedavg, hierfavg or fedbuff",
        )
