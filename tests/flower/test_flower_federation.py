"""The folders of a federation of a Flower app."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'spyker-fl[flower]'")
import tiny_apps

from spyker.cli.main import main
from spyker.net.client_folder import load_client
from spyker.net.client_process import client_task


def test_a_client_of_an_app_has_its_local_options_and_does_not_run_the_server_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "federation"
    app = ["--flower", "tiny_apps:telling", "--set", "task.server=tiny_apps:server", "--set", "evaluation.by=servers"]
    where = ["--server", "paris=127.0.0.1:7000/7001", "--client", "charite", "--client", "mayo"]
    assert main(["federation", "create", *app, *where, "--out", str(out)]) == 0
    monkeypatch.delattr(tiny_apps, "server")
    folder = load_client(out / "client-mayo")
    task = client_task(folder.scenario, [1], {1: "mayo"}, {"data": "/data/a.csv"})
    task.train(1, task.initial(), 0.1, 0)
    assert tiny_apps.heard["node"]["data"] == "/data/a.csv"
    assert tiny_apps.heard["node"]["partition-id"] == 1
    assert main(["federation", "add-client", "oslo", str(out)]) == 0
    assert load_client(out / "client-oslo").scenario.task.options.setup == str(out / "client-oslo" / "flower-setup")
