"""``dash``, ``report`` and ``--dashboard``."""

import html
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from recording import judged, started, write
from ring import write_ring

from spyker.cli.main import main
from spyker.dashboard.bundle import SCRIPTS, STATIC, script, text
from spyker.dashboard.child_process import DashboardProcess
from spyker.dashboard.http_server import DashboardServer
from spyker.records import FACTS, InitialModelLoaded, line


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_host_without_a_token_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(write_ring(tmp_path / "run"))
    monkeypatch.delenv("SPYKER_DASH_TOKEN", raising=False)
    assert main(["dash", folder, "--host", "0.0.0.0"]) == 2
    assert "without a token" in said(capsys)
    assert main(["dash", folder, "--host", "0.0.0.0", "--token", "short"]) == 2
    assert "at least 12" in said(capsys)
    monkeypatch.setenv("SPYKER_DASH_TOKEN", "short")
    assert main(["dash", folder, "--host", "::"]) == 2


def test_bad_input_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_ring(tmp_path / "run"))
    for words, problem in (
        (["dash", str(tmp_path / "nothing")], "does not exist"),
        (["dash", folder, "--port", "99999"], "from 0 to 65535"),
        (["report", str(tmp_path / "nothing")], "does not exist"),
        (["report", folder, "--window", "3-2"], "two times"),
        (["report", folder, "--out", str(tmp_path)], "is a folder"),
    ):
        assert main(words) == 2
        assert problem in said(capsys)


def test_the_page_needs_its_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyker.extras.find_spec", lambda name: None)
    assert main(["dash", str(write_ring(tmp_path / "run"))]) == 2
    assert "spyker-fl[dashboard]" in said(capsys)


def test_dash_serves_until_it_is_ended(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "spyker", "dash", str(write_ring(tmp_path / "run")), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert url is not None
        assert requests.get(url[0], timeout=200).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(200) == 0


def test_without_port_dash_takes_a_free_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    enter, before = DashboardServer.__enter__, signal.getsignal(signal.SIGTERM)

    def enter_and_end(server: DashboardServer) -> DashboardServer:
        os.kill(os.getpid(), signal.SIGTERM)
        return enter(server)

    monkeypatch.setattr(DashboardServer, "__enter__", enter_and_end)
    folder = str(write_ring(tmp_path / "run"))
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setattr("spyker.cli.dash.PORT", port)
        try:
            assert main(["dash", folder]) == 0
            assert re.search(rf"page: http://127\.0\.0\.1:(?!{port}/)\d+/", capsys.readouterr().out)
            assert main(["dash", folder, "--port", str(port)]) == 2
            assert f"--port: {port} on 127.0.0.1 cannot be used" in said(capsys)
        finally:
            signal.signal(signal.SIGTERM, before)


def test_a_page_beside_a_command_ends_with_it(tmp_path: Path) -> None:
    beside = DashboardProcess([write_ring(tmp_path / "run")], 0)
    assert requests.get(beside.url, timeout=200).status_code == 200
    other = DashboardProcess([tmp_path / "not-yet"], beside.port)
    assert other.port != beside.port, "a port that is taken is no reason not to run"
    for each in (beside, other):
        each.close()
        assert each._process.returncode == 0
    with pytest.raises(requests.ConnectionError):
        requests.get(beside.url, timeout=200)


def test_a_run_with_a_dashboard_leaves_the_same_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    common = ["run", "--task", "quadratic", "--clients", "8", "--duration", "2", "--workers", "0"]
    assert main([*common, "--out", str(tmp_path / "plain")]) == 0
    capfd.readouterr()
    assert main([*common, "--out", str(tmp_path / "watched"), "--dashboard"]) == 0
    assert "page: http://127.0.0.1:" in capfd.readouterr().err
    assert (tmp_path / "plain" / FACTS).read_bytes() == (tmp_path / "watched" / FACTS).read_bytes()


def test_the_report_is_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    assert main(["report", str(write_ring(tmp_path / "run")), "--out", str(out)]) == 0
    page = out.read_text("utf-8")
    assert not re.findall(r"<link|<img|<iframe|src=|@import|url\(", page)
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "spyker run scenario.toml</pre>" in page
    assert "h-inter = 5.0" in page


def test_the_report_says_which_model_a_run_began_from(tmp_path: Path) -> None:
    folder = write_ring(tmp_path / "run")
    lines = (folder / FACTS).read_text().splitlines(keepends=True)
    lines.insert(1, line(0.0, InitialModelLoaded("my models/first.safetensors", "c0ffee")))
    (folder / FACTS).write_text("".join(lines))
    assert main(["report", str(folder), "--out", str(tmp_path / "report.html")]) == 0
    page = html.unescape((tmp_path / "report.html").read_text("utf-8"))
    assert "spyker run scenario.toml --initial-model 'my models/first.safetensors'" in page
    assert "c0ffee" in page


def test_a_report_on_servers_of_their_own_says_how_to_merge_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in (0, 1):
        write(tmp_path / f"server-{i}" / "record", started(server=i, began=1.0), [(1.0, judged(1, 0.5))])
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 2
    assert f"spyker merge {tmp_path / 'server-0' / 'record'}" in said(capsys)
    assert not (tmp_path / "report.html").exists()


def test_modules_import_only_those_before_them_and_nothing_else() -> None:
    known: set[str] = set()
    for name in SCRIPTS:
        source = text(name)
        imports = re.findall(r'^import .* from "\./(.*)";$', source, re.MULTILINE)
        assert len(imports) == source.count("import "), name
        assert set(imports) <= known, name
        assert "innerHTML" not in source
        assert "http" not in source.replace("http://www.w3.org/2000/svg", ""), name
        known.add(name)
    assert "import " not in script()
    here = {path.name for path in (Path(__file__).parents[2] / "spyker/dashboard/static").iterdir()}
    assert here == STATIC
