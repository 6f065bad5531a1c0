"""Real proxies, with the configurations of docs/how-to/proxies.md."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deployment import DEADLINE
from pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "proxies.md"
NGINX = """
daemon off;
user root;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log access.log;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{}
}}
"""


def configuration(first_line: str, changes: Mapping[str, str]) -> str:
    """A block of the page with other names; each must occur in it."""
    (text,) = (block.text for block in blocks(PAGE.read_text("utf-8")) if block.text.startswith(f"# {first_line}\n"))
    for before, after in changes.items():
        assert before in text, f"{before} is not in the page any more"
        text = text.replace(before, after)
    return text


def need(program: str) -> str:
    """The path of a program, or skip the test."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"{program} is not installed: make proxies")
    return found


@contextlib.contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A proxy that listens, until the end of the block."""
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + DEADLINE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, (folder / "proxy.log").read_text("utf-8", "replace")
            assert time.monotonic() < deadline, "the proxy does not listen"
            time.sleep(0.03)
        yield process
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def nginx(folder: Path, port: int, servers: str) -> Iterator[None]:
    """Run nginx with these blocks ``server``."""
    program = need("nginx")
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX.format(servers), "utf-8")
    with running([program, "-p", f"{folder}/", "-c", "nginx.conf", "-e", "stderr"], folder, port):
        yield


@contextlib.contextmanager
def haproxy(folder: Path, port: int, text: str) -> Iterator[None]:
    """Run HAProxy with this configuration."""
    program = need("haproxy")
    folder.mkdir(exist_ok=True)
    (folder / "haproxy.cfg").write_text(text, "utf-8")
    with running([program, "-db", "-f", "haproxy.cfg"], folder, port):
        yield


@contextlib.contextmanager
def squid(port: int, users: Mapping[str, str], changes: Mapping[str, str]) -> Iterator[Path]:
    """Run Squid, and give its access log."""
    program = need("squid")
    with tempfile.TemporaryDirectory(prefix="squid-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # if root starts it, it becomes another user, who must read and write here
        passwords, log = folder / "passwords", folder / "access.log"
        hashes = {user: ["openssl", "passwd", "-apr1", word] for user, word in users.items()}
        passwords.write_text(
            "".join(f"{user}:{subprocess.check_output(command, text=True)}" for user, command in hashes.items())
        )
        text = configuration("squid.conf", {"3128": str(port), "/etc/squid/passwords": str(passwords), **changes})
        text += f"access_log stdio:{log}\ncache_log {folder}/cache.log\npid_filename none\ncache deny all\n"
        (folder / "squid.conf").write_text(f"{text}shutdown_lifetime 0 seconds\n", "utf-8")
        with running([program, "-N", "-f", str(folder / "squid.conf")], folder, port):
            yield log
