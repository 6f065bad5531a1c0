"""Profiles of the reproduction: a smoke test, a size that decides the paper's claims, and the paper's own sizes."""

from __future__ import annotations

from spyker_lab.paper.item import Profile

FEWER = {"world.clients": [5, 5, 5, 5], "training.rate": 0.2}
QUICK = Profile(
    name="quick",
    seeds=1,
    says="a smoke test that decides nothing: a tenth of the paper's images per client and less, runs of a few seconds, "
    "20 clients instead of 100 on CIFAR-10 and WikiText-2, and an evaluation once a second. standard decides",
    tasks={
        "mnist": {"task.training-images": 6_000, "task.test-images": 1_000, "training.rate": 0.2},
        "cifar10": {"task.training-images": 800, "task.test-images": 500} | FEWER,
        "wikitext2": {"task.characters-per-client": 2_049, "task.evaluation-characters": 10_000} | FEWER,
    },
    validation={"task.validation-images": 500},
)
# With a tenth of the images, or less, a training has a tenth of the steps, and the paper's rate of 0.05 would take all
# algorithms that much longer. The rates here make up for it and are those at which all of them still learn steadily:
# with more HierFAVG fails on some seeds of MNIST, and Spyker's perplexity goes up and down.
STANDARD = Profile(
    name="standard",
    seeds=5,
    says="100 clients, an evaluation every 0.25 s, and runs that end when they have reached what is asked for. A "
    "client has 60 images of MNIST, 100 of CIFAR-10 or 1,025 characters of WikiText-2, fewer than the paper's; "
    "learning rates of 0.2, 0.2 and 1 instead of 0.05 make up for the steps that this takes away",
    tasks={
        "mnist": {
            "task.training-images": 6_000,
            "task.test-images": 1_000,
            "training.rate": 0.2,
            "training.kernel": "native",
            "evaluation.interval": 0.25,
            "evaluation.stop-at": 0.95,
        },
        "cifar10": {
            "task.training-images": 10_000,
            "task.test-images": 500,
            "training.rate": 0.2,
            "training.kernel": "native",
            "evaluation.interval": 0.25,
            "evaluation.stop-at": 0.35,
        },
        "wikitext2": {
            "task.characters-per-client": 1_025,
            "task.evaluation-characters": 10_000,
            "training.rate": 1.0,
            "evaluation.interval": 0.25,
            "evaluation.stop-at": 25.0,
        },
    },
    fewer_seeds={"cifar10": 3, "wikitext2": 3, "readings": 3, "sensitivity": 2},
)
FULL = Profile(
    name="full",
    seeds=3,
    says="the paper's numbers of clients, all images and a tenth of the text; judged by 2,000 test images",
    tasks={
        "mnist": {"task.test-images": 2_000},
        "cifar10": {"task.test-images": 2_000},
        "wikitext2": {"task.characters-per-client": 10_241},
    },
    validation={"task.validation-images": 2_000},
)
PROFILES = {profile.name: profile for profile in (QUICK, STANDARD, FULL)}
