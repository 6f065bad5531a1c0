"""Real server processes that are lost with their disks, replaced, added, removed, stopped and copied."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deployment import Deployed, table, until

from spyker.cli.codes import FENCED
from spyker.cli.main import main
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_issuing import write_client, write_server
from spyker.net.local_cluster import free_ports
from spyker.net.revocations import Revocation, write_revocations
from spyker.net.server_config import DeploymentOptions, load_config, write_config
from spyker.protocol.server import epoch_of

QUICK = {"heartbeat": 0.25, "suspect_after": 1.5, "renew_token_after": 3.0, "checkpoint_seconds": 1.0}


class Servers(Deployed):
    """Some servers with one client each, whose trainings leave time for processes to start, and are often exchanged."""

    def __init__(self, folder: Path, count: int = 3, algorithm: str = "spyker", **deploy: Any) -> None:
        training = {"rate": 0.5, "delay-ms": [40.0] * count}
        often = {"spyker": {"h-intra": 8.0, "h-inter": 5.0}, "stride": {"exchange-rounds": 4}}
        super().__init__(table(algorithm, (1,) * count, training=training, **often), folder, **QUICK | deploy)
        self.count = count

    def begin(self) -> None:
        for i in range(self.count):
            self.up(i)
            self.attend(str(i), i, more=("--patience", "600"))
        until(lambda: all(self.facts("merge", i) for i in range(self.count)))

    def config(self, server: int) -> str:
        return str(self.folder / f"server-{server}" / "config.toml")

    def kill(self, server: int, number: int = signal.SIGKILL) -> None:
        self.servers[server].send_signal(number)
        if number == signal.SIGKILL:
            self.servers[server].wait()

    def end(self, server: int) -> None:
        """A server ends in good order."""
        self.kill(server, signal.SIGTERM)
        assert self.servers[server].wait(200) == 0

    @contextmanager
    def paused(self, server: int) -> Iterator[None]:
        """For a while, all threads of a server stand still, so that its disk does, too."""
        process = self.servers[server]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield
        process.send_signal(signal.SIGCONT)

    def suspects(self, server: int) -> list[int]:
        """Whom a server believes to be away."""
        events = self.log(f"server-{server}")
        last = {
            event["peer"]: event["event"] for event in events if event["event"] in ("peer-suspected", "peer-trusted")
        }
        return [peer for peer, event in last.items() if event == "peer-suspected"]

    def lose(self, server: int) -> None:
        """A server is destroyed with its disk."""
        self.kill(server)
        shutil.rmtree(self.folder / f"server-{server}" / "state")

    def again(self, server: int, *more: str) -> None:
        self.servers[server] = self.up(server, *more)
        self.servers.pop()

    def merges(self, server: int, peer: int) -> int:
        return sum(fact["peer"] == peer for fact in self.facts("merge", server))

    def merges_on(self, server: int, peer: int) -> None:
        """Wait until one server merges another one's model once more."""
        before = self.merges(server, peer)
        until(lambda: self.merges(server, peer) > before)

    def token_places(self) -> dict[int, list[int]]:
        """By epoch, which servers have made a token or got one, in the order of bids."""
        found: dict[int, list[int]] = {}
        for i in range(self.count):
            for fact in self.facts("token", i):
                found.setdefault(epoch_of(fact["bid"]), []).append(fact["bid"])
        return found


def members(capsys: Any, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["members", *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize("algorithm", [pytest.param("spyker", marks=pytest.mark.slow), "stride"])
def test_a_server_that_is_lost_with_its_disk_is_replaced(tmp_path: Path, capsys: Any, algorithm: str) -> None:
    with Servers(tmp_path, algorithm=algorithm) as deployed:
        deployed.begin()
        deployed.lose(0)
        deployed.merges_on(1, 2)
        until(lambda: deployed.facts("peer-suspected", 1))
        now = members(capsys, "replace", deployed.config(1), "0")
        assert [m["state"] for m in now["members"] if m["server"] == 0] == ["expected"]
        shutil.rmtree(deployed.record(0))
        deployed.again(0, "--join")
        deployed.merges_on(1, 0)
        deployed.merges_on(0, 2)
        first = until(lambda: deployed.facts("update", 0))[0]
        assert first["version"] == 1
        assert first["age"] > 5, "it began with a trained model"
        assert {m["state"] for m in members(capsys, "list", deployed.config(1))["members"]} <= {"here", "there"}
        for bids in deployed.token_places().values():
            assert len(bids) == len(set(bids)), "one token in each epoch"


def test_a_server_is_added_and_another_removed(tmp_path: Path, capsys: Any) -> None:
    with Servers(tmp_path) as deployed:
        deployed.begin()
        clients, peers = free_ports(2)
        address = f"127.0.0.1:{peers}"
        known = load_config(Path(deployed.config(0))).deploy
        certs = tmp_path / "certs"
        authority = Authority.load(certs)
        write_server(certs / "server-3", 3, authority, ["127.0.0.1"], 1)
        folder = tmp_path / "server-3"
        folder.mkdir()
        section = DeploymentOptions(
            **{
                "server": 3,
                "region": "region-3",
                "listen_clients": f"127.0.0.1:{clients}",
                "listen_peers": address,
                "peers": (*known.peers, address),
                "ca": "../certs/ca.pem",
                "certificate": "../certs/server-3/cert.pem",
                "key": "../certs/server-3/key.pem",
                "revoked": "../certs/revoked.json",
            }
            | QUICK
        )
        write_config(folder / "config.toml", "../scenario.toml", section)
        assert main(["members", "add", deployed.config(0), "3", known.peers[1]]) == 2
        assert f"{known.peers[1]} is not allowed: it is the address of server 1" in capsys.readouterr().err
        members(capsys, "add", deployed.config(0), "3", address)
        deployed.addresses.append(f"127.0.0.1:{clients}")
        deployed.up(3, "--join")
        deployed.merges_on(0, 3)
        write_client(certs / "client-3", 3, "oslo", authority, 1)
        deployed.attend("3", 3)  # one more than the scenario begins with
        until(lambda: deployed.facts("update", 3))
        now = members(capsys, "remove", deployed.config(0), "1")
        assert [m["server"] for m in now["members"]] == [0, 2, 3]
        assert deployed.servers[1].wait(200) == FENCED, "it was told, and ended"
        (end,) = deployed.log("server-1", "must-stop")
        assert end["reason"].startswith(("membership: server 1 is not one of the servers", "server 1 was removed"))
        assert "`spyker members add` takes it in again" in end["reason"]
        deployed.merges_on(0, 2)
        write_revocations(certs / "revoked.json", [Revocation(3, "oslo")])
        until(lambda: deployed.log("server-3", "revoked"))


@pytest.mark.slow
def test_a_server_whose_disk_was_put_back_begins_anew_and_is_let_in(tmp_path: Path) -> None:
    with Servers(tmp_path) as deployed:
        deployed.begin()
        state, config = tmp_path / "server-1" / "state", Path(deployed.config(1))
        deployed.end(1)
        shutil.copytree(state, tmp_path / "backup", ignore=shutil.ignore_patterns("control", "lock", ".*"))
        page = f'metrics = "127.0.0.1:{free_ports(1)[0]}"'
        config.write_text(config.read_text().replace("[deploy]\n", f"[deploy]\n{page}\n"))
        deployed.again(1, "--resume")
        deployed.merges_on(0, 1)
        deployed.end(1)
        shutil.rmtree(state)
        shutil.copytree(tmp_path / "backup", state)
        until(lambda: all(deployed.suspects(i) == [1] for i in (0, 2)))
        deployed.again(1, "--resume")
        until(lambda: deployed.log("server-1", "reset"))
        deployed.merges_on(0, 1)
        assert deployed.servers[1].poll() is None


@pytest.mark.slow
def test_a_change_that_is_not_agreed_on_in_time_is_not_made_later(tmp_path: Path, capsys: Any) -> None:
    with Servers(tmp_path) as deployed:
        deployed.begin()
        for i in (1, 2):
            deployed.end(i)
        assert main(["members", "replace", deployed.config(0), "2", "--timeout", "1"]) == 1
        assert "Nothing was changed" in capsys.readouterr().err
        for i in (1, 2):
            deployed.again(i, "--resume")
        deployed.merges_on(0, 1)
        deployed.merges_on(0, 2)
        assert deployed.servers[2].poll() is None


@pytest.mark.slow
def test_a_holder_of_the_token_that_was_stopped_for_long_does_not_act_when_it_goes_on(
    tmp_path: Path, capsys: Any
) -> None:
    with Servers(tmp_path) as deployed:
        deployed.begin()
        holder = until(
            lambda: next((i for i in range(3) if members(capsys, "list", deployed.config(i))["token"]), None)
        )
        deployed.kill(holder, signal.SIGSTOP)
        others = [i for i in range(3) if i != holder]
        until(
            lambda: all(
                epoch_of(deployed.facts("token", i)[-1]["bid"]) > 0 for i in others if deployed.facts("token", i)
            )
        )
        until(lambda: any(fact["epoch"] for fact in deployed.facts("epoch", others[0])))
        deployed.merges_on(*others)
        deployed.kill(holder, signal.SIGCONT)
        deployed.merges_on(others[0], holder)
        deployed.merges_on(holder, others[0])
        for bids in deployed.token_places().values():
            assert len(bids) == len(set(bids)), "one token in each epoch"


@pytest.mark.parametrize(("suspect_after", "silent"), [(60.0, False), pytest.param(5.0, True, marks=pytest.mark.slow)])
def test_a_copy_of_a_server_that_runs_gets_nowhere(tmp_path: Path, suspect_after: float, silent: bool) -> None:
    """It does not get the place of the original even if that is believed to be gone for a while."""
    with Servers(tmp_path, suspect_after=suspect_after) as deployed:
        deployed.begin()
        until(lambda: deployed.log("server-1"))
        original = tmp_path / "server-1"
        copied = tmp_path / "copy"
        with deployed.paused(1):  # a running server replaces its checkpoints under the hands of who copies them
            shutil.copytree(original, copied, ignore=shutil.ignore_patterns("control", "lock", ".*"))
        text = (copied / "config.toml").read_text()
        known = load_config(original / "config.toml").deploy
        clients = free_ports(1)[0]
        text = text.replace(known.listen_clients, f"127.0.0.1:{clients}").replace(
            f'listen-peers = "{known.listen_peers}"', f'listen-peers = "127.0.0.1:{free_ports(1)[0]}"'
        )
        (copied / "config.toml").write_text(text)
        command = [sys.executable, "-m", "spyker.cli.main", "serve", str(copied / "config.toml"), "--resume"]
        with (tmp_path / "copy.log").open("wb") as log:
            second = subprocess.Popen(command, stderr=log, stdout=log)
        try:
            until(lambda: b"reset" in (tmp_path / "copy.log").read_bytes())
            until(lambda: b"is another one than the one known here" in (tmp_path / "copy.log").read_bytes())
            # Both have heard the original after the copy, and know that there are two.
            fact, _ = [until(lambda i=i: deployed.facts("server-duplicated", i))[0] for i in (0, 2)]
            assert (fact["peer"], fact["reason"]) == (1, "another key")
            if silent:
                with deployed.paused(1):
                    until(lambda: all(deployed.suspects(i) == [1] for i in (0, 2)))
            deployed.merges_on(0, 1)
            assert deployed.servers[1].poll() is None
            assert second.poll() is None
        finally:
            second.terminate()
            second.wait()
