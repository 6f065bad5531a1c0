"""Alerts of real processes when the identity of a client or a server is in use in two places."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import Deployed, table, until

from spyker.cli.main import main
from spyker.net.local_cluster import free_ports
from spyker.net.server_config import load_config

QUICK = {"heartbeat": 0.25, "suspect_after": 5.0, "checkpoint_seconds": 1000.0}


def config(deployment: Deployed, server: int) -> str:
    return str(deployment.folder / f"server-{server}" / "config.toml")


def test_both_servers_report_a_client_whose_key_is_in_use_at_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Deployed(table("spyker", (1, 1)), tmp_path, **QUICK) as deployment:
        for i in range(2):
            deployment.up(i)
            deployment.attend("0", i, more=("--patience", "600", "--state", str(tmp_path / f"state-{i}")))
        for i in range(2):
            fact = until(lambda i=i: deployment.facts("client-at-two-servers", i))[0]
            assert (fact["client"], fact["peer"]) == (0, 1 - i)
            line = until(lambda i=i: deployment.log(f"server-{i}", "client-at-two-servers"))[0]
            assert (line["level"], line["client"], line["peer"]) == ("warning", 0, 1 - i)
            assert main(["members", "list", config(deployment, i)]) == 0
            assert f"was connected here and to server {1 - i} at the same time" in capsys.readouterr().out


def copy_of(deployment: Deployed, server: int) -> Path:
    """A copy of a server's folder, for a process at other ports."""
    original, copied = deployment.folder / f"server-{server}", deployment.folder / "copy"
    shutil.copytree(original, copied, ignore=shutil.ignore_patterns("control", "lock", ".*", "record"))
    known = load_config(original / "config.toml").deploy
    text = (copied / "config.toml").read_text()
    for name, address in (("listen-clients", known.listen_clients), ("listen-peers", known.listen_peers)):
        text = text.replace(f'{name} = "{address}"', f'{name} = "127.0.0.1:{free_ports(1)[0]}"')
    (copied / "config.toml").write_text(text)
    return copied


def test_the_others_report_a_server_whose_state_is_in_use_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No client trains, so the state does not change while it is copied, and the copy is as recent as the original."""
    training = {"rate": 0.5, "delay-ms": [1e6] * 2}
    with Deployed(table("spyker", (1, 1), training=training), tmp_path, **QUICK) as deployment:
        for i in range(2):
            deployment.up(i)
            deployment.attend(str(i), i, more=("--patience", "600"))
        until(lambda: all(deployment.log(f"server-{i}", "started") and deployment.log(f"server-{i}", "link-up")
                          for i in range(2)))  # fmt: skip
        until(lambda: list((tmp_path / "server-1" / "state").glob("checkpoint-*")))
        command = [sys.executable, "-m", "spyker.cli.main", "serve", str(copy_of(deployment, 1) / "config.toml")]
        with (tmp_path / "copy.log").open("wb") as log:
            second = subprocess.Popen([*command, "--resume"], stderr=log, stdout=log)
        try:
            assert deployment.servers[1].wait(200) == 3, "the earlier process stops"
            fact = until(lambda: deployment.facts("server-duplicated", 0))[0]
            assert (fact["peer"], fact["reason"]) == (1, "copied state")
            line = until(lambda: deployment.log("server-0", "server-duplicated"))[0]
            assert (line["level"], line["peer"], line["reason"]) == ("warning", 1, "copied state")
            assert main(["members", "list", config(deployment, 0)]) == 0
            assert "two processes act for server 1 (copied state)" in capsys.readouterr().out
            own = deployment.facts("server-duplicated", 1)
            assert [(fact["peer"], fact["reason"]) for fact in own] == [(1, "copied state")]
        finally:
            second.send_signal(signal.SIGTERM)
            second.wait()
