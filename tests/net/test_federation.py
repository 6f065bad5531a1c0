"""A federation in folders: created in one command, run from its folders, and changed while it runs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deployment import until

from spyker.cli.main import main
from spyker.config.scenario import load
from spyker.net.client_folder import load_client
from spyker.net.client_identity import load_identity
from spyker.net.federation_folder import load_federation, parse_server
from spyker.net.local_cluster import free_ports
from spyker.net.server_config import load_config
from spyker.tasks.served_model import read_served_model

TASK = """
import numpy as np
import spyker

class Task(spyker.FederatedTask):
    def __init__(self, size=3):
        self.size = size
    def model(self):
        return {"w": np.zeros(self.size, np.float32)}
    def data(self, client):
        return np.loadtxt(client.options["data"], ndmin=1)
    def client_test(self, client):
        return self.data(client)
    def train(self, model, data, *, rate, seed, training):
        return {"w": model["w"] + np.float32(rate) * (np.float32(data.mean()) - model["w"])}
    def evaluate(self, model, data):
        return float(abs(model["w"] - data.mean()).max())
"""
SECRET = "the-records-of-nobody-else"


def create(folder: Path, *more: str, task: str = "quadratic", servers: int = 2, clients: str = "charite mayo") -> int:
    """Create a federation on this machine."""
    ports = free_ports(2 * servers)
    where = [f"--server={['paris', 'tokyo'][i]}=127.0.0.1:{ports[2 * i]}/{ports[2 * i + 1]}" for i in range(servers)]
    named = [f"--client={name}" for name in clients.split()]
    return main(["federation", "create", task, *where, *named, "--out", str(folder), *more])


class Processes:
    """Processes that are started from their folders, and their logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, command: str, name: str, *more: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            words = [sys.executable, "-m", "spyker.cli.main", command, name, *more]
            process = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log, env=os.environ.copy())
        self.running[name] = process
        return process

    def log(self, name: str, event: str) -> list[dict[str, Any]]:
        path = self.folder / f"{name}.log"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in found if line["event"] == event]

    def await_line(self, name: str, event: str, times: int = 1) -> dict[str, Any]:
        """Wait for a log line, as long as the process runs."""

        def found() -> list[dict[str, Any]]:
            lines = self.log(name, event)
            ended = self.running[name].poll()
            assert len(lines) >= times or ended is None, (self.folder / f"{name}.log").read_text()
            return lines if len(lines) >= times else []

        lines: list[dict[str, Any]] = until(found)
        return lines[-1]

    def updates(self, server: str, client: int) -> int:
        """How many updates of a client a server has recorded."""
        path = self.folder / server / "record" / "facts.jsonl"
        text = path.read_text("utf-8") if path.exists() else ""
        facts = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return sum(fact.get("kind") == "update" and fact.get("client") == client for fact in facts)


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    started = Processes(folder)
    try:
        yield started
    finally:
        for process in started.running.values():
            process.send_signal(signal.SIGTERM)
        for process in started.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- Creation ---------------------------------------------------------------------------------------------------------


def test_a_folder_holds_all_that_its_machine_needs_and_no_more(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "federation"
    assert create(out, "--clients", "3", "--set", "deploy.heartbeat=0.5") == 0
    said = capsys.readouterr().out
    for line in ("spyker serve server-paris", "spyker join client-mayo", "spyker join client-2", "ca.key"):
        assert line in said
    server = {"ca.pem", "cert.pem", "key.pem", "model.safetensors", "revoked.json", "scenario.toml", "server.toml"}
    assert {path.name for path in (out / "server-tokyo").iterdir()} == server
    client = {"ca.pem", "cert.pem", "client.toml", "key.pem", "scenario.toml"}
    assert {path.name for path in (out / "client-charite").iterdir()} == client
    assert len({path.read_bytes() for path in out.glob("*/scenario.toml")}) == 1, "one scenario for all"
    assert load(out / "scenario.toml").world.client_names == ("charite", "mayo", "client-2")
    assert load(out / "client-mayo" / "scenario.toml").world.client_names is None, (
        "a client does not learn the others' names"
    )
    assert {path.stat().st_mode & 0o777 for path in (*out.rglob("key.pem"), out / "ca.key")} == {0o600}
    config = load_config(out / "server-tokyo")
    assert (config.deploy.server, config.deploy.heartbeat) == (1, 0.5)
    assert config.scenario.world.regions == ("paris", "tokyo")
    assert config.scenario.client_count == 3
    folder = load_client(out / "client-mayo")
    assert (folder.client.name, folder.client.number, folder.client.numbers) == ("mayo", 1, (0, 1))
    assert folder.client.servers == tuple(entry.clients for entry in load_federation(out).servers.values())
    assert load_identity(out / "client-2", 2).client.name == "client-2"
    assert read_served_model(out / "model.safetensors").spec.digest.hex() == folder.client.layout


def test_servers_have_two_ports() -> None:
    name, entry = parse_server("paris=paris.example.org:7000")
    assert (name, entry.clients, entry.peers) == ("paris", "paris.example.org:7000", "paris.example.org:7100")
    assert entry.host == "paris.example.org"
    assert parse_server("a=[2001:db8::1]:7000/8000")[1].peers == "[2001:db8::1]:8000"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--client", "a"], "--server: is missing"),
        (["--server", "x=h:1"], "--client: is missing"),
        (["--server", "x=h:1", "--client", "a", "--client", "A"], '--client: "A" is not allowed: the name is used'),
        (["--server", "x=h:1", "--client", "a/b"], '--client: "a/b" is not allowed'),
        (["--server", "../x=h:1", "--client", "a"], '--server: "../x" is not allowed'),
        (["--server", "x=h:1", "--server", "x=i:1", "--client", "a"], "--server: x is given twice"),
        (["--server", "x=h:1", "--server", "y=h:1", "--clients", "2"], "h:1 is not allowed: it is an address of x"),
        (["--server", "x=h", "--client", "a"], '--server: "x=h" is not allowed. Write NAME=HOST:PORT'),
        (["--server", "x=h:70000", "--client", "a"], '--server: "x=h:70000" is not allowed'),
        (["--server", "x=server-1.spyker:1", "--client", "a"], "is not allowed. Write NAME=HOST:PORT"),
        (["--server", "x=h:1", "--client", "a", "--clients", "0"], "--clients: 0 is not allowed"),
        (["--server", "x=h:1", "--server", "y=i:1", "--client", "a"], "each of the 2 regions needs a client"),
        (["--server", "x=h:1", "--client", "a", "--days", "0"], "--days: 0 is not allowed"),
        (["--server", "x=h:1", "--client", "a", "--days", "1e9"], "--days: 1000000000.0 is not allowed"),
        (["--server", "x=h:1", "--client", "a", "--set", "deploy.nonsense=1"], "deploy.nonsense: unknown key"),
        (["--server", "x=h:1", "--client", "a", "--algorithm", "hierfavg"], "--server: is missing. Give at least 2"),
        (
            ["--server", "x=h:1", "--server", "y=i:1", "--client", "a", "--algorithm", "fedavg"],
            "the algorithm has one server",
        ),
    ],
)
def test_bad_input_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["federation", "create", "quadratic", *words]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_federation_is_replaced_only_when_asked_and_nothing_else_ever(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "federation"
    assert create(out) == 0
    before = content(out)
    assert create(out) == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert content(out) == before
    assert create(out, "--overwrite") == 0
    assert (out / "ca.pem").read_bytes() != before[out / "ca.pem"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("kept")
    assert create(tmp_path / "mine", "--overwrite") == 2
    assert "is not the folder of a federation" in capsys.readouterr().err
    assert (tmp_path / "mine" / "precious").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["federation", "mine"], "no temporary folder is left"


def test_the_last_server_of_a_hierarchy_is_the_cloud(tmp_path: Path) -> None:
    out = tmp_path / "federation"
    assert create(out, "--algorithm", "hierfavg", clients="charite") == 0
    assert load_config(out / "server-tokyo").scenario.world.regions == ("paris",)
    assert load_client(out / "client-charite").client.numbers == (0,), "clients do not call it"


# --- Changes ----------------------------------------------------------------------------------------------------------


def test_clients_are_added_removed_and_renewed(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "federation"
    assert create(out) == 0
    assert main(["federation", "add-client", "oslo", str(out)]) == 0
    assert load_identity(out / "client-oslo", 2).client.name == "oslo"
    assert main(["federation", "remove-client", "mayo", str(out)]) == 0
    assert "server-tokyo/revoked.json" in capsys.readouterr().out
    assert not (out / "client-mayo").exists()
    assert main(["federation", "add-client", "mayo", str(out)]) == 2, "a name is not used again"
    assert main(["federation", "add-client", "turin", str(out)]) == 0
    assert main(["federation", "remove-client", "turin", str(out)]) == 0
    assert main(["federation", "add-client", "rome", str(out)]) == 0
    assert load_identity(out / "client-rome", 4), "nor is a number"
    old = load_identity(out / "client-oslo", 2).client.serial
    assert main(["federation", "renew", "oslo", str(out), "--revoke", "--days", "7"]) == 0
    assert load_identity(out / "client-oslo", 2).client.serial != old
    gone = [{"client": 1, "name": "mayo"}, {"client": 3, "name": "turin"}]
    revoked = [*gone, {"client": 2, "name": "oslo", "serial": f"{old:x}"}]
    for folder in (out, out / "server-paris", out / "server-tokyo"):
        assert json.loads((folder / "revoked.json").read_text()) == revoked
    before = (out / "server-paris" / "cert.pem").read_bytes()
    assert main(["federation", "renew", "server-paris", str(out)]) == 0
    assert (out / "server-paris" / "cert.pem").read_bytes() != before
    capsys.readouterr()
    assert main(["federation", "list", str(out), "--json"]) == 0
    found = {row["name"]: row["valid until"] for row in json.loads(capsys.readouterr().out)}
    assert list(found) == ["paris", "tokyo", "charite", "mayo", "oslo", "turin", "rome"]
    assert found["mayo"] == "removed"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["oslo"])


@pytest.mark.parametrize(
    "words",
    [
        ["add-client", "charite"],
        ["add-client", "a b"],
        ["remove-client", "nobody"],
        ["renew", "nobody"],
        ["renew", "paris", "--revoke"],
        ["add-server", "paris=127.0.0.1:1"],
        ["add-server", "rome"],
    ],
)
def test_a_change_that_is_not_possible_changes_nothing(tmp_path: Path, capsys: Any, words: list[str]) -> None:
    out = tmp_path / "federation"
    assert create(out) == 0
    before = content(out)
    assert main(["federation", *words[:2], str(out), *words[2:]]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert content(out) == before


def test_a_server_is_added_with_the_addresses_of_all(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "federation"
    assert create(out) == 0
    assert main(["federation", "add-server", "rome=rome.example.org:7000", str(out)]) == 0
    assert "spyker members add server-paris 2 rome.example.org:7100" in capsys.readouterr().out
    deploy = load_config(out / "server-rome").deploy
    assert (deploy.server, deploy.region, len(deploy.peers)) == (2, "rome", 3)
    assert deploy.listen_clients == "0.0.0.0:7000"


# --- Code -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A federation with a task of the user's own, whose clients have a file with numbers each."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_federated_task.py").write_text(TASK)
    assert create(tmp_path / "federation", task="my_federated_task:Task") == 0
    yield tmp_path
    sys.modules.pop("my_federated_task", None)


def test_the_operator_needs_no_data(own_task: Path) -> None:
    model = read_served_model(own_task / "federation" / "server-paris" / "model.safetensors")
    assert model.weights.size == 3
    assert len(model.spec.code) >= 64
    assert load_client(own_task / "federation" / "client-mayo").client.code == model.spec.code


def test_other_code_is_refused_unless_it_is_allowed(own_task: Path, capsys: Any) -> None:
    folder = own_task / "federation" / "client-charite"
    digest = load_client(folder).client.code[:16]
    (own_task / "my_federated_task.py").write_text(TASK + "\n# changed\n")
    capsys.readouterr()
    join = ["join", str(folder), "--give-up", "0"]
    assert main([*join, "--check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("spyker: task.name: the code of my_federated_task:Task has the digest ")
    assert f"and {digest} in the federation. Use the operator's version" in said
    assert main([*join, "--check", "--allow-other-code"]) == 2
    assert "does not answer" in capsys.readouterr().err, "no server runs"
    text = (folder / "client.toml").read_text().replace("allow-other-code = false", "allow-other-code = true")
    (folder / "client.toml").write_text(text)
    assert main([*join, "--check"]) == 2
    assert "does not answer" in capsys.readouterr().err
    (own_task / "my_federated_task.py").unlink()
    (folder / "client.toml").write_text(text.replace("allow-other-code = true", "allow-other-code = false"))
    assert main([*join, "--check"]) == 2
    assert "was not found on this machine" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--clients", "0"], ["--insecure"], ["--set", "seed=2"], ["--server", "h:1"]])
def test_the_folder_says_it_all(own_task: Path, capsys: Any, words: list[str]) -> None:
    assert main(["join", str(own_task / "federation" / "client-mayo"), *words]) == 2
    assert "is not allowed with the folder of a client" in capsys.readouterr().err


# --- Processes --------------------------------------------------------------------------------------------------------


def test_a_federation_trains_takes_clients_in_and_refuses_removed_ones(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "federation"
    assert create(out, "--set", "deploy.checkpoint-updates=10", clients="charite mayo oslo") == 0
    with processes(out) as started:
        for name in ("server-paris", "server-tokyo"):
            started.start("serve", name)
            started.await_line(name, "listening")

        def accepted() -> str:
            capsys.readouterr()
            code = main(["join", str(out / "client-charite"), "--check"])
            return capsys.readouterr().out if code == 0 else ""

        said = until(accepted)  # a busy machine may not answer at once
        assert said.count("accepts client 0 (charite)") == 2
        assert re.search(r"one training took .* s; peak memory .* MB\nclient 0 \(charite\) can take part\n", said)
        assert not started.log("server-paris", "started"), "a check registers nobody"
        for name in ("client-charite", "client-mayo", "client-oslo"):
            started.start("join", name, "--paced")
        at = {name: started.await_line(name, "attending")["server"] for name in ("client-charite", "client-mayo")}
        places = ("server-paris", "server-tokyo")
        until(lambda: started.updates(places[at["client-charite"]], 0))
        until(lambda: started.updates(places[at["client-mayo"]], 1))

        assert main(["federation", "add-client", "rome", str(out)]) == 0  # while they run
        shutil.copytree(out / "client-rome", out / "rome")  # as on its own machine
        rome = started.start("join", "rome", "--paced", "--option", f"secret={SECRET}")
        server = places[started.await_line("rome", "attending")["server"]]
        until(lambda: started.updates(server, 3))

        assert main(["federation", "remove-client", "rome", str(out)]) == 0
        assert rome.wait(200) == 1
        assert "was revoked" in (out / "rome.log").read_text()
        revoked = started.await_line(server, "revoked")
        assert (revoked["client"], revoked["name"]) == (3, "rome")
        rejected = started.await_line(server, "rejected")
        assert rejected["reason"] == "identity"
        assert started.running["client-charite"].poll() is None, "the others go on"
        capsys.readouterr()
        assert main(["join", str(out / "rome"), "--check"]) == 2
        assert "the certificate of client 3 (rome) was revoked. Ask the operator" in capsys.readouterr().err

        started.running["server-paris"].send_signal(signal.SIGTERM)
        assert started.running["server-paris"].wait(200) == 0
        started.start("serve", "server-paris")  # it resumes by itself
        started.await_line("server-paris", "server-resumed")
    for path in out.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), f"a local option is in {path}"


def test_data_and_code_stay_with_the_clients(own_task: Path) -> None:
    """Servers run in a folder without the task's code; clients read their files; nothing says where these are."""
    out = own_task / "federation"
    shutil.copy(own_task / "my_federated_task.py", out)
    (own_task / SECRET).write_text("1\n2\n3\n")
    (own_task / "mayo.csv").write_text("5\n")
    elsewhere = own_task / "elsewhere"
    shutil.copytree(out, elsewhere)
    (elsewhere / "my_federated_task.py").unlink()
    with processes(elsewhere) as servers, processes(out) as clients:
        for name in ("server-paris", "server-tokyo"):
            servers.start("serve", name)
            servers.await_line(name, "listening")
        check = clients.start("join", "client-charite", "--data", str(own_task / SECRET), "--check")
        assert check.wait(200) == 0, (out / "client-charite.log").read_text()
        assert "3 examples, loaded in" in (out / "client-charite.log").read_text()
        missing = clients.start("join", "client-mayo", "--check")
        assert missing.wait(200) == 2, "the task needs --data"
        assert "--data and --option name the data" in (out / "client-mayo.log").read_text()
        clients.start("join", "client-charite", "--data", str(own_task / SECRET))
        clients.start("join", "client-mayo", "--data", str(own_task / "mayo.csv"))
        for number, name in enumerate(("client-charite", "client-mayo")):
            place = ("server-paris", "server-tokyo")[clients.await_line(name, "attending")["server"]]
            until(lambda place=place, number=number: servers.updates(place, number))
    for folder in (out, elsewhere):
        for path in folder.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), f"a local option is in {path}"
