"""The section ``[compression]`` of a scenario: how models and updates are coded in messages."""

from __future__ import annotations

from dataclasses import dataclass

from spyker.compression.block_codec import CODES, FP16, INT8, NONE
from spyker.parameters import parameter

EXCHANGED = (NONE, FP16, INT8)  # int4 costs accuracy where whole models are coded, not differences


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """Codes of the vectors in messages: the keys of ``[compression]``."""

    updates: str = parameter(
        NONE,
        "code of the updates that clients send: none (float32), fp16, int8 or int4; the rounding error of an update is "
        "added to the client's next one",
        choices=CODES,
    )

    models: str = parameter(
        NONE,
        "code of the models that servers send to clients, as differences from a model that the clients have: none, "
        "fp16, int8 or int4",
        choices=CODES,
    )

    exchanges: str = parameter(
        NONE,
        "code of the models and momenta that servers send to each other: none, fp16 or int8",
        choices=EXCHANGED,
    )

    @property
    def with_clients(self) -> dict[str, str]:
        """The codes that a client and its server must share, except ``none``."""
        codes = {"updates": self.updates, "models": self.models}
        return {key: code for key, code in codes.items() if code != NONE}

    @property
    def on(self) -> bool:
        """Whether any vector is coded."""
        return bool(self.with_clients) or self.exchanges != NONE
