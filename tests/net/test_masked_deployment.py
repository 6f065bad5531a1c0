"""Real servers and clients whose updates are masked."""

from pathlib import Path
from typing import Any

import pytest
from deployment import Deployed, deployed, table, until

from spyker.cli.main import main
from spyker.net.checkpoints import latest
from spyker.sim.replay import differences, replay


def masked(algorithm: str, clients: tuple[int, ...], **privacy: Any) -> dict[str, Any]:
    return table(algorithm, clients, privacy={"masking": True, **privacy})


def opened(deployment: Deployed, server: int = 0) -> int:
    return len(deployment.facts("sum-opened", server))


def test_a_server_learns_through_a_helper(tmp_path: Path) -> None:
    with deployed(masked("fedavg", (4,)), tmp_path, min_clients=None, metrics=None) as deployment:
        deployment.up(0)
        deployment.up(1)
        deployment.attend("0-3", 0)
        until(lambda: opened(deployment) >= 5)
        assert {fact["helper"] for fact in deployment.facts("sum-opened")} == {1}
        assert {fact["clients"] for fact in deployment.facts("sum-opened")} == {4}
        assert len(deployment.facts("update")) >= 20
        assert not deployment.facts("sum-discarded")


def test_servers_open_sums_for_each_other_after_a_kill(tmp_path: Path) -> None:
    """The requests and the marks of what was opened survive: no seal is refused as one that was opened before."""
    with deployed(masked("stride", (3, 3)), tmp_path, event_log="events", checkpoint_updates=3) as deployment:
        deployment.up(0)
        helper = deployment.up(1)
        deployment.attend("0-2", 0)
        deployment.attend("3-5", 1)
        until(lambda: opened(deployment, 0) >= 3 and opened(deployment, 1) >= 3)
        helper.kill()
        helper.wait()
        before = opened(deployment, 0)
        deployment.up(1, "--resume")
        until(lambda: opened(deployment, 0) >= before + 3)
        reasons = {fact["reason"] for i in (0, 1) for fact in deployment.facts("sum-discarded", i)}
        assert not [reason for reason in reasons if "opened before" in reason]
        home = deployment.servers[0]
        home.kill()
        home.wait()
        checkpoint = latest(tmp_path / "server-0" / "state")
        assert checkpoint is not None
        log = tmp_path / "server-0" / "events" / "events-000001.log"
        done = replay(log, checkpoint.numbers["membership"]["checkpoints"])
        assert done.checkpoint is not None
        assert differences(done.checkpoint, checkpoint.numbers, checkpoint.vectors) == []


def test_plaintext_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without certificates a helper could not tell clients from inventions of a home server."""
    scenario = 'algorithm = "fedavg"\n[task]\nname = "quadratic"\n[privacy]\nmasking = true\n'
    (tmp_path / "scenario.toml").write_text(scenario)
    argv = ["join", str(tmp_path / "scenario.toml"), "--server", "127.0.0.1:1", "--clients", "0", "--insecure"]
    assert main(argv) == 2
    assert "--insecure: is not allowed: with privacy.masking" in capsys.readouterr().err


def test_a_federation_with_one_server_needs_a_helper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["federation", "create", "quadratic", "--algorithm", "fedavg", "--clients", "3"]
    common += ["--out", str(tmp_path / "federation"), "--server", "a=127.0.0.1:7000", "--quiet"]
    assert main([*common, "--set", "privacy.masking=true"]) == 2
    assert "--helper: is missing" in capsys.readouterr().err
    assert main([*common, "--helper", "near=127.0.0.1:7002"]) == 0
    assert (tmp_path / "federation" / "server-near" / "server.toml").exists()
    assert "masking = true" in (tmp_path / "federation" / "client-0" / "scenario.toml").read_text()
