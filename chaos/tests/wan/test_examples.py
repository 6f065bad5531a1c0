"""Deployment of docs/how-to/deploy.md: its files, names and ports, in four namespaces with the paper's latencies."""

import dataclasses
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import pytest

from chaos.wan.deployment import clients_of, wait_for_word
from chaos.wan.namespaces import why_not
from chaos.wan.network import Network
from spyker.config.scenario import load
from spyker.config.sections import kebab
from spyker.net.metrics import Metrics
from spyker.net.server_config import DeploymentOptions

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "deploy"
REGIONS = ("hongkong", "paris", "sydney", "california")
SPYKER = [sys.executable, "-m", "spyker.cli.main"]
PROBLEM = why_not()


def test_manifests_and_configurations_say_the_same() -> None:
    yaml = pytest.importorskip("yaml")
    for i, region in enumerate(REGIONS):
        config = tomllib.loads((EXAMPLES / f"{region}.toml").read_text())
        documents = {d["kind"]: d for d in yaml.safe_load_all((EXAMPLES / f"kubernetes/{region}.yaml").read_text())}
        theirs = tomllib.loads(documents["ConfigMap"]["data"]["server.toml"])
        assert config["deploy"]["server"] == theirs["deploy"]["server"] == i
        for key in ("peers", "listen-clients", "listen-peers", "state", "record"):
            assert config["deploy"][key] == theirs["deploy"][key]
        arguments = documents["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
        mine = clients_of(load(EXAMPLES / "scenario.toml"), i)
        assert f"--clients={mine[0]}-{mine[-1]}" in arguments


def test_alerts_and_document_name_metrics_that_exist() -> None:
    families = Metrics(0, "spyker").registry.collect()
    known = {name for f in families for name in (f.name, f"{f.name}_total", f"{f.name}_count")}
    for file in (EXAMPLES / "monitoring" / "alerts.yml", ROOT / "docs" / "how-to" / "operate.md"):
        named = set(re.findall(r"\bspyker_[a-z_]+", file.read_text()))
        assert named
        assert named <= known


def test_the_document_names_keys_and_files_that_exist() -> None:
    text = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    keys = {kebab(field.name) for field in dataclasses.fields(DeploymentOptions)}
    table = text.partition("| key | what it does |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z-]+)`", table))
    assert named
    assert named <= keys
    for file in re.findall(r"(?<![\w/])examples/deploy/[\w/@.-]*\w", text):
        assert (ROOT / file).exists(), file


@pytest.mark.slow  # eight processes with PyTorch
@pytest.mark.skipif(PROBLEM is not None, reason=f"no network can be made here: {PROBLEM}")
def test_four_regions_come_up_and_learn_together(tmp_path: Path) -> None:
    hosts = {f"{region}.example.org": region for region in REGIONS}
    places = [*REGIONS, *(f"clients-{region}" for region in REGIONS)]
    named = [f"--host={i}={region}.example.org" for i, region in enumerate(REGIONS)]
    subprocess.run([*SPYKER, "certs", tmp_path / "certs", "--servers=4", "--clients=100", *named], check=True, cwd=ROOT)
    with Network(places, hosts) as network:
        for a in REGIONS:
            for b in REGIONS:
                if a != b:
                    network.set(a, b, delay_ms=100)

        def start(place: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
            with (tmp_path / f"{place}.log").open("wb") as log:
                return network.run(place, [*SPYKER, *command], cwd=ROOT, stdout=log, stderr=log)

        servers = {}
        for i, region in enumerate(REGIONS):
            etc = tmp_path / region
            (etc / "certs").mkdir(parents=True)
            shutil.copy(EXAMPLES / "scenario.toml", etc)
            text = (EXAMPLES / f"{region}.toml").read_text().replace("/var/lib/spyker", str(etc / "var"))
            (etc / "server.toml").write_text(text)
            for file in (*(tmp_path / "certs" / f"server-{i}").iterdir(), tmp_path / "certs" / "clients.json"):
                shutil.copy(file, etc / "certs")
            servers[region] = start(region, ["serve", etc / "server.toml", "--resume"])
        wait_for_word("listening", servers, tmp_path)
        every = [word for host in hosts for word in ("--server", f"{host}:7000")]
        for i, region in enumerate(REGIONS):
            network.set(f"clients-{region}", region, delay_ms=1)
            for other in REGIONS:
                if other != region:
                    network.set(f"clients-{region}", other, delay_ms=100)
            scenario = EXAMPLES / "scenario.toml"
            some = ["--clients", f"{25 * i}-{25 * i + 4}", "--certs", tmp_path / "certs"]
            start(f"clients-{region}", ["join", scenario, *some, *every])
        wait_for_word("link-up", servers, tmp_path, times=3)
        wait_for_word("started", servers, tmp_path)
        facts = {region: tmp_path / region / "var" / "record" / "facts.jsonl" for region in REGIONS}
        wait_for_word("attending", {f"clients-{region}": servers[region] for region in REGIONS}, tmp_path, times=5)
        for i, region in enumerate(REGIONS):  # each client took the nearest server
            log = (tmp_path / f"clients-{region}.log").read_text()
            assert log.count(f'"server": {i}') == 5
        wait_until_all_have(facts, '"kind": "merge"')
        metrics = network.inside("paris", lambda: urllib.request.urlopen("http://127.0.0.1:9100/metrics").read())
        assert b'spyker_connected_clients{server="1"} 5.0' in metrics
        for process in servers.values():
            process.terminate()
        assert [process.wait(60) for process in servers.values()] == [0, 0, 0, 0]
    states = [tmp_path / region / "var" / "state" for region in REGIONS]
    subprocess.run([*SPYKER, "export", *states, "--out", tmp_path / "model"], check=True, cwd=ROOT)
    assert (tmp_path / "model.pt").exists()


def wait_until_all_have(files: dict[str, Path], word: str) -> None:
    deadline = time.monotonic() + 120
    while not all(word in file.read_text() for file in files.values()):
        assert time.monotonic() < deadline, f"not all servers have {word}"
        time.sleep(0.1)
