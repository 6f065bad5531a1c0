"""The worlds of the race: scenario, data, target and horizon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spyker.algorithms.fedasync import FedAsync
from spyker.algorithms.fedbuff import FedBuff
from spyker.algorithms.hierfavg import Edge
from spyker.algorithms.stride import Stride
from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.paper.item import Settings

OURS = Stride.name
INTERVAL = 0.25  # virtual seconds between two evaluations
STAY = 2.0  # virtual seconds for which a target must hold
KERNEL: dict[str, object] = {"training.kernel": "native"}  # several times as fast as PyTorch on small images


@dataclass(frozen=True, slots=True)
class RaceWorld:
    """One world with its task."""

    name: str
    """On the command line."""
    title: str
    """In tables."""
    says: str
    """Description for the report."""
    settings: Settings
    takes: str
    """The world whose search gives the settings; itself, if it is searched."""
    stage: str = "others"
    """One of ``STAGES``, which determine the order and the field."""
    seeds: int = 3
    target: float = 0.9
    horizon: float = 15.0
    """Virtual seconds within which the target must be reached."""
    everybody: bool = False
    """Whether all algorithms run, because otherwise slow algorithms may be fast here."""

    @property
    def searched(self) -> bool:
        """Whether settings are searched here."""
        return self.takes == self.name

    @property
    def compact(self) -> bool:
        """Whether the world is part of the medians: all of the same task and size."""
        return self.stage in ("paper", "others")


@dataclass(frozen=True, slots=True)
class Course:
    """A whole race."""

    name: str
    says: str
    worlds: Mapping[str, RaceWorld]
    trials: int
    """Trials per algorithm and searched world."""
    held_back: Settings = field(default_factory=dict)
    """Settings with which a search evaluates on held-out data."""
    algorithms: tuple[str, ...] = ()
    """The algorithms; empty: all."""


STAGES = ("paper", "others", "size", "tasks")
IID, TWO_LABELS, ROOM, IMBALANCE, UNEVEN = "iid", "two-labels", "room", "imbalance", "uneven"
MNIST: dict[str, object] = {
    "task.name": "mnist",
    "task.images-per-client": 60,
    "task.test-images": 1000,
    "evaluation.interval": INTERVAL,
    **KERNEL,
}
ONE_ROOM: dict[str, object] = {"world.regions": ["room"], "world.latency-ms": [[0.0]]}
PAPER_WORLDS = (
    RaceWorld(
        IID,
        "IID",
        "the paper's: four regions with 25 clients each; every client has a random sample of the images",
        MNIST | {"task.partition": "iid"},
        takes=IID,
        stage="paper",
        seeds=5,
    ),
    RaceWorld(
        TWO_LABELS,
        "two labels",
        "the paper's; every client has two of the ten labels",
        MNIST,
        takes=TWO_LABELS,
        stage="paper",
        seeds=5,
    ),
    RaceWorld(
        "dirichlet",
        "Dirichlet 0.1",
        "the paper's; labels and numbers of images per client are drawn from a Dirichlet distribution with α = 0.1",
        MNIST | {"task.partition": "dirichlet", "task.alpha": 0.1},
        takes=TWO_LABELS,
        stage="paper",
        seeds=5,
    ),
)
OTHER_WORLDS = (
    RaceWorld(
        UNEVEN,
        "uneven speeds",
        "two labels; how long clients train is log-normal, ten times as long at the 95th percentile as at the 5th",
        MNIST | {"training.delay-ms": UNEVEN},
        takes=UNEVEN,
        everybody=True,
    ),
    RaceWorld(
        "regions",
        "regions differ",
        "two labels, dealt out so that a region has few of the ten",
        MNIST | {"task.grouped": True},
        takes=TWO_LABELS,
    ),
    RaceWorld(
        IMBALANCE,
        "70, 10, 10, 10",
        "two labels; 70 of the 100 clients live in the first region",
        MNIST | {"world.clients": [70, 10, 10, 10]},
        takes=TWO_LABELS,
    ),
    RaceWorld(
        "crowd",
        "200 clients",
        "two labels; twice as many clients, with as many images each",
        MNIST | {"world.clients": [50, 50, 50, 50]},
        takes=TWO_LABELS,
    ),
    RaceWorld(
        "uniform",
        "uniform latency",
        "two labels; every way takes the mean of the paper's latencies, those within a region too",
        MNIST | {"world.uniform-latency": True},
        takes=TWO_LABELS,
        everybody=True,
    ),
    RaceWorld(
        "outage",
        "a region cut off",
        "two labels; from second 1 to 6 nothing passes between Paris and the other regions, and connections are made "
        "anew a second later",
        MNIST | {"world.outage": {"region": 1, "start": 1.0, "seconds": 5.0}},
        takes=TWO_LABELS,
    ),
    RaceWorld(
        ROOM,
        "one room",
        "two labels; all 100 clients are in one region, without latency: the limit",
        MNIST | ONE_ROOM | {"world.clients": [100]},
        takes=TWO_LABELS,
        everybody=True,
    ),
)
SIZE_AND_TASKS = (
    RaceWorld(
        "paper-size",
        "MNIST, 600 images",
        "two labels; every client has 600 images, as in the paper",
        {key: value for key, value in MNIST.items() if key != "task.images-per-client"},  # all there are
        takes=TWO_LABELS,
        stage="size",
        seeds=2,
        horizon=10.0,
    ),
    RaceWorld(
        "cifar10",
        "CIFAR-10 to 0.45",
        "the paper's regions; 100 photographs per client, a random sample each; until an accuracy of 0.45",
        {
            "task.name": "cifar10",
            "task.partition": "iid",
            "task.images-per-client": 100,
            "task.test-images": 1000,
            "evaluation.interval": INTERVAL,
            **KERNEL,
        },
        takes=IID,
        stage="tasks",
        target=0.45,
        horizon=40.0,
    ),
    RaceWorld(
        "wikitext2",
        "WikiText-2 to 30",
        "the paper's regions; 2,049 characters per client; until a perplexity of 30",
        {
            "task.name": "wikitext2",
            "task.characters-per-client": 2049,
            "task.evaluation-characters": 10_000,
            "evaluation.interval": INTERVAL,
        },
        takes=IID,
        stage="tasks",
        target=30.0,
        horizon=30.0,
    ),
)
FULL = Course(
    "full",
    "",
    {world.name: world for world in (*PAPER_WORLDS, *OTHER_WORLDS, *SIZE_AND_TASKS)},
    trials=8,
    held_back={"task.validation-images": 1000},
)
SMALL: dict[str, object] = {"task.name": "digits", "evaluation.interval": INTERVAL, "world.clients": [5, 5, 5, 5]}
QUICK = Course(
    "quick",
    "**A smoke test**: small images, few clients, an easy target, and a minimal search on the images of the race "
    "itself. It shows that everything runs, and nothing about algorithms.",
    {
        world.name: world
        for world in (
            RaceWorld(IID, "IID", "digits, IID", SMALL | {"task.partition": "iid"}, IID, "paper", 2, 0.4, 8.0),
            RaceWorld(TWO_LABELS, "two labels", "digits, two labels", SMALL, TWO_LABELS, "paper", 2, 0.4, 8.0),
            RaceWorld(
                IMBALANCE,
                "14, 2, 2, 2",
                "digits, two labels; 14 of 20 clients in one region",
                SMALL | {"world.clients": [14, 2, 2, 2]},
                TWO_LABELS,
                seeds=2,
                target=0.4,
                horizon=8.0,
            ),
            RaceWorld(
                ROOM,
                "one room",
                "digits, two labels; no latency",
                SMALL | ONE_ROOM | {"world.clients": [20]},
                TWO_LABELS,
                seeds=2,
                target=0.4,
                horizon=8.0,
            ),
        )
    },
    trials=2,
    algorithms=(OURS, FedAsync.name, Edge.name, HierFAVGM.name, FedBuff.name),
)
