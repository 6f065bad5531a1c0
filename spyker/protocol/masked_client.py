"""The client's side of secure aggregation: it clips, encodes and masks its updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from spyker.privacy.fixed_point import Residues, encode
from spyker.privacy.masked_scores import LARGEST, MOST_SCORES, WORDS, encode_scores
from spyker.privacy.masking import BELOW, BELOW_SCALE, EXTRAS, NORM
from spyker.privacy.seals import Sealer, SealError, Statement
from spyker.protocol.buffers import parameters_only
from spyker.protocol.client import Client
from spyker.protocol.facts import EXAMPLES
from spyker.protocol.messages import Action, MaskedModel, MaskedUpdate, ServerMessage, ToServer
from spyker.vectors import Vector, is_finite, length


class MaskingClient(Client):
    """A client that sends the masked difference between the trained and the received model.

    The server learns the sum of several differences and no single one. The mask's seed is sealed for a helper, another
    server (:mod:`spyker.privacy.masking`).
    """

    __slots__ = ("_buffers", "_metrics", "_reports", "_sealer", "_size")
    receives: ClassVar[tuple[type[ServerMessage], ...]] = (MaskedModel,)
    difference = True

    def __init__(
        self,
        id: int,
        server: int,
        sealer: Sealer,
        size: int,
        buffers: int,
        *,
        reports: bool = False,
        metrics: Sequence[str] = (),
    ) -> None:
        """Create the client.

        Args:
            id: its number.
            server: the number of its server.
            sealer: draws and seals seeds.
            size: its number of examples.
            buffers: number of buffers at the end of the model.
            reports: whether it sends metrics and evaluations, which are not masked.
            metrics: names of the scores that ride along, masked, in the order of the servers.

        """
        super().__init__(id, server)
        self._sealer, self._size, self._buffers, self._reports = sealer, size, buffers, reports
        self._metrics = tuple(metrics)[:MOST_SCORES]

    @property
    def ready(self) -> bool:
        """Whether the key of the helper is known."""
        return not isinstance(self.received, MaskedModel) or self._sealer.knows(self.received.helper)

    def trained(
        self,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> list[Action]:
        """The end of a training: send the masked difference."""
        received, self.received = self.received, None
        if not isinstance(received, MaskedModel):
            raise RuntimeError(f"client {self.id}: trained() was called without a model to mask the update of")
        if received.helper == self.server:  # which could read the seed, and subtract the mask
            raise SealError(f"server {self.server} names itself as its helper")
        self._size = examples or self._size
        weight = min(1.0, self._size / received.largest)
        numbers = self.id, self.server, received.helper, self._sealer.life, self.step
        evaluated, scores, words = self._encode_scores(evaluation, received)
        statement = Statement(*numbers, weight, received.largest, received.scale, received.bound, evaluated)
        seal, mask = self._sealer.seal(statement, weights.size + EXTRAS + words.size)
        masked, extra = encode_update(weights - received.weights, weight, received, self._buffers)
        extra = np.concatenate([extra, words])
        np.add(masked, mask[: weights.size], out=masked)
        np.add(extra, mask[weights.size :], out=extra)
        update = MaskedUpdate(
            masked,
            extra,
            seal,
            received.age,
            received.version,
            received.helper,
            received.scale,
            received.bound,
            weight,
            received.largest,
            evaluated,
            scores,
            metrics if self._reports else None,
            evaluation if self._reports else None,
        )
        return [ToServer(self.server, update)]

    def _encode_scores(self, evaluation: Mapping[str, float] | None, task: MaskedModel) -> tuple[float, int, Residues]:
        """Return the weight of an evaluation, which of its scores are there, and the weighted scores as words."""
        names = self._metrics if len(self._metrics) == task.scores else ()
        values = [(evaluation or {}).get(name, math.nan) for name in names]
        there = [abs(value) <= LARGEST for value in values]
        weight = min(1.0, (evaluation or {}).get(EXAMPLES, 0.0) / task.largest)
        if not any(there) or not weight > 0:
            return 0.0, 0, np.zeros(task.scores * WORDS, np.uint32)
        words = encode_scores([weight * value if known else 0.0 for value, known in zip(values, there, strict=True)])
        return weight, sum(1 << place for place, known in enumerate(there) if known), words


def encode_update(difference: Vector, weight: float, task: MaskedModel, buffers: int) -> tuple[Residues, Residues]:
    """Clip a difference, and return it and the further numbers in fixed point, not masked yet.

    Buffers have a norm of their own: they are clipped to the same bound, but do not shorten the parameters.
    """
    if not is_finite(difference):  # diverged: it counts as a long update that moves nothing
        difference, norm = np.zeros_like(difference), math.inf
    else:
        norm = length(parameters_only(difference, buffers))
    coded = np.concatenate(
        [
            encode(part, weight * min(1.0, task.bound / max(length(part), 1e-30)), task.scale)
            for part in (parameters_only(difference, buffers), difference[difference.size - buffers :])
        ]
    )
    extra = np.zeros(EXTRAS, np.uint32)
    extra[NORM] = encode(np.array([min(norm, task.bound)], np.float32), weight, task.scale)[0]
    extra[BELOW] = (1 << BELOW_SCALE) if norm <= task.median else 0
    return coded, extra
