"""What is written to standard error past Python's logging."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deployment import deployed, table, until

from spyker.net.json_log import JsonLog
from spyker.net.rate_limited_log import RateLimitedLog
from spyker.net.stderr_capture import tell

LINE = "E1116 17:18:12.866640   20010 chttp2_transport.cc:1403] ipv4:127.0.0.1:41523: Got goaway [11]"


def told(text: str) -> dict[str, Any]:
    stream = io.StringIO()
    tell(RateLimitedLog(JsonLog(stream, server=3)), text)
    return dict(json.loads(stream.getvalue()))


def test_a_line_of_grpc_is_taken_apart() -> None:
    entry = told(LINE)
    assert (entry["level"], entry["event"], entry["server"], entry["logger"]) == ("error", "log", 3, "grpc")
    assert (entry["reason"], entry["message"]) == ("chttp2_transport.cc:1403", "ipv4:127.0.0.1:41523: Got goaway [11]")
    assert told("WARNING: All log messages before …")["logger"] == "stderr"


def test_what_grpc_says_again_and_again_is_said_once_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    limited_log = RateLimitedLog(JsonLog(stream))
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    for failed in range(20):
        tell(limited_log, f"I0000 00:00:17.{failed:06} 7 ssl.cc:25] CERTIFICATE_VERIFY_FAILED")
    tell(limited_log, "I0000 00:00:17.123456 7 ssl.cc:25] No match found for server name")
    limited_log.sum_up(all=True)
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [entry.get("message") for entry in entries] == [
        "CERTIFICATE_VERIFY_FAILED", "No match found for server name", None
    ]  # fmt: skip
    assert (entries[2]["reason"], entries[2]["repeated"]) == ("ssl.cc:25", 19)
    monkeypatch.setenv("GRPC_VERBOSITY", "debug")
    for _ in range(3):
        tell(limited_log, LINE)
    assert stream.getvalue().count("Got goaway") == 3, "who asks for more has all of it"


PROGRAM = f"""
import os, sys
from spyker.net.json_log import JsonLog
from spyker.net.rate_limited_log import RateLimitedLog
from spyker.net.stderr_capture import lines_as_json, own_stderr
log = JsonLog(own_stderr())
with lines_as_json(log):
    log.info("ours")
    os.write(2, {LINE!r}.encode() + b"\\nhalf a ")
    os.write(2, b"line\\n\\xff\\n")
    for _ in range(3):
        os.write(2, {LINE!r}.encode() + b"\\n")
    print("and Python's", file=sys.stderr)
print("spyker: to people", file=sys.stderr)
"""


def test_everything_in_between_is_json_and_what_comes_after_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200)
    *entries, last = done.stderr.splitlines()
    assert done.returncode == 0
    assert [json.loads(line).get("repeated") for line in entries][-1] == 3
    assert last == "spyker: to people"
    assert sorted(json.loads(line).get("message", "") for line in entries) == [
        "", "", "\\xff", "and Python's", "half a line", "ipv4:127.0.0.1:41523: Got goaway [11]"
    ]  # fmt: skip


def test_a_server_whose_grpc_talks_writes_nothing_but_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "debug")
    monkeypatch.setenv("GRPC_TRACE", "http")
    with deployed(table(), tmp_path) as deployment:
        server = deployment.up()
        clients = deployment.attend("0-2")
        until(lambda: len(deployment.facts("update")) >= 3)
        for process in (server, clients):
            process.terminate()
            process.wait(60)
        for name in ("server-0", "clients-0-2"):
            lines = (tmp_path / f"{name}.log").read_text("utf-8").splitlines()
            plain = [line for line in lines if not line.startswith("{")]
            assert not plain, plain[:3]
            assert any(entry.get("logger") == "grpc" for entry in deployment.log(name, "log")), "it did talk"
