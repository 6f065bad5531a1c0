"""Partitioning of a dataset among clients: disjoint parts, of equal size unless stated otherwise."""

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
    """The partition options of tasks with labels."""

    partition: str = parameter(
        "pathological", f"partition of the images: {', '.join(PARTITIONS[:-1])} or {PARTITIONS[-1]}", choices=PARTITIONS
    )
    labels_per_client: int = parameter(2, "l: labels per client, when pathological", at_least=1)
    grouped: bool = parameter(
        False, "whether neighbouring clients, and hence regions, have similar labels, when pathological"
    )
    alpha: float = parameter(0.5, "concentration of the Dirichlet distribution; small is uneven", at_least=0.001)
    shards_per_client: int = parameter(2, "shards per client, when shard", at_least=1)
    images_per_client: int | None = parameter(
        None, "images per client (on average, when dirichlet); unset: as many as possible", at_least=1
    )
    partitioner: str | None = parameter(
        None, "a partitioner of Flower Datasets instead, such as 'DirichletPartitioner(alpha=0.3)'"
    )


def deal(options: PartitionOptions, labels: npt.ArrayLike, clients: int, random: np.random.Generator) -> list[Indices]:
    """Partition the data according to the options."""
    if options.partitioner is not None:
        from spyker.flower import partitioners  # needs the extra [flower-datasets]

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
    """Give every client a random sample of ``each`` data points, or of an equal share."""
    count = np.asarray(labels).size
    share = piece_size(count // clients, each, count, clients)
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
    """Give every client ``labels_per_client`` distinct labels, with equally many data points of each.

    Labels are assigned at random or, if ``grouped``, such that neighbouring clients have the same labels.
    """
    labels = np.asarray(labels)
    names, counts = np.unique(labels, return_counts=True)
    if labels_per_client > names.size:
        raise UsageError(
            "task.labels-per-client",
            f"{labels_per_client} is not allowed",
            f"Choose at most {names.size}, the number of labels in the data",
        )
    # Each client takes the labels taken least so far, with random tie-breaking, so that the numbers of clients per
    # label differ by at most one.
    taken = np.zeros(names.size, np.int64)
    chosen = np.empty((clients, labels_per_client), np.int64)
    for row in chosen:
        row[:] = np.lexsort((random.random(names.size), taken))[:labels_per_client]
        taken[row] += 1
    if grouped:
        chosen.sort(axis=1)
        chosen = chosen[np.lexsort(chosen.T[::-1])]
    share = int(min(counts[taken > 0] // taken[taken > 0]))
    share = piece_size(share, each, labels.size, clients, pieces=labels_per_client)
    by_label = [random.permutation(np.flatnonzero(labels == name)) for name in names]
    used = np.zeros(names.size, np.int64)
    parts = []
    for row in chosen:
        parts.append(np.sort(np.concatenate([by_label[i][used[i] : used[i] + share] for i in row])))
        used[row] += share
    return parts


def shard(
    labels: npt.ArrayLike, clients: int, shards_per_client: int, random: np.random.Generator, each: int | None = None
) -> list[Indices]:
    """Cut the data, sorted by label, into equal shards, and give every client random shards.

    If labels have more data points than shards, a client has at most one label more than shards.
    """
    labels = np.asarray(labels)
    count = clients * shards_per_client
    share = piece_size(labels.size // count, each, labels.size, clients, pieces=shards_per_client)
    order = random.permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    # Shards are spread over all data even if they do not cover it.
    starts = np.arange(count) * labels.size // count
    chosen = random.permutation(starts).reshape(clients, shards_per_client)
    return [np.sort(np.concatenate([order[start : start + share] for start in row])) for row in chosen]


def dirichlet(
    labels: npt.ArrayLike, clients: int, alpha: float, random: np.random.Generator, each: int | None = None
) -> list[Indices]:
    """Split every label among clients by a Dirichlet distribution with concentration ``alpha``.

    The parts cover all data, or ``each`` data points per client on average, and differ in size, more so for small
    ``alpha``. A client without data gets one data point of the client with the most.
    """
    labels = np.asarray(labels)
    total = piece_size(labels.size // clients, each, labels.size, clients) * clients if each else labels.size
    if total < clients:
        raise too_few(labels.size, clients)
    order = random.permutation(labels.size)[:total]
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for name in np.unique(labels):
        examples = order[labels[order] == name]
        cuts = np.cumsum(random.dirichlet(np.full(clients, alpha)))[:-1] * examples.size
        for client, piece in zip(pieces, np.split(examples, np.rint(cuts).astype(np.int64)), strict=True):
            client.append(piece)
    parts = [np.concatenate(client) for client in pieces]
    sizes = np.array([part.size for part in parts])
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        parts[empty], parts[largest] = parts[largest][-1:], parts[largest][:-1]
        sizes[empty], sizes[largest] = 1, sizes[largest] - 1
    return [np.sort(part) for part in parts]


def contiguous(count: int, clients: int, each: int | None = None, field: str = "task.characters-per-client") -> int:
    """Return the length of equal contiguous parts; ``each`` limits them to their beginning."""
    share = count // clients
    if share == 0:
        raise too_few(count, clients)
    if each is not None and each > share:
        problem = f"{each:,} is not allowed: there are {count:,} for {clients} clients"
        raise UsageError(field, problem, f"Give at most {share:,}")
    return share


def piece_size(share: int, each: int | None, count: int, clients: int, pieces: int = 1) -> int:
    """Return the size of a piece: ``share`` at most, or ``each`` per client divided by ``pieces``."""
    if share == 0:
        raise too_few(count, clients)
    if each is None:
        return share
    field, problem = "task.images-per-client", f"{each:,} is not allowed"
    if each % pieces:
        raise UsageError(field, f"{problem}: a client has {pieces} equal pieces", f"Give a multiple of {pieces}")
    if each > share * pieces:
        raise UsageError(field, f"{problem} with {clients} clients", f"Give at most {share * pieces:,}")
    return each // pieces


def too_few(count: int, clients: int) -> UsageError:
    """Return the error for too few data points."""
    return UsageError(
        "world.clients",
        f"{clients} clients are too many for {count:,} training examples",
        "Set fewer clients (--clients), fewer labels per client, or a larger task",
    )
