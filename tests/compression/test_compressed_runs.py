"""Runs with compressed messages, in the emulator: every algorithm, with bare servers and with whole processes."""

import hashlib
from dataclasses import fields
from typing import Any

import pytest
from every_algorithm import ALGORITHMS

from spyker.compression.block_codec import CODES, NONE, size_of
from spyker.compression.settings import CompressionSettings
from spyker.config.scenario import load
from spyker.engines.start_engine import start_engine
from spyker.errors import UsageError
from spyker.protocol.codec import HEADER_BYTES
from spyker.records import Evaluated, Fact, line
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve


def every_key(code: str) -> dict[str, str]:
    """All keys with this code, or with the nearest that is allowed."""
    return {f.name: code if code in f.metadata["rule"].choices else "int8" for f in fields(CompressionSettings)}


SIZE = 150
# A smoke test: the optima of this task are far apart. docs/concepts/compression.md has the measurements on images.
TOLERANCE = {"fp16": 0.01, "int8": 0.04, "int4": 0.1}
WORLD: dict[str, Any] = {
    "duration": 4.0,
    "task.dimension": SIZE,
    "training.delay-ms": [30.0 + 5 * k for k in range(12)],
    "world.clients": [3, 3, 3, 3],
    "spyker.h-intra": 20.0,
}


class Run:
    """A run on the task ``quadratic``: its facts, and what it has reached."""

    def __init__(
        self, algorithm: str, codes: dict[str, str], *, hosted: bool = False, faults: Any = None, **settings: Any
    ) -> None:
        codes = {f"compression.{key}": code for key, code in codes.items()}
        scenario = resolve(load(None, WORLD | settings | codes | {"algorithm": algorithm}, task="quadratic"))
        digest, self.reached = hashlib.sha256(), 0.0

        def sink(t: float, fact: Fact, queue: int | None) -> None:
            digest.update(line(t, fact, queue).encode())
            if isinstance(fact, Evaluated):
                self.reached = fact.mean

        task, engine = start_engine(scenario)
        with engine:
            self.summary: Any = simulate(scenario, task, engine, sink, faults=(lambda _: None) if hosted else faults)
        self.bytes: int = self.summary["bytes"]["total"]
        self.facts = digest.hexdigest()


@pytest.mark.parametrize("code", [code for code in CODES if code != NONE])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_learns_as_much_in_fewer_bytes(algorithm: str, code: str) -> None:
    plain, coded = Run(algorithm, {}), Run(algorithm, every_key(code))
    assert coded.reached == pytest.approx(plain.reached, abs=TOLERANCE[code])
    assert coded.bytes < plain.bytes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_whole_processes_do_what_bare_servers_do(algorithm: str) -> None:
    codes = every_key("int4")
    assert Run(algorithm, codes, hosted=True).facts == Run(algorithm, codes).facts


@pytest.mark.parametrize("code", CODES)
def test_links_carry_the_bytes_that_messages_declare(code: str) -> None:
    summary = Run("fedasync", {"updates": code}).summary
    each = 4 * SIZE if code == NONE else sum(size_of(code, SIZE))
    kind = "update" if code == NONE else f"update-{code}"
    assert summary["bytes"]["client-to-server"] == summary["messages"][kind] * (HEADER_BYTES + each)


def test_masked_updates_are_not_rounded() -> None:
    with pytest.raises(UsageError, match=r"compression\.updates: \"int8\" is not allowed with privacy\.masking"):
        load(None, {"algorithm": "fedavg", "privacy.masking": True, "compression.updates": "int8"})
