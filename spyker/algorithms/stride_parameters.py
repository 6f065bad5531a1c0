"""The parameters of Stride."""

from __future__ import annotations

from dataclasses import dataclass

from spyker.parameters import parameter


@dataclass(frozen=True, slots=True)
class StrideParameters:
    """The parameters of Stride."""

    momentum: float = parameter(0.9, "μ: the server momentum", at_least=0, at_most=0.999)
    gain: float = parameter(2.0, "c: the server's step along the mean update and the momentum", above=0)
    clip: float = parameter(
        0.6, "clip update norms to this multiple of their running median; 0: no clipping", at_least=0
    )
    patience: float = parameter(
        1.25, "a round ends after this multiple of the time that the faster half of the clients took", at_least=1
    )
    divergence_threshold: float = parameter(
        1.0,
        "repeat the first round with half the rate if the median norm of its updates exceeds this multiple of the "
        "model's norm; 0: never",
        at_least=0,
    )
    safe: bool = parameter(
        True,
        "limit steps by the norms and the agreement of updates; false: never, for comparison. It is faster in few "
        "worlds, and diverges in many",
    )
    exchange_rounds: int = parameter(2, "rounds of the token's holder between two exchanges", at_least=1)
    tree_threshold: int = parameter(8, "with more servers than this, exchanges use a tree", at_least=1)
