"""Facts in words, for the event log. A kind that nobody here knows is told with all its fields."""

from __future__ import annotations

from typing import Any

from spyker.dashboard.topology import RunTopology
from spyker.protocol.facts import (
    AgeAnnounced,
    ClientReported,
    CloudRoundEnded,
    EarlySyncStarted,
    Merged,
    RoundEnded,
    SyncStarted,
    TokenArrived,
    UpdateApplied,
)
from spyker.records import Evaluated, Fact, InitialModelLoaded, RunStarted, ServerResumed, fields

CONCERNS = {
    "suspect": "suspected",
    "suspected": "suspected",
    "accused": "suspected",
    "refuse": "refused",
    "refused": "refused",
    "rejected": "refused",
    "quarantine": "quarantined",
    "quarantined": "quarantined",
    "banned": "banned",
    "silent": "silent",
    "away": "away",
    "cut": "cut off",
    "crashed": "crashed",
    "lost": "lost",
    "failed": "excluded: its training failed",
    "resumed": "went on from a checkpoint",
}
"""Kinds of facts after which somebody is of concern, and what is said of whom. Not all of them exist yet."""
RELIEFS = frozenset(
    ("trusted", "released", "cleared", "restored", "healed", "returned", "readmitted", "joined", "rejoined")
)
"""Kinds of facts that take it back."""
LONGEST = 400  # characters


def fact_words(world: RunTopology, fact: Fact) -> str:
    """One line about a fact."""
    name = world.server_name
    match fact:
        case UpdateApplied():
            stale = f"staleness {fact.staleness:.3g}, " if fact.staleness else ""
            return f"{name(fact.server)} took client {fact.client}’s update ({stale}weight {fact.weight:.3g})"
        case AgeAnnounced():
            return f"{name(fact.server)} told all its age, {fact.age:.4g}"
        case TokenArrived():
            return f"the token reached {name(fact.server)}, to start exchange {fact.bid}"
        case SyncStarted() | EarlySyncStarted():
            return f"{name(fact.server)} started exchange {fact.bid} and sent its model to all"
        case Merged():
            return (
                f"{name(fact.server)} merged {name(fact.peer)}’s model (exchange {fact.bid}, weight {fact.weight:.3g})"
            )
        case RoundEnded():
            return f"{name(fact.server)} ended round {fact.round}"
        case CloudRoundEnded():
            return f"the cloud averaged the servers, round {fact.round}"
        case Evaluated():
            spread = f", {fact.worst:.3f} to {fact.best:.3f}" if len(fact.servers) > 1 else ""
            return f"{world.start.metric} {fact.mean:.4f}{spread} after {fact.updates:,} updates"
        case ServerResumed():
            return f"{name(fact.server)} went on from a checkpoint at version {fact.version}; {fact.lost} updates lost"
        case ClientReported():
            numbers = ", ".join(f"{key} {value:.4g}" for key, value in fact.metrics.items())
            return f"client {fact.client} reported {numbers or f'{fact.examples} examples'}"[:LONGEST]
        case RunStarted():
            return f"{fact.title} on {fact.task}: {fact.clients} clients, {len(fact.servers)} servers, seed {fact.seed}"
        case InitialModelLoaded():
            return f"began from the model in {fact.model}"[:LONGEST]
    return other_words(fact)


def other_words(fact: Fact) -> str:
    """A fact of somebody else's, or of a later version."""
    said: dict[str, Any] = fields(fact)
    words = ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in said.items()
    )
    return f"{fact.kind}: {words}"[:LONGEST] if words else fact.kind
