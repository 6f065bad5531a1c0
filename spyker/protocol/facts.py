"""Facts that nodes record about themselves. A run record is a stream of facts, each with its time.

The driver adds what a node cannot know: the time ``t`` and, for an update, the length of the server's ``queue``.
An algorithm outside this package declares its own facts as subclasses of :class:`Fact`, as those below are declared:

    @dataclass(frozen=True, slots=True)
    class Clipped(Fact):
        kind: ClassVar[str] = "clipped"
        server: int
        norm: float
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

EXAMPLES = "examples"  # the number of test examples, among the scores of a client's evaluation
KINDS: dict[str, type[Fact]] = {}
"""All declared fact classes, by their ``kind`` in a record."""


class Fact:
    """An event in a run. Subclasses are dataclasses of numbers, strings, and lists and dictionaries of these."""

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Register the kind. ``dataclass(slots=True)`` creates the class twice; the second class replaces the first."""
        kind = cls.__dict__.get("kind")
        if "kind" not in cls.__annotations__ and kind is None:
            raise TypeError(f"{cls.__name__}: kind is missing. Declare it: kind: ClassVar[str] = ...")
        if taken := {"t", "queue"} & cls.__annotations__.keys():
            raise TypeError(f"{cls.__name__}.{min(taken)}: the name is reserved for the driver. Choose another name")
        if isinstance(kind, str):
            other = KINDS.get(kind, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(
                    f"{cls.__name__}.kind: {kind!r} is not allowed: {other.__module__}.{other.__qualname__} has it. "
                    f"Choose another kind"
                )
            KINDS[kind] = cls


@dataclass(frozen=True, slots=True)
class UpdateApplied(Fact):
    """``server`` applied an update of ``client``. ``rate`` is the learning rate of the client's next task."""

    kind: ClassVar[str] = "update"
    server: int
    client: int
    staleness: float
    weight: float
    age: float
    version: int
    rate: float


@dataclass(frozen=True, slots=True)
class AgeAnnounced(Fact):
    """``server`` announced its age to all other servers."""

    kind: ClassVar[str] = "announce"
    server: int
    age: float


@dataclass(frozen=True, slots=True)
class TokenArrived(Fact):
    """The token reached ``server``, which may now start synchronisation ``bid``."""

    kind: ClassVar[str] = "token"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class SyncStarted(Fact):
    """``server`` started synchronisation ``bid``."""

    kind: ClassVar[str] = "sync"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class EarlySyncStarted(Fact):
    """``server`` started synchronisation ``bid`` without the token; others may have started the same one."""

    kind: ClassVar[str] = "early-sync"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class Merged(Fact):
    """``server`` merged the model of ``peer`` with this ``weight``; ``age`` is the server's age afterwards."""

    kind: ClassVar[str] = "merge"
    server: int
    peer: int
    bid: int
    weight: float
    age: float


@dataclass(frozen=True, slots=True)
class RoundEnded(Fact):
    """``server`` averaged its clients' updates and ended round number ``round``, counted from 1."""

    kind: ClassVar[str] = "round"
    server: int
    round: int


@dataclass(frozen=True, slots=True)
class CloudRoundEnded(Fact):
    """HierFAVG's cloud averaged the models of its edges for the ``round``-th time."""

    kind: ClassVar[str] = "cloud-round"
    round: int


@dataclass(frozen=True, slots=True)
class PeerSuspected(Fact):
    """``server`` does not wait for ``peer``, which has not answered in time, has ended, or says that it cannot save."""

    kind: ClassVar[str] = "peer-suspected"
    server: int
    peer: int


@dataclass(frozen=True, slots=True)
class PeerTrusted(Fact):
    """``peer`` answers ``server`` again and can save. It is no longer suspected."""

    kind: ClassVar[str] = "peer-trusted"
    server: int
    peer: int


@dataclass(frozen=True, slots=True)
class SavingFailed(Fact):
    """No checkpoint of ``server`` has reached its disk for ``suspect-after``. The others continue without it."""

    kind: ClassVar[str] = "saving-failed"
    server: int


@dataclass(frozen=True, slots=True)
class SavingResumed(Fact):
    """A checkpoint of ``server`` is on disk again."""

    kind: ClassVar[str] = "saving-resumed"
    server: int


@dataclass(frozen=True, slots=True)
class EpochStarted(Fact):
    """``server`` entered epoch ``epoch``, with these ``members`` and a new token."""

    kind: ClassVar[str] = "epoch"
    server: int
    epoch: int
    members: list[int]


@dataclass(frozen=True, slots=True)
class ClientReported(Fact):
    """What ``client`` reported with the update ``version``: the number of ``examples``, if any, and ``metrics``."""

    kind: ClassVar[str] = "report"
    server: int
    client: int
    version: int
    examples: int | None
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class ClientEvaluated(Fact):
    """``client`` evaluated a model of ``server`` on ``examples`` of its own; ``scores`` holds its metrics by name."""

    kind: ClassVar[str] = "client-evaluation"
    server: int
    client: int
    examples: int
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class SumEvaluated(Fact):
    """What ``clients`` clients evaluated together, with masked scores: ``scores`` holds the weighted means by name.

    The weights are numbers of test examples, ``examples`` in total, each limited to the number whose updates have the
    weight 1. An update that counts by half counts so here, too.
    """

    kind: ClassVar[str] = "sum-evaluation"
    server: int
    clients: int
    examples: int
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class RateHalved(Fact):
    """The median ``norm`` of the first updates was too large: ``server`` repeats them with this learning ``rate``."""

    kind: ClassVar[str] = "rate-halved"
    server: int
    norm: float
    rate: float


@dataclass(frozen=True, slots=True)
class RateRestored(Fact):
    """Lower rates did not help the clients that diverged, so ``server`` uses the full learning ``rate`` again."""

    kind: ClassVar[str] = "rate-restored"
    server: int
    rate: float


@dataclass(frozen=True, slots=True)
class ModelRestored(Fact):
    """Training diverged: the median update norm ``norm`` exceeds many times ``good_norm``, that of the last good model.

    ``server`` restored that model and continues with this ``gain``.
    """

    kind: ClassVar[str] = "model-restored"
    server: int
    norm: float
    good_norm: float
    gain: float


@dataclass(frozen=True, slots=True)
class UpdateClipped(Fact):
    """``server`` clipped an update of ``client`` from ``norm`` to ``limit``."""

    kind: ClassVar[str] = "update-clipped"
    server: int
    client: int
    norm: float
    limit: float


@dataclass(frozen=True, slots=True)
class UpdateRejected(Fact):
    """``server`` rejected an update of ``client``: its ``norm`` is far above the clipping ``limit``."""

    kind: ClassVar[str] = "update-rejected"
    server: int
    client: int
    norm: float
    limit: float


@dataclass(frozen=True, slots=True)
class NoiseAdded(Fact):
    """``server`` released its sum number ``number`` with noise, for differential privacy of whole clients.

    The sum is of updates of ``clients`` clients, and ``deviation`` is the standard deviation of the noise in a
    coordinate. One of these clients is in ``participations`` sums of this server, and none in more; ``epsilon`` is what
    that costs it.
    """

    kind: ClassVar[str] = "noise-added"
    server: int
    number: int
    clients: int
    deviation: float
    participations: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class ServerDuplicated(Fact):
    """``server`` found two processes that act for server ``peer``: what identifies it is in use in two places.

    ``reason`` is ``copied state`` if both have its key, or ``another key`` if one has only its certificate. At most one
    such fact per minute, server and reason is written.
    """

    kind: ClassVar[str] = "server-duplicated"
    server: int
    peer: int
    reason: str


@dataclass(frozen=True, slots=True)
class ClientAtTwoServers(Fact):
    """``client`` is connected to ``server`` and to ``peer`` at the same time: its key is in use in two places.

    At most one such fact per minute, client and other server is written.
    """

    kind: ClassVar[str] = "client-at-two-servers"
    server: int
    client: int
    peer: int


@dataclass(frozen=True, slots=True)
class LedgerCopied(Fact):
    """``server`` rejected an update of ``client``: its number in the privacy ledger, ``booked``, was used before."""

    kind: ClassVar[str] = "ledger-copied"
    server: int
    client: int
    booked: int


@dataclass(frozen=True, slots=True)
class UpdateDropped(Fact):
    """``server`` dropped an update of ``client``, which sends many times more updates than the median client."""

    kind: ClassVar[str] = "update-dropped"
    server: int
    client: int


@dataclass(frozen=True, slots=True)
class ClientQuarantined(Fact):
    """``server`` excludes ``client`` for ``seconds``.

    ``reason`` is ``norm`` for rejected updates, ``sign-flipped``, ``seal`` if no helper can open the client's masks, or
    ``spoilt-sums`` if sums of masked updates were too large whenever the client's was in them.
    """

    kind: ClassVar[str] = "client-quarantined"
    server: int
    client: int
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SumOpened(Fact):
    """``helper`` opened the sum of the masked updates of ``clients`` clients for ``server``."""

    kind: ClassVar[str] = "sum-opened"
    server: int
    helper: int
    clients: int


@dataclass(frozen=True, slots=True)
class SumDiscarded(Fact):
    """``server`` discarded the masked updates of ``clients`` clients: ``helper`` could not or would not open them."""

    kind: ClassVar[str] = "sum-discarded"
    server: int
    helper: int
    clients: int
    reason: str
