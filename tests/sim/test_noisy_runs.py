"""Emulations with client-level differential privacy: budgets, repeatability, and what crashes may not do."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from processes import FAULTS, Fault, arrange

import spyker
from spyker.node.pending_updates import PendingUpdates
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of
from spyker.privacy.client_noise import NoisySums
from spyker.protocol.messages import Update
from spyker.protocol.noisy_server import NoisyServer
from spyker.sim.cluster import ClusterSimulation

ALL = ["stride", "fedavg", "hierfavg", "fedbuff"]


def table(algorithm: str, *, duration: float = 6.0, **privacy: Any) -> dict[str, Any]:
    """Three regions with four, five and four clients."""
    return {
        "algorithm": algorithm,
        "duration": duration,
        "task": {"name": "quadratic", "dimension": 3},
        "world": {
            "regions": ["a", "b", "c"],
            "clients": [4, 5, 4],
            "latency-ms": [[1.0, 31.0, 47.0], [29.0, 2.0, 83.0], [43.0, 79.0, 3.0]],
        },
        "training": {"rate": 0.3, "delay-ms": {"mean": 60.0, "std": 10.0}},
        "evaluation": {"interval": 0.5},
        "privacy": {"unit": "client", "noise-multiplier": 1.5, "trainings": 500, "delta": 1e-6} | privacy,
    }


def of(facts: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [fact for fact in facts if fact["kind"] == kind]


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("algorithm", ALL)
def test_clients_leave_when_their_budgets_are_spent(emulate: Any, algorithm: str, masking: bool) -> None:
    facts, summary = emulate(table(algorithm, duration=30.0, trainings=4, masking=masking))
    spent = summary["privacy"]
    assert spent["unit"] == "client"
    assert spent["trainings"] == 4
    assert spent["epsilon"] == epsilon_of([Booking(Mechanism(1.5, 1.0, 1), 4)], 1e-6)
    assert max(fact["participations"] for fact in of(facts, "noise-added")) <= 4
    assert {fact["deviation"] for fact in of(facts, "noise-added")} == {1.5}
    failed = summary.get("failed_clients", [])
    assert len(failed) == 13 or algorithm in ("fedavg", "hierfavg")  # whose rounds may need clients that have left
    assert all("its privacy budget is spent: 4 trainings" in each["reason"] for each in failed)


@pytest.mark.parametrize("algorithm", ALL)
def test_the_bytes_of_a_record_do_not_depend_on_the_number_of_workers(tmp_path: Path, algorithm: str) -> None:
    def record(name: str, workers: int, seed: int) -> bytes:
        run = spyker.run(
            algorithm=algorithm,
            task="quadratic",
            duration=2.0,
            clients=16,
            seed=seed,
            out=tmp_path / name,
            workers=workers,
            progress=False,
            settings={"privacy.unit": "client", "privacy.noise-multiplier": 1.0, "privacy.trainings": 50},
        )
        return (run.folder / "facts.jsonl").read_bytes()

    first = record("first", 1, 1)
    assert record("again", 2, 1) == first
    assert record("other", 1, 2) != first
    assert b"noise-added" in first


# --- Crashes ----------------------------------------------------------------------------------------------------------


class NoiseChecker:
    """Notes which updates are in which sums that were released with noise."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sums: dict[tuple[int, int], set[bytes]] = defaultdict(set)  # by client and identity of the update
        self.releases: Counter[int] = Counter()
        self.updates: list[Update] = []  # so that their identities are not used again
        inside: dict[int, list[tuple[int, int]]] = defaultdict(list)
        add_to_sum, add, release = NoisyServer.add_to_sum, NoisySums.add, NoisySums.release
        sender: list[int] = []

        def adding_to_sum(server: NoisyServer, client: int, update: Any, multiple: float = 1.0) -> float:
            assert isinstance(update, Update)
            self.updates.append(update)
            sender[:] = [client, id(update.weights)]
            return add_to_sum(server, client, update, multiple)

        def adding(sums: NoisySums, update: Any, multiple: float) -> None:
            inside[id(sums)].append((sender[0], sender[1]))
            add(sums, update, multiple)

        def releasing(sums: NoisySums, opened: Any = None) -> Any:
            total = b"nothing" if sums._total is None else sums._total.tobytes()
            released = release(sums, opened)
            for client, update in inside.pop(id(sums), []):
                if total != b"nothing":
                    self.sums[client, update].add(released.tobytes())
                    self.releases[client] += 1
            return released

        patch.setattr(NoisyServer, "add_to_sum", adding_to_sum)
        patch.setattr(NoisySums, "add", adding)
        patch.setattr(NoisySums, "release", releasing)

    def problems(self, trainings: Any) -> list[str]:
        found = [
            f"an update of client {k} is in {len(sums)} sums" for (k, _), sums in self.sums.items() if len(sums) > 1
        ]
        more = [k for k, count in self.releases.items() if count > trainings[k]]
        return found + [f"client {k} is in more sums than it has made trainings" for k in more]


def play(
    emulate: Any, patch: pytest.MonkeyPatch, algorithm: str, faults: list[Fault]
) -> tuple[NoiseChecker, list[str]]:
    checker, worlds = NoiseChecker(patch), list[ClusterSimulation]()

    def happen(world: ClusterSimulation) -> None:
        worlds.append(world)
        arrange(world, faults, 0.013)

    facts, _ = emulate(table(algorithm, duration=4.5), happen)
    assert [fact for fact in of(facts, "noise-added") if fact["t"] > 3.5], "all goes on in the end"
    return checker, checker.problems(worlds[0].trainings)


CRASHES: list[Fault] = [
    (t + 0.00123 * n, kind, server, 0)
    for n, t in enumerate(np.arange(0.3, 1.9, 0.21))
    for server in (0, 1, 2)
    for t, kind in ((t, "crash"), (t + 0.05, "restart"))
]


@pytest.mark.parametrize("algorithm", ALL)
def test_crashes_let_no_update_into_two_sums(emulate: Any, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    checker, problems = play(emulate, monkeypatch, algorithm, CRASHES)
    assert len(checker.sums) > 20
    assert not problems


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=FAULTS)
def test_no_faults_let_an_update_into_two_sums(
    emulate: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]
) -> None:
    for algorithm in ("stride", "fedbuff"):
        with monkeypatch.context() as patch:
            _, problems = play(emulate, patch, algorithm, faults)
            assert not problems


def test_the_checker_notices_updates_that_are_sent_again(emulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    init = PendingUpdates.__init__
    monkeypatch.setattr(PendingUpdates, "__init__", lambda self, client, **_: init(self, client))
    _, problems = play(emulate, monkeypatch, "stride", CRASHES)
    assert problems
