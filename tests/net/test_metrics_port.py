"""The port for Prometheus against those who hold connections."""

import socket
import urllib.error
import urllib.request

import pytest
from deployment import DEADLINE

from spyker.net import metrics_port
from spyker.net.metrics import Metrics
from spyker.net.metrics_port import MOST_BYTES, MOST_CONNECTIONS


@pytest.fixture
def metrics():
    made = Metrics(1, "spyker")
    yield made
    made.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def ended(connection):
    """Wait until the other side has closed a connection."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_incomplete_requests_hold_few_connections(metrics, monkeypatch):
    monkeypatch.setattr(metrics_port, "REQUEST_SECONDS", 10 * DEADLINE)
    port = metrics.serve("127.0.0.1", 0)
    strangers = [connect(port) for _ in range(MOST_CONNECTIONS + 3)]
    for each in strangers[:3]:
        assert ended(each), "the oldest give way"
    kind, text = scrape(port)
    assert kind.startswith("text/plain")
    assert "spyker_updates_total" in text


def test_an_incomplete_request_ends(metrics, monkeypatch):
    monkeypatch.setattr(metrics_port, "REQUEST_SECONDS", 0.2)
    with connect(metrics.serve("127.0.0.1", 0)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert ended(slow)


def test_a_long_request_ends(metrics):
    with connect(metrics.serve("127.0.0.1", 0)) as long:
        long.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * MOST_BYTES)
        assert ended(long)


def test_only_reading_is_allowed(metrics):
    port = metrics.serve("127.0.0.1", 0)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/metrics", data=b"x"), timeout=DEADLINE)


def test_formats_are_negotiated(metrics):
    request = urllib.request.Request(f"http://127.0.0.1:{metrics.serve('127.0.0.1', 0)}/metrics")
    request.add_header("Accept", "application/openmetrics-text; version=1.0.0")
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert answer.read().decode().endswith("# EOF\n")
