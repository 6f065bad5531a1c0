"""Log lines, ours and others'."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyker.net.json_log import JsonLog


@pytest.fixture
def spoken() -> Iterator[tuple[JsonLog, io.StringIO]]:
    """A log that speaks for this process, until the test is over."""
    root, stream = logging.getLogger(), io.StringIO()
    before = list(root.handlers)
    log = JsonLog(stream, server=3)
    log.capture_all()
    yield log, stream
    logging.captureWarnings(False)
    root.handlers[:] = before


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_and_its_fields() -> None:
    stream = io.StringIO()
    log = JsonLog(stream, server=3)
    log.info("started 100%", clients=7)
    log.warning("rejected", client=1, detail="a\nb")
    log.error("failed", error=ValueError("no"))
    first, second, third = lines(stream)
    assert list(first) == ["time", "level", "event", "server", "clients"]
    assert (first["level"], first["event"], first["server"], first["clients"]) == ("info", "started 100%", 3, 7)
    assert (second["level"], second["detail"]) == ("warning", "a\nb")
    assert (third["level"], third["error"]) == ("error", "no")


def test_two_logs_of_one_process_stay_apart() -> None:
    one, other = io.StringIO(), io.StringIO()
    JsonLog(one, server=0).info("here")
    JsonLog(other, server=1)
    assert len(lines(one)) == 1
    assert lines(other) == []


def test_what_libraries_say_is_json_too(spoken: tuple[JsonLog, io.StringIO]) -> None:
    _, stream = spoken
    logging.getLogger("another.package").warning("%d things", 5)
    (line,) = lines(stream)
    del line["time"]
    assert line == {"level": "warning", "event": "log", "server": 3, "logger": "another.package", "message": "5 things"}


def test_warnings_are_json_too(spoken: tuple[JsonLog, io.StringIO]) -> None:
    _, stream = spoken
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    (line,) = lines(stream)
    assert line["logger"] == "py.warnings"
    assert "DeprecationWarning: old" in str(line["message"])


def test_an_error_that_nobody_awaited_is_one_line_with_its_traceback(spoken: tuple[JsonLog, io.StringIO]) -> None:
    _, stream = spoken

    async def scene() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0)

    asyncio.run(scene())
    (line,) = lines(stream)
    assert (line["level"], line["logger"]) == ("error", "asyncio")
    assert "ZeroDivisionError" in str(line["traceback"])


SERVED = """
import sys
from concurrent import futures
from pathlib import Path
from spyker.net.certificate_issuing import make_deployment
import grpc
ours, others = Path("ours"), Path("others")
make_deployment(ours, 1, 0), make_deployment(others, 1, 0)
own = [(ours / "server-0" / name).read_bytes() for name in ("key.pem", "cert.pem")]
server = grpc.server(futures.ThreadPoolExecutor(1))
port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([own]))
server.start()
strange = grpc.ssl_channel_credentials((others / "ca.pem").read_bytes())
try:
    grpc.secure_channel(f"localhost:{port}", strange).unary_unary("/x/y")(b"", timeout=30)
except grpc.RpcError as error:
    print(error.code().name)
"""


@pytest.mark.parametrize("asked", [False, True])
def test_grpc_writes_nothing_among_the_lines_unless_it_is_asked_to(tmp_path: Path, asked: bool) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    variables |= {"GRPC_VERBOSITY": "INFO"} if asked else {}
    command = [sys.executable, "-c", SERVED]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=200)
    assert done.stdout == "UNAVAILABLE\n", done.stderr
    assert ("CERTIFICATE_VERIFY_FAILED" in done.stderr) == asked
    assert asked or not done.stderr
