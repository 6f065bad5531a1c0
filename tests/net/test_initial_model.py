"""A server that begins from a model that was exported, in place of the task's own."""

from pathlib import Path

import numpy as np
from deployment import deployed, table, until

from spyker.records.tensors import write_tensors
from spyker.tasks.layout import layout_of
from spyker.tasks.registry import task_spec


def test_a_server_begins_from_a_model_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with deployed(table("fedasync", (2,)), tmp_path / "deployed", min_clients=0) as deployment:
        task = task_spec(deployment.scenario).make()
        given = np.full(task.initial().size, 0.7, np.float32)
        write_tensors(file, layout_of(task).parts(given))
        deployment.up(0, "--initial-model", str(file))
        first = until(lambda: deployment.facts("evaluation"))[0]
        assert first["mean"] == task.evaluate(given) != task.evaluate(task.initial())
        (begun,) = until(lambda: deployment.facts("initial-model"))
        assert begun["model"] == str(file)
        deployment.attend("0-1")
        until(lambda: deployment.facts("update"))


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_tensors(file, {"weights": np.zeros(3, np.float32)})
    with deployed(table("fedasync", (2,)), tmp_path / "deployed") as deployment:
        process = deployment.up(0, "--initial-model", str(file))
        assert process.wait(200) == 2
        assert "--initial-model" in (tmp_path / "deployed" / "server-0.log").read_text("utf-8")
        assert not (tmp_path / "deployed" / "server-0" / "state" / "identity.json").exists(), "and nothing was begun"
