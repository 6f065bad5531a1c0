"""How a dataset is dealt out to clients: disjoint parts, of equal size unless it says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spyker.errors import UsageError
from spyker.parameters import parameter

Indices = npt.NDArray[np.int64]
PARTITIONS = ("pathological", "iid", "dirichlet", "shard")


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """The options of every task whose data has labels."""

    partition: str = parameter(
        "pathological", f"who gets which images: {', '.join(PARTITIONS[:-1])} or {PARTITIONS[-1]}", choices=PARTITIONS
    )
    labels_per_client: int = parameter(2, "l: how many labels a client has, when pathological", at_least=1)
    grouped: bool = parameter(
        False, "whether neighbouring clients, and so regions, have similar labels, when pathological"
    )
    alpha: float = parameter(0.5, "how even the labels are, when dirichlet: small is uneven", at_least=0.001)
    shards_per_client: int = parameter(2, "how many pieces of the sorted data a client has, when shard", at_least=1)
    images_per_client: int | None = parameter(
        None, "how many images a client has (on average, when dirichlet); unset: as many as go round", at_least=1
    )
    partitioner: str | None = parameter(
        None, "one of Flower Datasets in place of all that, such as 'DirichletPartitioner(alpha=0.3)'; an extra"
    )


def deal(options: PartitionOptions, labels: npt.ArrayLike, clients: int, random: np.random.Generator) -> list[Indices]:
    """Deal out data as the options say."""
    if options.partitioner is not None:
        from spyker.flower import partitioners  # only now: what it needs is an extra

        return partitioners.parts(
            partitioners.named(options.partitioner, clients, int(random.integers(2**31))), labels, clients
        )
    each = options.images_per_client
    if options.partition == "iid":
        return iid(labels, clients, random, each)
    if options.partition == "dirichlet":
        return dirichlet(labels, clients, options.alpha, random, each)
    if options.partition == "shard":
        return shard(labels, clients, options.shards_per_client, random, each)
    return pathological(labels, clients, options.labels_per_client, random, each, grouped=options.grouped)


def iid(labels: npt.ArrayLike, clients: int, random: np.random.Generator, each: int | None = None) -> list[Indices]:
    """Every client gets a random sample of everything: ``each`` data points, or as many as go round."""
    count = np.asarray(labels).size
    share = fewer(count // clients, each, count, clients)
    order = random.permutation(count)
    return [np.sort(order[i * share : (i + 1) * share]) for i in range(clients)]


def pathological(
    labels: npt.ArrayLike,
    clients: int,
    labels_per_client: int,
    random: np.random.Generator,
    each: int | None = None,
    *,
    grouped: bool = False,
) -> list[Indices]:
    """Every client gets exactly so many distinct labels, and equally many data points of each.

    Who gets which labels is random, or else ``grouped``: clients with the same labels are neighbours.
    """
    labels = np.asarray(labels)
    names, counts = np.unique(labels, return_counts=True)
    if labels_per_client > names.size:
        raise UsageError(
            "task.labels-per-client",
            f"{labels_per_client} is not allowed",
            f"The data has {names.size} labels; choose at most that",
        )
    # Deal the labels: each client takes those that were taken least, at random among equals. Every label ends up with
    # as many takers as every other, give or take one.
    taken = np.zeros(names.size, np.int64)
    hands = np.empty((clients, labels_per_client), np.int64)
    for hand in hands:
        hand[:] = np.lexsort((random.random(names.size), taken))[:labels_per_client]
        taken[hand] += 1
    if grouped:
        hands.sort(axis=1)
        hands = hands[np.lexsort(hands.T[::-1])]
    share = int(min(counts[taken > 0] // taken[taken > 0]))
    share = fewer(share, each, labels.size, clients, pieces=labels_per_client)
    decks = [random.permutation(np.flatnonzero(labels == name)) for name in names]
    used = np.zeros(names.size, np.int64)
    parts = []
    for hand in hands:
        parts.append(np.sort(np.concatenate([decks[i][used[i] : used[i] + share] for i in hand])))
        used[hand] += share
    return parts


def shard(
    labels: npt.ArrayLike,
    clients: int,
    shards_per_client: int,
    random: np.random.Generator,
    each: int | None = None,
) -> list[Indices]:
    """The data, sorted by label, is cut into equal shards; every client gets so many of them at random.

    A client has at most one label more than shards where labels are longer than shards; two of its shards may well
    have the same label.
    """
    labels = np.asarray(labels)
    count = clients * shards_per_client
    share = fewer(labels.size // count, each, labels.size, clients, pieces=shards_per_client)
    order = random.permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    # The shards are spread over all of the data, also when they do not cover it.
    starts = np.arange(count) * labels.size // count
    hands = random.permutation(starts).reshape(clients, shards_per_client)
    return [np.sort(np.concatenate([order[start : start + share] for start in hand])) for hand in hands]


def dirichlet(
    labels: npt.ArrayLike, clients: int, alpha: float, random: np.random.Generator, each: int | None = None
) -> list[Indices]:
    """Of every label, clients get shares drawn from a Dirichlet distribution with parameter ``alpha``.

    All data is dealt out, or ``each`` times the number of clients, and clients have different numbers of data points,
    the smaller ``alpha`` the more so. Each has at least one: whoever has none gets one from whoever has most.
    """
    labels = np.asarray(labels)
    total = fewer(labels.size // clients, each, labels.size, clients) * clients if each else labels.size
    if total < clients:
        raise too_few(labels.size, clients)
    order = random.permutation(labels.size)[:total]
    hands: list[list[Indices]] = [[] for _ in range(clients)]
    for name in np.unique(labels):
        deck = order[labels[order] == name]
        cuts = np.cumsum(random.dirichlet(np.full(clients, alpha)))[:-1] * deck.size
        for hand, cards in zip(hands, np.split(deck, np.rint(cuts).astype(np.int64)), strict=True):
            hand.append(cards)
    parts = [np.concatenate(hand) for hand in hands]
    sizes = np.array([part.size for part in parts])
    for poor in np.flatnonzero(sizes == 0):
        rich = int(sizes.argmax())
        parts[poor], parts[rich] = parts[rich][-1:], parts[rich][:-1]
        sizes[poor], sizes[rich] = 1, sizes[rich] - 1
    return [np.sort(part) for part in parts]


def contiguous(count: int, clients: int, each: int | None = None, field: str = "task.characters-per-client") -> int:
    """The length of equal contiguous parts: client k has the k-th. ``each`` takes only the beginning of every part."""
    share = count // clients
    if share == 0:
        raise too_few(count, clients)
    if each is not None and each > share:
        raise UsageError(field, f"{each:,} is not allowed", f"With {clients} clients at most {share:,} go round")
    return share


def fewer(share: int, each: int | None, count: int, clients: int, pieces: int = 1) -> int:
    """The size of a piece: ``share`` is what goes round, ``each`` what is wanted for a client of so many pieces."""
    if share == 0:
        raise too_few(count, clients)
    if each is None:
        return share
    field, value = "task.images-per-client", f"{each:,} is not allowed"
    if each % pieces:
        raise UsageError(field, value, f"A client's images come in {pieces} equal pieces; give a multiple of that")
    if each > share * pieces:
        raise UsageError(field, value, f"With {clients} clients at most {share * pieces:,} go round")
    return each // pieces


def too_few(count: int, clients: int) -> UsageError:
    """There are not enough data points to go round."""
    return UsageError(
        "world.clients",
        f"has {clients} clients for {count:,} training data points",
        "Take fewer clients (--clients), fewer labels per client, or a larger task",
    )
