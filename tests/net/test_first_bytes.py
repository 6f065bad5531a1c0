"""What a connection is for follows from its first bytes, whoever sent them."""

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyker.net.first_bytes import CLIENTS, PEERS, WEBSOCKET, Unreadable, service_of


def hello(name: str | None, *protocols: str) -> bytes:
    """The ClientHello of a real TLS library."""
    context = ssl.create_default_context()
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(protocols)
    sent = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return sent.read()


CASES = [
    (hello("paris.example.org", "h2"), CLIENTS),
    (hello("paris.example.org", "http/1.1", "h2"), CLIENTS),
    (hello("paris.example.org", "http/1.1"), WEBSOCKET),
    (hello("paris.example.org"), WEBSOCKET),
    (hello("server-12.spyker", "h2"), PEERS),
    (hello("server-x.spyker", "h2"), CLIENTS),
    (hello(None, "h2"), CLIENTS),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLIENTS),
    (b"GET /websocket/spyker.Clients/Connect HTTP/1.1\r\n", WEBSOCKET),
]


@pytest.mark.parametrize(("data", "service"), CASES)
def test_each_connection_finds_its_service_however_its_bytes_are_cut(data: bytes, service: str) -> None:
    assert service_of(data) == service
    answers = [service_of(data[:n]) for n in range(1, len(data) + 1)]
    known = answers.index(service)
    assert answers[:known] == [None] * known
    assert set(answers[known:]) == {service}


def test_a_hello_in_two_records_is_put_together() -> None:
    data = hello("server-1.spyker", "h2")
    body, middle = data[5:], 40
    records = [data[:3] + len(part).to_bytes(2) + part for part in (body[:middle], body[middle:])]
    assert service_of(b"".join(records)) == PEERS


@pytest.mark.parametrize(
    "data", [b"POST / HTTP/1.1", b"SSH-2.0-x", b"\x16\x03\x01\x00\x04\x02\0\0\0", b"\x16\x03\x01\0\0"]
)
def test_what_is_neither_tls_nor_http_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        service_of(data)


@given(st.integers(0, 300), st.binary(max_size=8), st.binary(max_size=300))
def test_no_bytes_do_harm(start: int, changed: bytes, junk: bytes) -> None:
    good = CASES[0][0]
    for data in (junk, b"\x16\x03\x01" + junk, good[:start] + changed + good[start + len(changed) :]):
        with contextlib.suppress(Unreadable):
            assert service_of(data) in (None, CLIENTS, PEERS, WEBSOCKET)
