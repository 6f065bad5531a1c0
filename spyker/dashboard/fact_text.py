"""Descriptions of facts for the event log. Unknown kinds are shown with all their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spyker.dashboard.topology import RunTopology
from spyker.protocol.facts import (
    AgeAnnounced,
    ClientAtTwoServers,
    ClientEvaluated,
    ClientQuarantined,
    ClientReported,
    CloudRoundEnded,
    EarlySyncStarted,
    LedgerCopied,
    Merged,
    ModelRestored,
    NoiseAdded,
    PeerSuspected,
    PeerTrusted,
    RoundEnded,
    SavingFailed,
    SavingResumed,
    ServerDuplicated,
    SumDiscarded,
    SumEvaluated,
    SumOpened,
    SyncStarted,
    TokenArrived,
    UpdateApplied,
    UpdateDropped,
    UpdateRejected,
)
from spyker.records import (
    ClientFailed,
    Evaluated,
    EvaluatedByClients,
    Fact,
    InitialModelLoaded,
    RunStarted,
    ServerResumed,
    fields,
)

CONCERNS = {
    PeerSuspected.kind: "suspected",
    SavingFailed.kind: "cannot save",
    UpdateRejected.kind: "update rejected",
    LedgerCopied.kind: "privacy ledger copied",
    ClientAtTwoServers.kind: "key in use at two servers",
    ServerDuplicated.kind: "two processes act for a server",
    UpdateDropped.kind: "update dropped: too many",
    ClientQuarantined.kind: "quarantined",
    SumDiscarded.kind: "masked updates discarded",
    ClientFailed.kind: "excluded: its training failed",
    ServerResumed.kind: "resumed from a checkpoint",
}
"""Kinds of facts that raise a concern about a client or server, and the text shown for it."""
RELIEFS = frozenset({PeerTrusted.kind, SavingResumed.kind, ModelRestored.kind, SumOpened.kind})
"""Kinds of facts that clear the concern."""
LONGEST = 400  # characters


def describe(world: RunTopology, fact: Fact) -> str:
    """Describe a fact in one line."""
    name = world.server_name
    match fact:
        case UpdateApplied():
            stale = f"staleness {fact.staleness:.3g}, " if fact.staleness else ""
            return f"{name(fact.server)} applied client {fact.client}’s update ({stale}weight {fact.weight:.3g})"
        case AgeAnnounced():
            return f"{name(fact.server)} announced its age, {fact.age:.4g}"
        case TokenArrived():
            return f"{name(fact.server)} received the token for exchange {fact.bid}"
        case SyncStarted() | EarlySyncStarted():
            return f"{name(fact.server)} started exchange {fact.bid} and sent its model to all servers"
        case Merged():
            return (
                f"{name(fact.server)} merged {name(fact.peer)}’s model (exchange {fact.bid}, weight {fact.weight:.3g})"
            )
        case RoundEnded():
            return f"{name(fact.server)} ended round {fact.round}"
        case NoiseAdded():
            spent = f"ε at most {fact.epsilon:.3f} for a client"
            return f"{name(fact.server)} released the noisy sum of {fact.clients:,} updates: {spent}"
        case CloudRoundEnded():
            return f"the cloud averaged the servers, round {fact.round}"
        case Evaluated():
            spread = f", {fact.worst:.3f} to {fact.best:.3f}" if len(fact.servers) > 1 else ""
            return f"{world.start.metric} {fact.mean:.4f}{spread} after {fact.updates:,} updates"
        case EvaluatedByClients():
            worst = f", worst tenth {fact.worst_decile:.4f}" if fact.worst_decile_clients else ""
            share = f"{fact.weighted_mean:.4f}{worst}"
            return f"{fact.clients} clients evaluated {fact.name}: weighted mean {share}"[:LONGEST]
        case ClientEvaluated():
            return f"client {fact.client} evaluated {name(fact.server)}’s model: {numbers(fact.scores)}"[:LONGEST]
        case SumEvaluated():
            together = f"{fact.clients} clients evaluated {name(fact.server)}’s model together"
            return f"{together}: {numbers(fact.scores)}"[:LONGEST]
        case ServerResumed():
            lost = f"{fact.lost_updates} updates lost"
            return f"{name(fact.server)} resumed from a checkpoint at version {fact.version}; {lost}"
        case ClientReported():
            return f"client {fact.client} reported {numbers(fact.metrics) or f'{fact.examples} examples'}"[:LONGEST]
        case RunStarted():
            return f"{fact.title} on {fact.task}: {fact.clients} clients, {len(fact.servers)} servers, seed {fact.seed}"
        case InitialModelLoaded():
            return f"initial model: {fact.model}"[:LONGEST]
    return describe_fields(fact)


def describe_fields(fact: Fact) -> str:
    """Describe a fact by its kind and fields."""
    words = numbers(fields(fact))
    return f"{fact.kind}: {words}"[:LONGEST] if words else fact.kind


def numbers(values: Mapping[str, Any]) -> str:
    """List values with their names."""
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()
    )
