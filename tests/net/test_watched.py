"""A deployment as those who run it see it: its metrics, its log, its health, the dashboard, and TensorBoard."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from deployment import Deployed, table, until
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spyker.net.local_cluster import free_ports
from spyker.net.metrics import Metrics
from spyker.protocol.messages import Message
from spyker.records import RunRecord

MONITORING = Path(__file__).parents[2] / "examples/deploy/monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))


def queries() -> dict[str, str]:
    """By name, every expression of the dashboard as Grafana would ask it."""
    return {
        f"{panel['title']} {target['refId']} ({panel['id']})": target["expr"]
        .replace("$server", ".*")
        .replace("$__rate_interval", "10s")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }


def alerts() -> list[str]:
    return re.findall(r"expr: (.+)", (MONITORING / "alerts.yml").read_text("utf-8"))


# --- The files -------------------------------------------------------------------------------------------------------


def test_the_dashboard_has_the_schema_of_grafana() -> None:
    """What Grafana's own types do not know, they lose: nothing may be missing when it comes back from them."""
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason="needs the extra [dev]")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    assert list(lost(DASHBOARD, back)) == []


def lost(given: Any, back: Any, at: str = "dashboard") -> Iterator[str]:
    """Where two pieces of JSON differ, but for what was added."""
    if isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            yield from lost(value, back[key], f"{at}.{key}") if key in back else [f"{at}.{key}"]
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for i, (one, other) in enumerate(zip(given, back, strict=True)):
            yield from lost(one, other, f"{at}[{i}]")
    elif given != back:
        yield at


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboard_and_alerts_ask_for_metrics_that_exist() -> None:
    parser = pytest.importorskip("promql_parser", reason="needs the extra [dev]")
    there = set()
    for family in Metrics(0, "spyker").registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}
        there |= {family.name + end for end in ends.get(family.type, [""])}
    asked = set()
    for text in [*queries().values(), *alerts()]:
        parser.parse(text)
        asked |= set(re.findall(r"\bspyker_\w+", text))
    assert asked <= there
    assert len(asked) > 15


# --- A deployment ----------------------------------------------------------------------------------------------------


class Watched(NamedTuple):
    """Two servers that run, and where their metrics are."""

    deployed: Deployed
    ports: list[int]

    def metric(self, server: int, name: str) -> dict[str, float]:
        """By kind, or under an empty name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[server]}/metrics", timeout=200) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith(f"spyker_{name}{{")]
        kinds = [re.search(r'kind="([^"]*)"', line) for line in found]
        return {kind[1] if kind else "": float(line.split()[-1]) for kind, line in zip(kinds, found, strict=True)}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with Deployed(table("spyker", (2, 2)), folder, checkpoint_updates=5) as deployed:
        ports = free_ports(2)
        for i, port in enumerate(ports):
            config = folder / f"server-{i}" / "config.toml"
            text = re.sub(r"(?m)^#? ?metrics = .*\n", "", config.read_text("utf-8"))
            config.write_text(f'{text}metrics = "127.0.0.1:{port}"\n', "utf-8")
            deployed.up(i)
        for i in (0, 1):
            deployed.attend(f"{2 * i}-{2 * i + 1}", i)
        until(lambda: len(deployed.facts("merge")) > 1 and len(deployed.facts("evaluation")) > 2)
        yield Watched(deployed, ports)


def test_a_score_is_in_the_record_the_log_and_the_metrics(watched: Watched) -> None:
    lines = watched.deployed.log("server-1", "evaluation")
    facts = watched.deployed.facts("evaluation", 1)
    assert [(line["score"], line["updates"]) for line in lines[:2]] == [(f["mean"], f["updates"]) for f in facts[:2]]

    def agrees() -> bool:
        score = watched.metric(1, "score")[""]
        return any(fact["mean"] == score for fact in watched.deployed.facts("evaluation", 1)[1:])

    assert until(agrees)


def test_health_is_told_over_tls(watched: Watched) -> None:
    authority = (watched.deployed.folder / "certs/ca.pem").read_bytes()
    with grpc.secure_channel(watched.deployed.addresses[0], grpc.ssl_channel_credentials(authority)) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=200)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_prometheus_answers_every_question_of_the_dashboard(watched: Watched, tmp_path: Path) -> None:
    """The real one scrapes the servers. There is nothing refused to be seen; everything else has an answer."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("needs Prometheus (Debian: apt install prometheus)")
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"region": f"region-{i}"}} for i, port in enumerate(watched.ports)
    ]
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "rule_files": [str(MONITORING / "alerts.yml")],
        "scrape_configs": [{"job_name": "spyker", "static_configs": targets}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config), "utf-8")  # which is YAML as well
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "log").open("wb") as log:
        prometheus = subprocess.Popen([binary, *options, f"--web.listen-address={address}"], stdout=log, stderr=log)

    def ask(expression: str) -> Any:
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=200) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            assert prometheus.poll() is None, (tmp_path / "log").read_text()
            return None

    try:
        missing = {name: text for name, text in queries().items() if "rejections" not in text}

        def all_answered() -> bool:
            for name in [name for name, text in missing.items() if ask(text)]:
                del missing[name]  # the token is not always anywhere
            return not missing

        try:
            until(all_answered)
        except AssertionError:
            pytest.fail(f"no answer to {sorted(missing)}")
        assert len(ask('up{job="spyker"} == 1')) == 2
        assert not any(len(ask(expression)) for expression in alerts() if expression.startswith("up{"))
    finally:
        prometheus.terminate()
        prometheus.wait(200)


def test_a_kind_of_message_has_one_spelling_everywhere(watched: Watched) -> None:
    """This one comes last: it ends the servers, whose summaries have the kinds as well."""
    counted = [watched.metric(0, f"{way}_messages_total") for way in ("sent", "received")]
    assert {"model", "token"} <= counted[0].keys()
    assert {"update", "token"} <= counted[1].keys()
    watched.deployed.stop()
    summaries = [RunRecord(watched.deployed.record(i)).summary for i in range(2)]
    told: set[str] = set()
    for summary in summaries:
        assert summary is not None
        told |= summary["messages"].keys()  # what servers tell each other is counted where it was sent
    assert {kind for way in counted for kind in way} <= told
    assert told <= set(all_kinds(Message))


def all_kinds(of: type[Message]) -> Iterator[str]:
    for each in of.__subclasses__():
        yield each.kind
        yield from all_kinds(each)
