"""How much a reproduction may cost: a quick look, or the paper's sizes."""

from __future__ import annotations

from spyker.experiments.item import Profile

FEWER = {"world.clients": [5, 5, 5, 5], "training.rate": 0.2}
QUICK = Profile(
    name="quick",
    seeds=1,
    says="a tenth of the paper's images per client and less, a learning rate of 0.2 instead of 0.05 to make up for it, "
    "shorter runs, and 20 clients instead of 100 on CIFAR-10 and WikiText-2: a first look, too short to say anything "
    "about CIFAR-10",
    tasks={
        "mnist": {"task.training-images": 6_000, "task.test-images": 1_000, "training.rate": 0.2},
        "cifar10": {"task.training-images": 800, "task.test-images": 500} | FEWER,
        "wikitext2": {"task.characters-per-client": 2_049, "task.evaluation-characters": 10_000} | FEWER,
    },
    validation={"task.validation-images": 500},
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
PROFILES = {profile.name: profile for profile in (QUICK, FULL)}
