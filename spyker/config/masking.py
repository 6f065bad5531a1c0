"""The settings of secure aggregation that follow from a scenario."""

from __future__ import annotations

from collections.abc import Callable

from spyker.config.scenario import Scenario
from spyker.privacy.masking import MaskingSetup
from spyker.privacy.seals import Opener


def masking_setup(scenario: Scenario, opener: Opener | Callable[[int], Opener] | None) -> MaskingSetup | None:
    """Return the settings for servers; ``None`` if clients do not mask their updates.

    Args:
        scenario: the scenario.
        opener: what this server opens seals with, or a function that returns it for each server.

    """
    if not scenario.privacy.masking or opener is None:
        return None
    function: Callable[[int], Opener] = opener if callable(opener) else lambda server: opener
    helpers = frozenset(scenario.placement().helpers)
    return MaskingSetup(
        scenario.privacy.threshold, scenario.mask_helpers(), helpers, function, scenario.privacy.masks_scores
    )
