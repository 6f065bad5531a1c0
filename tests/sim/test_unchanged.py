"""The same facts, byte for byte, as long as nobody means to change them.

Each digest is of the facts of a run, without the first, which says the version, and without evaluations, whose last
bits depend on how a processor adds. So do AsyncFedED's weights; it has no digest. Who changes what an algorithm does,
or what the emulated world does with it, changes a digest, and says so in the changelog.
"""

import hashlib
from typing import Any

import pytest

from spyker.config.scenario import load
from spyker.engines.start_engine import start_engine
from spyker.records import Evaluated, Fact, RunStarted, line
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve

SETTINGS: dict[str, Any] = {
    "duration": 3.0,
    "training.delay-ms": "heterogeneous",
    "world.clients": [9, 3, 3, 3],
    "spyker.h-intra": 20.0,
    "hierfavg.fraction": 0.5,
    "fedavg.fraction": 0.4,
}
DIGESTS: dict[str, str] = {
    "spyker": "2d0540a05e8615a9",
    "sync-spyker": "38a698ad0eaa9260",
    "fedasync": "48d1446f926a8369",
    "fedavg": "31faae7a14172454",
    "hierfavg": "2471aa6c0abaca41",
    "fedbuff": "f8c4cb650fb6e388",
    "fadas": "52dd54296c7ea167",
    "fedasyncm": "fb76ca3b337203b7",
    "fedavgm": "70c09092908e4f70",
    "hierfavgm": "264cea5c80c9685c",
}


@pytest.mark.parametrize("when", ["deployed", "always"])
@pytest.mark.parametrize("algorithm", DIGESTS)
def test_the_facts_of_a_run_are_what_they_were(algorithm: str, when: str) -> None:
    """The update filter changes nothing where no update exceeds a limit; one of these clients is 15 times as fast."""
    settings = SETTINGS | {"algorithm": algorithm, "robust.when": when, "robust.clip": 1e3, "robust.rate": 1e3}
    scenario = resolve(load(None, settings, task="quadratic"))
    digest = hashlib.sha256()

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        if not isinstance(fact, Evaluated | RunStarted):
            digest.update(line(t, fact, queue).encode())

    task, engine = start_engine(scenario)
    with engine:
        simulate(scenario, task, engine, sink)
    assert digest.hexdigest()[:16] == DIGESTS[algorithm]
