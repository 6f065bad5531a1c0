"""Client-level differential privacy in servers: noise on the sum of a round's updates, masked or not.

:mod:`spyker.privacy.client_noise` explains why that protects a client. An algorithm derives from :class:`NoisyServer`
and, while :attr:`~NoisyServer.sums_updates` is true, calls

- :meth:`~NoisyServer.add_to_sum` with each update, masked or not,
- :meth:`~NoisyServer.sum_updates` at the end of a round,

and implements ``summed``, which is called with the sum: opened if updates are masked, and with noise if clients are
protected. It sees no single update, and divides by :meth:`~NoisyServer.whole_weight`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spyker.privacy.client_noise import NoisySums, clip_target
from spyker.privacy.masking import LEVELS, MaskedSum, Terms
from spyker.protocol.facts import NoiseAdded
from spyker.protocol.masked_server import MaskedServer
from spyker.protocol.messages import Action, ClientMessage, Join, MaskedUpdate, PeerMessage, Update
from spyker.protocol.server import Setup
from spyker.vectors import Vector, length

FAINTEST = 0.1  # share of a noisy mean's norm that is taken for signal, at least


class NoisyServer(MaskedServer):
    """A server that can add noise to sums of updates, which clients may mask."""

    supports_client_privacy = True
    noisy_sums: NoisySums | None = (
        None  # an attribute of the instance, and so of its state, only if clients are protected
    )

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        privacy = self._client_privacy = setup.client_privacy
        if privacy is None:
            return
        self.noisy_sums = NoisySums(id, setup.weights.size, privacy)
        self._expected = privacy.expected.get(id) or math.ceil(setup.clients / setup.servers)
        if not self.masks:  # what it compares are norms and directions of single updates
            self.update_filter.on = False

    # --- For algorithms ----------------------------------------------------------------------------------------------

    @property
    def sums_updates(self) -> bool:
        """Whether the algorithm may use sums of updates only."""
        return self.masks or self.noisy_sums is not None

    @property
    def cohort(self) -> float:
        """Number of clients that a round is planned to have."""
        return self._expected

    def whole_weight(self, weight: float) -> float:
        """Return what a sum is divided by: ``weight``, or a public constant if clients are protected."""
        return weight if self.noisy_sums is None else self.cohort

    def add_to_sum(self, client: int, update: Update | MaskedUpdate, multiple: float = 1.0) -> float:
        """Add an update to the sum of the round, and return the multiple that it counts with.

        If clients are protected, it is 0 for a second update of a client in a round, and for a spent budget.
        """
        noisy = self.noisy_sums
        if noisy is not None and not noisy.admits(client):
            return 0.0
        if isinstance(update, MaskedUpdate):
            counted = self.add_masked(client, update, multiple) / LEVELS
        else:
            assert noisy is not None
            received = 0.0 if self.client.difference else self.weights.snapshot()
            noisy.add(update.weights - received, multiple)
            counted = multiple
        if noisy is not None and counted:
            noisy.count(client)
        return counted

    def sum_updates(self) -> None:
        """End the sum of a round; :meth:`summed` follows, perhaps at once."""
        if self.noisy_sums is not None and not self.masks:
            clients = tuple(self.noisy_sums.close())
            self.summed(self._with_noise(MaskedSum(None, clients=clients)))
            return
        if self.noisy_sums is not None:
            self.noisy_sums.close()
        self.open_sums()

    def signal(self, mean: Vector) -> float:
        """Return the norm of a round's mean update, without what its noise adds on average."""
        norm = length(mean)
        if self.noisy_sums is None:
            return norm
        noise = mean.size * (self.noisy_sums.deviation / self.cohort) ** 2
        return math.sqrt(max(norm**2 - noise, (FAINTEST * norm) ** 2))

    # --- Processing --------------------------------------------------------------------------------------------------

    def handle(self, sender: int, message: ClientMessage | PeerMessage) -> list[Action]:
        """Process a message and return the actions. Where clients are protected, all have the same weight."""
        if self.noisy_sums is not None and isinstance(message, Join):
            message = Join(1)
        return super().handle(sender, message)

    def mask_terms(self) -> Terms:
        """Return what clients are told about masks: with a fixed bound and equal weights where they are protected."""
        sums, privacy = self.masked_sums, self._client_privacy
        if privacy is None:
            return super().mask_terms()
        assert sums is not None
        scale = sums.scale_of(privacy.clip_norm, len(self.masked_clients))
        size = self.weights.snapshot().size
        bound = max(clip_target(privacy.clip_norm, size, math.ldexp(1.0, -scale)), math.ldexp(1.0, -scale - 1))
        return Terms(self.helper(), scale, bound, sums.median, 1.0)

    def opened_sum(self, total: MaskedSum) -> None:
        """Add noise to an opened sum; nothing else of it is used."""
        if self.noisy_sums is None:
            super().opened_sum(total)
        else:
            self.summed(self._with_noise(total))

    def _with_noise(self, total: MaskedSum) -> MaskedSum:
        """Return a sum with noise: of the clients in it, or opened ones."""
        noisy, privacy = self.noisy_sums, self._client_privacy
        assert noisy is not None
        assert privacy is not None
        if not total.clients:
            return MaskedSum(None)
        opened = total.vector
        released = noisy.release(None if opened is None else opened.astype("float64"))
        most = max(noisy.participations.get(k, 0) for k in total.clients)
        about = noisy.released, len(total.clients), noisy.deviation, most, noisy.epsilon(most)
        self.record(NoiseAdded(self.id, *about))
        norms = privacy.clip_norm * self.cohort  # a bound; what they were is not used
        return MaskedSum(released, self.cohort, norms, 0.5, total.clients, math.inf)
