"""Whatever is refused has a reason."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - an outcome, not a fault of ours
    """What arrived is refused, counted under ``reason``, and changes nothing."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class RolledBack(Refusal):
    """One of two servers has an older state than the other knows of. It does not heal: later numbers only hide it."""

    def __init__(self, detail: str) -> None:
        super().__init__("lineage", detail)
