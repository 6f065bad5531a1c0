"""The section ``[privacy]`` of a scenario: what clients do so that their updates disclose little of their data."""

from __future__ import annotations

from dataclasses import dataclass

from spyker.errors import UsageError
from spyker.parameters import parameter

NONE, EXAMPLE, CLIENT = "none", "example", "client"


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """Differential privacy of the clients' data: the keys of ``[privacy]``."""

    unit: str = parameter(
        NONE,
        "what differential privacy protects: example, every single example of a client, by DP-SGD in its training; "
        "client, all of a client's data, by noise that its server adds to the sum of a round's updates; or none",
        choices=(NONE, EXAMPLE, CLIENT),
    )
    epsilon: float | None = parameter(
        None,
        "ε: privacy budget of each client; a client that has spent it leaves; unset: no limit but trainings",
        above=0,
    )
    delta: float = parameter(1e-5, "δ: probability with which ε may not hold", above=0, at_most=0.1)
    noise_multiplier: float | None = parameter(
        None,
        "standard deviation of the noise as a multiple of clip-norm; unset: computed from epsilon, delta and trainings",
        above=0,
    )
    clip_norm: float = parameter(
        1.0, "clip the norm of each example's gradient, or with unit = client of each client's update, to this", above=0
    )
    trainings: int | None = parameter(
        None,
        "planned number of trainings of a client, after which it leaves; unset: as many as epsilon allows",
        at_least=1,
    )
    masking: bool = parameter(
        False,
        "secure aggregation: clients mask their updates, and a server learns sums of several updates only; another "
        "server helps to open them",
    )
    threshold: int = parameter(3, "with masking: fewest clients whose sum is opened", at_least=2)
    helpers: tuple[int, ...] | None = parameter(
        None,
        "with masking: regions of servers that do nothing but open sums, one for each number; unset: the servers of "
        "other regions open them and, if there is a single server, one helper in its region",
        at_least=0,
    )
    report_metrics: bool = parameter(
        False,
        "true: with a unit or masking, clients still send training losses, metrics and evaluations, which are "
        "computed from private data, not covered by ε and not masked; with masking alone, evaluations are sent masked "
        "without it",
    )

    @property
    def per_example(self) -> bool:
        """Whether clients protect each of their examples."""
        return self.unit == EXAMPLE

    @property
    def per_client(self) -> bool:
        """Whether servers protect each of their clients."""
        return self.unit == CLIENT

    @property
    def has_budget(self) -> bool:
        """Whether trainings cost privacy budget."""
        return self.unit != NONE

    @property
    def masks_scores(self) -> bool:
        """Whether the scores of clients' evaluations ride along with masked updates."""
        return self.masking and self.unit == NONE and not self.report_metrics

    @property
    def hides_metrics(self) -> bool:
        """Whether clients send no losses, metrics and evaluations."""
        return (self.has_budget or self.masking) and not self.report_metrics

    def check(self) -> None:
        """Raise a ``UsageError`` unless the settings determine the noise and the end of a client's budget."""
        if not self.has_budget:
            return
        if self.noise_multiplier is None and (self.epsilon is None or self.trainings is None):
            missing = "epsilon" if self.epsilon is None else "trainings"
            raise UsageError(
                f"privacy.{missing}",
                "is missing: the noise is computed from epsilon, delta and trainings",
                "Set it, or set privacy.noise-multiplier",
            )
        if self.epsilon is None and self.trainings is None:
            raise UsageError(
                "privacy.epsilon", "is missing: a client would train without end", "Set it, or set privacy.trainings"
            )
