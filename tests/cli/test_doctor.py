"""A doctor who finds what is broken, names the remedy, and says with an exit code whether anything is."""

import json
import shutil
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from spyker.api.doctor import Severity, installation, machine
from spyker.api.doctor.finding import Finding
from spyker.api.doctor.installation import installation as look_at_packages
from spyker.api.doctor.network import listening, reachable
from spyker.cli.main import main

pytest.importorskip("cryptography", reason="the extra [deploy] is not installed")


def doctor(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main(["doctor", "--json", *map(str, args)])
    return code, {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    assert main(["certs", str(tmp_path / "certs"), "--servers", "2", "--clients", "3", "--quiet"]) == 0
    return tmp_path / "certs"


def test_a_machine_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], certs: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, found = doctor(capsys, certs)
    assert code == 0, found
    wanted = {"Python", "Spyker", "cores", "memory", "PyTorch", "records", "cache", "dataset mnist"}
    assert wanted | {"ports", "server 0", "server 1", "clients"} <= set(found)
    assert found["dataset mnist"]["state"] == "note"
    assert found["dataset mnist"]["remedy"] == "If you need it: spyker data fetch mnist"
    assert "3 in" in found["clients"]["found"]
    assert all(finding["remedy"] for finding in found.values() if finding["state"] != "fine")


def test_a_table_for_people_and_silence_for_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert main(["doctor", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def break_key(certs: Path) -> None:
    shutil.copy(certs / "server-0" / "key.pem", certs / "server-1" / "key.pem")


def open_key(certs: Path) -> None:
    (certs / "server-1" / "key.pem").chmod(0o644)


def strange_authority(certs: Path) -> None:
    assert main(["certs", str(certs.parent / "other"), "--servers", "1", "--clients", "0", "--quiet"]) == 0
    shutil.copy(certs.parent / "other" / "ca.pem", certs / "server-1" / "ca.pem")


def expire(certs: Path) -> None:
    from spyker.net.certificate_authority import Authority
    from spyker.net.certificate_issuing import LOOPBACK, write_server

    write_server(certs, 1, Authority.load(certs), LOOPBACK, -1.0)


def wrong_name(certs: Path) -> None:
    shutil.copytree(certs / "server-0", certs / "server-1", dirs_exist_ok=True)


def no_certificate(certs: Path) -> None:
    (certs / "server-1" / "cert.pem").write_text("hello")


@pytest.mark.parametrize(
    ("harm", "found_text", "remedy"),
    [
        (break_key, "is not the key of", "--renew server-1"),
        (open_key, "can be read by others", "chmod 600"),
        (strange_authority, "was not signed by", "--renew server-1"),
        (expire, "has expired on", "--renew server-1"),
        (wrong_name, "does not name server-1.spyker", "--renew server-1"),
        (no_certificate, "no certificate", "--renew server-1"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_certificate_that_would_not_work(
    certs: Path, capsys: pytest.CaptureFixture[str], harm: Any, found_text: str, remedy: str
) -> None:
    harm(certs)
    code, found = doctor(capsys, certs)
    assert code == 1
    assert found["server 0"]["state"] == "fine"
    assert found["server 1"]["state"] == "wrong"
    assert found_text in found["server 1"]["found"]
    assert remedy in found["server 1"]["remedy"]


def test_a_certificate_that_ends_soon_is_noted(certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spyker.net.certificate_issuing import renew

    renew(certs, ["server-1"], None, 10.0)
    code, found = doctor(capsys, certs)
    assert (code, found["server 1"]["state"]) == (0, "note")


def test_a_credential_that_servers_do_not_know(certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(certs / "client-0" / "credential", certs / "client-2" / "credential")
    code, found = doctor(capsys, certs)
    assert code == 1
    assert "credential of client-2" in found["clients"]["found"]


def test_a_configuration_and_its_ports(tmp_path: Path, certs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("grpc", reason="the extra [deploy] is not installed")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        (tmp_path / "scenario.toml").write_text('[world]\nregions = ["Paris"]\n')
        (tmp_path / "paris.toml").write_text(
            f'scenario = "scenario.toml"\n[deploy]\nlisten-clients = "127.0.0.1:{port}"\nca = "certs/ca.pem"\n'
            'certificate = "certs/server-0/cert.pem"\nkey = "certs/server-0/key.pem"\n'
            'credentials = "certs/nobody.json"\n'
        )
        code, found = doctor(capsys, tmp_path / "paris.toml")
        assert code == 1
        assert found["server 0"]["state"] == "fine"
        assert found["deploy.listen-clients"]["found"] == f"127.0.0.1:{port} is taken"
        assert "nobody.json" in found["clients"]["found"]
        assert reachable("a server", f"127.0.0.1:{port}").state is Severity.FINE
    assert listening("a port", f"127.0.0.1:{port}").state is Severity.FINE
    assert reachable("a server", f"127.0.0.1:{port}").state is Severity.NOTE
    assert listening("a port", "192.0.2.1:7000").state is Severity.WRONG  # an address that nobody has


def test_a_place_that_does_not_exist_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "nowhere"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err


def by_name(findings: Any) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


def test_packages_that_are_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    wants = ["numpy>=99", "nowhere-to-be-found", 'ray>=2; extra == "ray"', 'absent-one; extra == "page"']
    monkeypatch.setattr(metadata, "requires", lambda _: wants)
    monkeypatch.setattr(metadata, "version", lambda name: {"numpy": "2.0", "ray": "2.60"}.get(name) or missing(name))
    found = by_name(look_at_packages())
    assert found["packages"].state is Severity.WRONG
    assert found["packages"].found == "numpy 2.0, not >=99; no nowhere-to-be-found"


def missing(name: str) -> str:
    if name == installation.PACKAGE:
        return "0.1.0"
    raise metadata.PackageNotFoundError(name)


def test_an_extra_that_is_missing_comes_with_its_command() -> None:
    from packaging.requirements import Requirement

    finding = installation.of_extra("page", [Requirement("absent-one>=1")])
    assert (finding.state, finding.found) == (Severity.NOTE, "no absent-one")
    assert finding.remedy == "If you need it: pip install 'spyker-fl[page]'"


def test_a_folder_that_cannot_be_written_is_wrong() -> None:
    finding = machine.writable("cache", Path("/proc/spyker"), "Set SPYKER_CACHE")
    assert (finding.state, finding.remedy) == (Severity.WRONG, "Set SPYKER_CACHE")


def test_a_cuda_build_without_a_gpu_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    finding = machine.torch_build()
    assert finding.state is Severity.NOTE
    assert "https://pytorch.org/get-started/locally/ shows for CPU" in finding.remedy
