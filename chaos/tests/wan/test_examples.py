"""Deployment of docs/how-to/deploy.md: its files, names and ports, in four namespaces with the paper's latencies."""

import dataclasses
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from chaos.wan.deployment import wait_for_event
from chaos.wan.namespaces import missing_requirement
from chaos.wan.network import Network
from spyker.config.sections import kebab
from spyker.net.metrics import Metrics
from spyker.net.server_config import DeploymentOptions

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "deploy"
REGIONS = ("hongkong", "paris", "sydney", "california")
SPYKER = [sys.executable, "-m", "spyker.cli.main"]
PROBLEM = missing_requirement()


def test_manifests_mount_the_folders_that_their_commands_name() -> None:
    yaml = pytest.importorskip("yaml")
    for name, kind, verb in (("server", "StatefulSet", "serve"), ("client", "Deployment", "join")):
        documents = {d["kind"]: d for d in yaml.safe_load_all((EXAMPLES / f"kubernetes/{name}.yaml").read_text())}
        (container,) = documents[kind]["spec"]["template"]["spec"]["containers"]
        (folder,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "folder"]
        assert container["args"][:2] == [verb, folder]


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
    federation = tmp_path / "federation"
    named = [f"--server={region}={region}.example.org:7000" for region in REGIONS]
    more = ["--clients=20", "--set=evaluation.interval=10.0", "--set=task.partition=iid", f"--out={federation}"]
    create = [*SPYKER, "federation", "create", "digits", *named, *more, "--set=deploy.metrics=127.0.0.1:9100"]
    subprocess.run(create, check=True, cwd=ROOT)
    with Network(places, hosts) as network:
        for a in REGIONS:
            for b in REGIONS:
                if a != b:
                    network.set(a, b, delay_ms=100)

        def start(place: str, name: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
            with (tmp_path / f"{name}.log").open("wb") as log:
                return network.run(place, [*SPYKER, *command], cwd=ROOT, stdout=log, stderr=log)

        servers = {}
        for region in REGIONS:
            servers[region] = start(region, region, ["serve", federation / f"server-{region}"])
        wait_for_event("listening", servers, tmp_path)
        clients = {}
        for i, region in enumerate(REGIONS):
            network.set(f"clients-{region}", region, delay_ms=1)
            for other in REGIONS:
                if other != region:
                    network.set(f"clients-{region}", other, delay_ms=100)
            for k in (2 * i, 2 * i + 1):
                name = f"client-{k}"
                clients[name] = start(f"clients-{region}", name, ["join", federation / name])
        wait_for_event("link-up", servers, tmp_path, times=3)
        wait_for_event("started", servers, tmp_path)
        facts = {region: federation / f"server-{region}" / "record" / "facts.jsonl" for region in REGIONS}
        wait_for_event("attending", clients, tmp_path)
        for k, name in enumerate(clients):  # each client took the nearest server
            assert f'"server": {k // 2}' in (tmp_path / f"{name}.log").read_text()
        wait_until_all_have(facts, '"kind": "merge"')
        metrics = network.inside("paris", lambda: urllib.request.urlopen("http://127.0.0.1:9100/metrics").read())
        assert b'spyker_connected_clients{server="1"} 2.0' in metrics
        for process in servers.values():
            process.terminate()
        assert [process.wait(200) for process in servers.values()] == [0, 0, 0, 0]
    states = [federation / f"server-{region}" / "state" for region in REGIONS]
    subprocess.run([*SPYKER, "export", *states, "--out", tmp_path / "model"], check=True, cwd=ROOT)
    assert (tmp_path / "model.pt").exists()


def wait_until_all_have(files: dict[str, Path], word: str) -> None:
    deadline = time.monotonic() + 120
    while not all(word in file.read_text() for file in files.values()):
        assert time.monotonic() < deadline, f"not all servers have {word}"
        time.sleep(0.1)
