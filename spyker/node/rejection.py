"""Rejections: each has a reason, which is logged and counted."""

from __future__ import annotations

from typing import Any

REMEDY = "`spyker members replace` gives its place to a server that begins anew, with `spyker serve --join`"
RETURN = (
    "`spyker members add` takes it in again, as a server that begins anew with `spyker serve --join` and a certificate "
    "that was not revoked"
)


class Rejection(Exception):  # noqa: N818 - an outcome, not a fault of ours
    """A message or connection was rejected, for this ``reason``. The state has not changed."""

    def __init__(self, reason: str, detail: str = "", evidence: Any = None) -> None:
        """``evidence`` is a control message that proves to the other server what follows for it."""
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.evidence = reason, detail, evidence


class RolledBack(Rejection):
    """The other server has an older state than is known here. It restarts as a new member when it learns of that."""

    def __init__(self, detail: str) -> None:
        super().__init__("rolled-back", detail)
