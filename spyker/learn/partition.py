"""How a labelled dataset is dealt out to clients: disjoint parts of equal size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spyker.config.sections import ScenarioError

Indices = npt.NDArray[np.int64]


def iid(labels: npt.ArrayLike, clients: int, random: np.random.Generator) -> list[Indices]:
    """Every client gets a random sample of everything."""
    count = np.asarray(labels).size
    share = count // clients
    if share == 0:
        raise too_few(count, clients)
    order = random.permutation(count)
    return [np.sort(order[i * share : (i + 1) * share]) for i in range(clients)]


def pathological(
    labels: npt.ArrayLike, clients: int, labels_per_client: int, random: np.random.Generator
) -> list[Indices]:
    """Every client gets exactly so many distinct labels, and equally many data points of each."""
    labels = np.asarray(labels)
    names, counts = np.unique(labels, return_counts=True)
    if labels_per_client > names.size:
        raise ScenarioError(
            "task.labels-per-client",
            f"is {labels_per_client}",
            f"The data has {names.size} labels; choose at most that",
        )
    # Deal the labels: each client takes those that were taken least, at random among equals. Every label ends up with
    # as many takers as every other, give or take one.
    taken = np.zeros(names.size, np.int64)
    hands = np.empty((clients, labels_per_client), np.int64)
    for hand in hands:
        hand[:] = np.lexsort((random.random(names.size), taken))[:labels_per_client]
        taken[hand] += 1
    share = int(min(counts[taken > 0] // taken[taken > 0]))
    if share == 0:
        raise too_few(labels.size, clients)
    decks = [random.permutation(np.flatnonzero(labels == name)) for name in names]
    used = np.zeros(names.size, np.int64)
    parts = []
    for hand in hands:
        parts.append(np.sort(np.concatenate([decks[i][used[i] : used[i] + share] for i in hand])))
        used[hand] += share
    return parts


def too_few(count: int, clients: int) -> ScenarioError:
    """There are not enough data points to go round."""
    return ScenarioError(
        "world.clients",
        f"has {clients} clients for {count:,} training data points",
        "Take fewer clients (--clients), fewer labels per client, or a larger task",
    )
