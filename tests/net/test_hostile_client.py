"""Real servers with a real client that lies: it is left out, said to be, and ruins nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment import deployed, table, until

HELPERS = Path(__file__).parents[1] / "helpers"
TASK = {"name": "quadratic", "dimension": 32}


@pytest.fixture(autouse=True)
def liars_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=":")
    monkeypatch.syspath_prepend(HELPERS)


def scenario(algorithm: str, **more: Any) -> dict[str, Any]:
    return table(
        f"hostile_client:{algorithm}", (10,), task=TASK, training={"rate": 0.2, "delay-ms": [10.0] * 10}, **more
    )


@pytest.mark.parametrize(("algorithm", "reason"), [("HugeSpyker", "norm"), ("NegativeStride", "sign-flipped")])
def test_a_liar_is_left_out_and_the_others_learn(tmp_path: Path, algorithm: str, reason: str) -> None:
    with deployed(scenario(algorithm), tmp_path, min_clients=10) as deployment:
        deployment.up()
        deployment.attend("0-9")
        (out,) = until(lambda: deployment.facts("client-quarantined"))
        assert (out["client"], out["reason"]) == (0, reason)
        rejected = len(deployment.facts("update-rejected"))
        assert rejected >= 4 if reason == "norm" else rejected == 0
        before = deployment.facts("evaluation")[-1]["updates"]
        scores = until(lambda: [f for f in deployment.facts("evaluation") if f["updates"] > before + 500])
        assert scores[-1]["mean"] > 0.5, "of the way to where everybody, the liar included, would be content"
        late = [fact["client"] for fact in deployment.facts("update")[-200:]]
        assert set(late) == set(range(1, 10))
        assert deployment.metric("quarantines_total") == 1
        assert deployment.metric("rejected_updates_total") == rejected
        (said,) = deployment.log("server-0", "client-quarantined")
        assert (said["client"], said["reason"], said["seconds"]) == (0, reason, 60.0)


def test_bounds_can_be_left_out(tmp_path: Path) -> None:
    with deployed(scenario("HugeSpyker", robust={"when": "never"}), tmp_path, min_clients=10) as deployment:
        deployment.up()
        deployment.attend("0-9")
        until(lambda: len(deployment.facts("update")) > 200)
        assert deployment.facts("client-quarantined") == []
        assert np.isclose(deployment.facts("evaluation")[-1]["mean"], 0.0), "and then it is over"


def test_a_client_that_claims_all_data_counts_for_two(tmp_path: Path) -> None:
    said = table("fedavg", (5,), task={"name": "claiming_task:make"}, training={"rate": 0.2, "delay-ms": [10.0] * 5})
    with deployed(said, tmp_path, min_clients=5) as deployment:
        deployment.up()
        deployment.attend("0-4")
        updates = until(lambda: [f for f in deployment.facts("update") if f["client"] == 0])
        assert updates[0]["weight"] == pytest.approx(2 / 6)


def test_a_client_that_answers_at_once_loses_the_excess(tmp_path: Path) -> None:
    delays = [0.0, 400.0, 400.0, 400.0, 400.0]
    said = table("fedasync", (5,), task=TASK, training={"rate": 0.2, "delay-ms": delays})
    with deployed(said, tmp_path, min_clients=5) as deployment:
        deployment.up()
        deployment.attend("0-4")
        until(lambda: len(deployment.facts("update-dropped")) > 1)
        dropped = deployment.facts("update-dropped")
        assert {fact["client"] for fact in dropped} == {0}
        assert deployment.metric("dropped_updates_total") >= len(dropped)
        (said_once,) = deployment.log("server-0", "update-dropped")
        assert (said_once["client"], said_once["reason"]) == (0, "rate")
