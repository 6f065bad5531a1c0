"""On a real cluster: two nodes with one processor each, both on this machine."""

import contextlib
import gc
import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remembering_task

from spyker.cli.main import main
from spyker.config.scenario import TaskChoice, Training
from spyker.engines.engine import Engine, EvaluateJob, InProcessEngine, TrainJob
from spyker.engines.pool import MAX_LOSSES
from spyker.errors import ClientTrainingError, TaskError, UsageError
from spyker.tasks.registry import TaskSpec

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'spyker-fl[ray]'")
from ray.cluster_utils import Cluster  # noqa: E402

from spyker.engines.ray_engine import SMALL, ObjectStore, RayEngine  # noqa: E402

IMPATIENT = {  # a node that is gone is noticed at once
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_failure_threshold": 5,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": IMPATIENT}
    )
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


def frozen(value: float, size: int = SMALL) -> Any:
    vector = np.full(size, value, np.float32)
    vector.flags.writeable = False
    return vector


def results(engine: Engine, start: Any) -> list[bytes]:
    jobs = [TrainJob(k, start, 0.1, step) for step in range(2) for k in range(10)]
    score = EvaluateJob(start)
    for i, job in enumerate(jobs):
        engine.submit(job, due=-i)  # the other way round: order must not matter
    engine.submit(score, due=0)
    trained = [engine.trained(job).tobytes() for job in jobs]
    return [*trained, np.float64(engine.score(score)).tobytes()]


def places(engine: RayEngine) -> list[tuple[str, int]]:
    """Node and process of each worker, as soon as all are ready."""
    while not all(worker.ready for worker in engine.workers):
        engine._step(wait=True)

    def place(_: Any) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), os.getpid()

    return ray.get([worker.actor.__ray_call__.remote(place) for worker in engine.workers])


@pytest.fixture(scope="class")
def engine(cluster: Any, digits: Any) -> Iterator[RayEngine]:
    engine = RayEngine(digits.spec, address=cluster.address)
    with engine:
        yield engine


class TestDigits:
    """One engine for all of them, as it would serve several runs of a comparison."""

    def test_results_are_those_of_this_process(self, engine: RayEngine, digits: Any) -> None:
        start = digits.task.initial()
        with InProcessEngine(digits.task) as here:
            right = results(here, start)
        assert results(engine, start) == right
        assert len(engine.workers) == 2
        assert len({node for node, _ in places(engine)}) == 2

    @pytest.mark.slow
    def test_an_actor_killed_in_mid_run_is_replaced_and_changes_no_byte(
        self, engine: RayEngine, digits: Any, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (_, process), _ = places(engine)
        assert digits.run(engine, mishap=lambda: os.kill(process, signal.SIGKILL)) == digits.right
        assert process not in [process for _, process in places(engine)]
        assert capfd.readouterr().err.count("a new worker replaces it") == 1

    @pytest.mark.slow
    def test_a_node_removed_in_mid_run_changes_no_byte_and_one_that_comes_is_used(
        self, engine: RayEngine, cluster: Any, digits: Any, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (second,) = cluster.worker_nodes
        (process,) = [process for node, process in places(engine) if node == second.node_id]

        def fail() -> None:
            os.kill(process, signal.SIGSTOP)  # as when a machine loses its power: silence, and no good-bye
            cluster.remove_node(second, allow_graceful=False)

        try:
            assert digits.run(engine, mishap=fail) == digits.right
        finally:
            with contextlib.suppress(ProcessLookupError):  # Ray may have been faster
                os.kill(process, signal.SIGKILL)
        said = capfd.readouterr().err
        for _ in range(10):  # Ray notices the loss after a while, which may be after the end of a run
            if "a new worker replaces it" in said:
                break
            assert digits.run(engine) == digits.right
            said += capfd.readouterr().err
        assert said.count("a new worker replaces it") == 1
        assert sum(worker.ready for worker in engine.workers) == 1  # the other waits for a processor
        cluster.add_node(num_cpus=1)
        assert len({node for node, _ in places(engine)}) == 2


def test_the_command_leaves_the_same_bytes(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["run", "--task", "quadratic", "--duration", "1.0", "--clients", "40", "--out"]
    assert main([*command, "local", "--workers", "0"]) == 0
    assert main([*command, "ray", "--engine", "ray", "--ray-address", cluster.address]) == 0
    assert not ray.is_initialized()
    for name in ("scenario.toml", "facts.jsonl", "summary.json"):
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def test_a_clients_state_comes_back_whoever_trains_it(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(remembering_task.__file__).parent)
    plan = TaskSpec(TaskChoice("remembering_task:make", {}), clients=4, seed=1, training=Training())
    task = plan.make()

    def results(engine: Engine) -> list[Any]:
        states: dict[int, Any] = {}
        found: list[Any] = []
        with engine:
            for step in range(3):
                jobs = [TrainJob(k, task.initial(), 0.1, step, states.get(k)) for k in range(4)]
                for job in jobs:
                    engine.submit(job, due=step)
                for job in jobs:
                    found.append((engine.trained(job).tobytes(), job.examples, job.metrics))
                    states[job.client] = job.new_state
        return found

    assert results(RayEngine(plan, count=2, address=cluster.address)) == results(InProcessEngine(task))


@pytest.mark.parametrize(
    ("curse", "complaint"),
    [
        ({"raises": "the making"}, "the making is cursed"),
        ({"raises": "client 4"}, "client 4 is cursed"),
        pytest.param({"dies": "client 4"}, f"{MAX_LOSSES} times", marks=pytest.mark.slow),
    ],
)
def test_a_task_that_always_fails_ends_the_run_with_its_own_error(
    cluster: Any, fragile: Callable[..., TaskSpec], curse: dict[str, str], complaint: str
) -> None:
    job = TrainJob(4, np.zeros(3, np.float32), 0.1, 0)
    with RayEngine(fragile(**curse), address=cluster.address) as engine:
        engine.submit(job, due=0)
        with pytest.raises(TaskError, match=complaint):
            engine.trained(job)


def test_a_training_that_fails_concerns_no_other(cluster: Any, fragile: Callable[..., TaskSpec]) -> None:
    jobs = [TrainJob(k, np.zeros(3, np.float32), 0.1, 0) for k in range(6)]
    with RayEngine(fragile(raises="client 4"), count=1, address=cluster.address) as engine:
        for job in jobs:
            engine.submit(job, due=job.client)
        for job in jobs:
            if job.client == 4:
                with pytest.raises(ClientTrainingError) as failure:
                    engine.trained(job)
                assert failure.value.reason == "ArithmeticError: client 4 is cursed"
            else:
                assert engine.trained(job).size == 3


def test_a_model_goes_into_the_store_once_and_leaves_it_when_nobody_holds_it(
    cluster: Any, fragile: Callable[..., TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RayEngine(fragile(), count=1, address=cluster.address)
    put, puts = ray.put, []
    monkeypatch.setattr(ray, "put", lambda vector: puts.append(vector.nbytes) or put(vector))
    with engine:
        for turn in range(3):
            model = frozen(turn)
            jobs = [TrainJob(k, model, 0.1, 0) for k in range(5)]
            for job in jobs:
                engine.submit(job, due=0)
            for job in jobs:
                assert np.array_equal(engine.trained(job), np.full(SMALL, turn + job.client, np.float32))
                assert job.result is not None
                assert job.result.flags.writeable
            assert len(engine.store) == 1
            del model, jobs, job
        assert len(puts) == 3
        assert len(engine.store) == 0


def test_the_store_never_takes_one_vector_for_another(cluster: Any, fragile: Callable[..., TaskSpec]) -> None:
    with RayEngine(fragile(), count=1, address=cluster.address):
        store = ObjectStore()
        for value in range(30):  # the memory of one, and with it its id, becomes the next one's
            assert ray.get(store.put(frozen(value)))[0] == value
        changing = np.zeros(SMALL, np.float32)
        for value in range(3):
            changing[:] = value
            assert ray.get(store.put(changing))[0] == value
        small = frozen(1, size=3)
        assert store.put(small) is small
        gc.collect()
        assert len(store) == 0


@pytest.mark.slow
def test_a_cluster_without_a_free_processor_is_waited_for_and_the_user_told(
    cluster: Any, fragile: Callable[..., TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TrainJob(4, np.zeros(3, np.float32), 0.1, 0)
    greedy = RayEngine(fragile(), address=cluster.address)

    class Told(io.StringIO):
        def write(self, text: str) -> int:
            greedy.workers[0].stop()
            return super().write(text)

    with greedy:
        places(greedy)
        with RayEngine(fragile(), count=1) as engine:
            monkeypatch.setattr("spyker.engines.ray_engine.PATIENCE", 0.1)
            monkeypatch.setattr("sys.stderr", told := Told())
            engine.submit(job, due=0)
            assert engine.trained(job)[0] == 4
    assert "a worker needs one CPU" in told.getvalue()


def test_an_address_where_nobody_listens_is_refused(fragile: Callable[..., TaskSpec]) -> None:
    with pytest.raises(UsageError, match=r"--ray-address: cannot connect to .127.0.0.1:1. .*ray start"):
        RayEngine(fragile(), address="127.0.0.1:1")
