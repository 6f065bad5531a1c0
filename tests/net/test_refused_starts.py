"""What a process of a deployment cannot begin with: exit code 2, and one line that names the key and the remedy."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.net.certificate_authority import Authority
from spyker.net.certificate_check import check_certificate, leads_to, read_certificates
from spyker.net.certificate_issuing import LOOPBACK, make_deployment, write_server
from spyker.net.checkpoints import Checkpoints
from spyker.net.server_config import DeploymentOptions, ServerConfig, load_config, write_config

SPYKER = [sys.executable, "-m", "spyker.cli.main"]
SCENARIO = """
[task]
name = "quadratic"
[world]
regions = ["Paris", "Rome"]
clients = [1, 1]
latency-ms = [[1, 1], [1, 1]]
"""


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """Certificates of two servers, and a scenario for them."""
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    make_deployment(tmp_path / "certs", 2, 2)
    return tmp_path / "certs"


def configured(certs: Path, **changes: str | int) -> Path:
    """The configuration of server 0, but for some changes."""
    own = certs / "server-0"
    keys = {"ca": own / "ca.pem", "certificate": own / "cert.pem", "key": own / "key.pem"}
    paths = {key: str(path) for key, path in keys.items()} | {"revoked": str(certs / "revoked.json")}
    peers = ("127.0.0.1:7100", "127.0.0.1:7101")
    config = certs.parent / "config.toml"
    write_config(config, "scenario.toml", DeploymentOptions(**{"peers": peers} | paths | changes))  # type: ignore[arg-type]
    return config


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command says when it refuses to begin."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def refused_server(certs: Path, capsys: pytest.CaptureFixture[str], **changes: str | int) -> str:
    said = refused(["serve", str(configured(certs, **changes))], capsys)
    assert not (certs.parent / "state").exists()
    return said


# --- Certificates -----------------------------------------------------------------------------------------------------


def test_the_key_of_another_certificate(certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused_server(certs, capsys, key=str(certs / "server-1" / "key.pem"))
    assert said.startswith("spyker: deploy.key: ")
    assert "is not the key of deploy.certificate" in said
    assert "from one folder of the federation" in said


def test_the_certificate_of_another_server(certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = certs / "server-1"
    said = refused_server(certs, capsys, key=str(other / "key.pem"), certificate=str(other / "cert.pem"))
    assert said.startswith("spyker: deploy.certificate: ")
    assert "is for server-1.spyker, localhost, and this is server 0. Take that of server-0.spyker" in said


def test_a_certificate_that_has_expired(certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_server(certs / "server-0", 0, Authority.load(certs), LOOPBACK, -1)
    said = refused_server(certs, capsys)
    assert said.startswith("spyker: deploy.certificate: ")
    assert "cert.pem expired on " in said
    assert "spyker federation renew" in said


def own(certs: Path) -> ServerConfig:
    return load_config(configured(certs))


def test_a_certificate_before_its_time(certs: Path) -> None:
    check_certificate(own(certs))
    with pytest.raises(UsageError, match=r"deploy\.ca: .* is not valid before .* set this machine's clock"):
        check_certificate(own(certs), datetime.now(UTC) - timedelta(days=1))


def test_an_authority_that_has_expired(certs: Path) -> None:
    with pytest.raises(UsageError, match=r"deploy\.ca: .* expired on "):
        check_certificate(own(certs), datetime.now(UTC) + timedelta(days=3700))


def test_a_certificate_of_another_authority(certs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_deployment(tmp_path / "others", 1, 0)
    said = refused_server(certs, capsys, ca=str(tmp_path / "others" / "ca.pem"))
    assert said.startswith("spyker: deploy.certificate: ")
    assert "was not issued by deploy.ca" in said


@pytest.mark.parametrize("key", ["ca", "certificate"])
def test_a_file_that_holds_no_certificate(certs: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    said = refused_server(certs, capsys, **{key: str(certs / "revoked.json")})
    assert f"deploy.{key}: " in said
    assert "revoked.json holds no certificate" in said


def test_an_issuer_in_between_may_stand_in_the_file(certs: Path, tmp_path: Path) -> None:
    make_deployment(tmp_path / "others", 1, 0)
    (mine,) = read_certificates(certs / "server-0" / "cert.pem", "")
    (issuer,) = read_certificates(certs / "ca.pem", "")
    (other,) = read_certificates(tmp_path / "others" / "ca.pem", "")
    assert leads_to(mine, [other, issuer], [issuer])
    assert leads_to(mine, [], [other, issuer]), "several authorities are all trusted"
    assert not leads_to(mine, [issuer], [other])


def test_a_client_without_an_authority_of_this_time(certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["join", str(certs.parent / "scenario.toml"), "--server", "127.0.0.1:7000", "--clients", "0"]
    expired, _ = Authority.create(-1).pem()
    (certs / "client-0" / "ca.pem").write_bytes(expired)
    assert "client-0/ca.pem: " in (said := refused([*words, "--certs", str(certs)], capsys))
    assert "ca.pem expired on " in said
    assert "--certs: is missing. Give --certs or --insecure" in refused(words, capsys)


# --- Addresses and folders --------------------------------------------------------------------------------------------


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        yield f"127.0.0.1:{busy.getsockname()[1]}"


def refused_process(config: Path) -> str:
    """What a server that is not to begin says last. It is a process of its own: it changes what all of it share."""
    words = [*SPYKER, "serve", str(config), "--insecure"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("key", ["listen_clients", "listen_peers"])
def test_an_address_that_is_taken_is_named_with_its_key(certs: Path, taken: str, key: str) -> None:
    said = refused_process(
        configured(certs, **{"listen_clients": "127.0.0.1:0", "listen_peers": "127.0.0.1:0", key: taken})
    )
    assert said == (
        f"spyker: deploy.{key.replace('_', '-')}: cannot listen on {taken} (Address already in use). "
        "Stop the server that listens there, or choose another port"
    )


def test_a_check_finds_what_is_wrong_and_changes_nothing(
    certs: Path, taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    free = {"listen_clients": "127.0.0.1:0", "listen_peers": "127.0.0.1:0"}
    before = sorted(certs.parent.rglob("*"))
    assert main(["serve", str(configured(certs, **free)), "--check"]) == 0
    assert capsys.readouterr().out == "server 0 can start here\n"
    assert sorted(certs.parent.rglob("*")) == sorted({*before, certs.parent / "config.toml"})

    def said(**changes: str) -> str:
        return refused(["serve", str(configured(certs, **free | changes)), "--check"], capsys)

    assert said(listen_peers=taken).startswith(f"spyker: deploy.listen-peers: cannot listen on {taken} (")
    assert said(metrics="192.0.2.1:7000").startswith("spyker: deploy.metrics: ")  # an address that nobody has
    assert said(state="/proc/spyker").startswith("spyker: deploy.state: cannot write to /proc (")
    assert "Copy revoked.json from the folder of the federation" in said(revoked="nobody.json")
    assert "is not the key of" in said(key=str(certs / "server-1" / "key.pem"))
    (certs / "server-0" / "key.pem").chmod(0o644)
    assert "can be read by all users" in said()


@pytest.mark.parametrize("key", ["state", "record"])
@pytest.mark.parametrize("place", ["notes.txt", "/proc/spyker"])
def test_a_folder_that_cannot_be_used_is_named_with_its_key(certs: Path, key: str, place: str) -> None:
    (certs.parent / "notes.txt").write_text("mine")
    said = refused_process(configured(certs, **{key: place}))
    assert said.startswith(f"spyker: deploy.{key}: ")
    assert "Give a folder that this user may write to" in said
    assert (certs.parent / "notes.txt").read_text() == "mine"
    shutil.rmtree(certs.parent / "state", ignore_errors=True)


def test_a_state_that_another_process_uses_is_named_with_its_key(certs: Path) -> None:
    used = Checkpoints(certs.parent / "state", 3)
    said = refused_process(configured(certs))
    used.close()
    assert said.startswith("spyker: deploy.state: ")
    assert said.endswith("is in use by another process. Stop it, or give another folder")
