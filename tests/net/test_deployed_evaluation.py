"""Real servers and clients without central test data: clients evaluate, servers aggregate."""

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment import Deployed, Speaker, deployed, speaking, table, until

from spyker.config.scenario import from_table
from spyker.net import spyker_pb2 as pb
from spyker.net.frames import send
from spyker.net.wire import fill
from spyker.protocol.messages import Update
from spyker.records import Evaluated, EvaluatedByClients, RunRecord
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ServedModel, write_served_model

HELPERS = Path(__file__).parents[1] / "helpers"
AGGREGATE = "evaluation-by-clients"


@pytest.fixture(autouse=True)
def the_task_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=":")
    monkeypatch.syspath_prepend(HELPERS)


def scenario(clients: tuple[int, ...], task: str = "Means", **evaluation: Any) -> dict[str, Any]:
    more = {"task": {"name": f"evaluating_task:{task}"}, "evaluation": {"interval": 0.25} | evaluation}
    return table("spyker", clients, **more)


def of_all(deployment: Deployed, clients: int, server: int = 0) -> list[dict[str, Any]]:
    """The aggregates of so many clients."""
    return [fact for fact in deployment.facts(AGGREGATE, server) if fact["clients"] == clients]


def test_two_servers_evaluate_with_their_clients_and_the_merged_record_with_all(tmp_path: Path) -> None:
    with deployed(scenario((3, 2)), tmp_path / "local") as deployment:
        for server in range(2):
            deployment.up(server)
        deployment.attend("0-2", 0)
        deployment.attend("3-4", 1)
        for server, count in ((0, 3), (1, 2)):
            last = until(lambda s=server, n=count: of_all(deployment, n, s))[-1]
            evaluation = next(f for f in deployment.facts("evaluation", server) if f["t"] == last["t"])
            assert evaluation["mean"] == pytest.approx(last["weighted_mean"])
            assert [(r["region"], r["clients"]) for r in last["regions"]] == [(f"region-{server}", count)]
        until(lambda: min(len(deployment.facts("evaluation", s)) for s in range(2)) >= 3)
        deployment.merge(tmp_path / "all")
    run = RunRecord(tmp_path / "all")
    assert run.evaluated_by == "clients"
    last = list(run.facts(EvaluatedByClients))[-1].fact
    assert list(run.facts(Evaluated))[-1].fact.mean == last.weighted_mean, "of all clients, not of servers"
    assert (last.clients, [r.clients for r in last.regions]) == (5, [3, 2])
    assert last.examples == 1 + 2 + 3 + 4 + 5


def test_prometheus_sees_them_and_a_restart_keeps_them(tmp_path: Path) -> None:
    with deployed(scenario((3,)), tmp_path) as deployment:
        server = deployment.up()
        deployment.attend("0-2")
        until(lambda: of_all(deployment, 3))
        until(lambda: deployment.metric("evaluating_clients", metric="closeness") == 3)
        worst, mean = (
            deployment.metric(f"client_score_{name}", metric="closeness") for name in ("worst_decile", "mean")
        )
        assert 0 < worst <= mean <= 1
        assert 0 < deployment.metric("client_score_weighted_mean", metric="closeness") <= 1
        assert deployment.metric("score") > 0
        server.terminate()
        assert server.wait(200) == 0
        summary = RunRecord(deployment.record(0)).summary
        assert summary is not None
        assert summary["evaluation_by_clients"]["closeness"]["clients"] == 3
        assert summary["final"]["mean"] > 0


def test_both_has_the_central_score_and_that_of_the_clients(tmp_path: Path) -> None:
    with deployed(scenario((2,), "WithTest", by="both"), tmp_path) as deployment:
        deployment.up()
        until(lambda: deployment.log("server-0", "listening"))
        deployment.attend("0-1")
        until(lambda: of_all(deployment, 2))
        first = until(lambda: deployment.facts("evaluation"))[0]
        assert first["mean"] == pytest.approx(0.25), "of the first model on the central test data"


async def evaluate(speaker: Speaker, token: bytes, evaluation: dict[str, float]) -> None:
    """Answer a task with an evaluation."""
    answer = pb.Update(task_token=token)
    weights = np.full(speaker.parameters, 3.0, np.float32)
    arrays = fill(answer.content, Update(weights, 0.0, 0, evaluation=evaluation), echoed=False)
    await send(speaker.stream.write, pb.Frame(update=answer).SerializeToString(), arrays)


def test_a_client_that_lies_about_its_evaluation_is_bounded(tmp_path: Path) -> None:
    with deployed(scenario((3,)), tmp_path) as deployment:
        deployment.up()
        deployment.attend("0-1")
        until(lambda: of_all(deployment, 2))

        async def lie() -> None:
            async with speaking(deployment, 2) as liar:
                token = (await liar.enter()).token
                for told in (
                    {"examples": 5.0, "closeness": 1e300},
                    {"examples": 5.0, "fame": 1.0},
                    {"examples": 2.0**52, "closeness": 0.0, "fame": 1.0},
                ):
                    await evaluate(liar, token, told)
                    token = (await liar.task()).token
                await asyncio.to_thread(until, lambda: of_all(deployment, 3))

        asyncio.run(lie())
        (told,) = [fact for fact in deployment.facts("client-evaluation") if fact["client"] == 2]
        assert told["scores"] == {"closeness": 0.0}
        last = of_all(deployment, 3)[0]
        honest = 1 + 2  # examples of clients 0 and 1, whose median is that of three with the liar's: 2
        assert last["examples"] == honest + 20, "ten times the median"
        assert math.isfinite(last["weighted_mean"])


def test_a_server_without_a_task_aggregates(tmp_path: Path) -> None:
    chosen = scenario((2,))
    served = ServedModel.of(task_spec(resolve(from_table(chosen))).make())
    write_served_model(tmp_path / "model.safetensors", served)
    with deployed(chosen, tmp_path / "local", model=str(tmp_path / "model.safetensors")) as deployment:
        deployment.up()
        deployment.attend("0-1")
        last = until(lambda: of_all(deployment, 2))[-1]
        assert 0 < last["weighted_mean"] <= 1
        until(lambda: deployment.facts("evaluation"))
