"""How much a reproduction may cost: a quick look, or the paper's sizes."""

from __future__ import annotations

from spyker.experiments.item import Profile

QUICK = Profile(
    name="quick",
    seeds=1,
    says="smaller client datasets and shorter runs than the paper's, and one seed: a first look",
    tasks={
        "mnist": {"task.training-images": 6_000, "task.test-images": 1_000},
        "cifar10": {"task.training-images": 3_200, "task.test-images": 500},
        "wikitext2": {"task.characters-per-client": 2_049, "task.evaluation-characters": 10_000},
    },
    validation={"task.validation-images": 1_000},
)
FULL = Profile(
    name="full",
    seeds=3,
    says="the paper's numbers of clients, all training data, three seeds",
    tasks={"mnist": {"task.test-images": 2_000}, "cifar10": {"task.test-images": 2_000}},
    validation={"task.validation-images": 2_000},
)
PROFILES = {profile.name: profile for profile in (QUICK, FULL)}
