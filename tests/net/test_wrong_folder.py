"""``spyker join`` and ``serve`` with something else than the folder of a client or server."""

from pathlib import Path

import pytest

from spyker.cli.main import main


def test_join_says_that_a_folder_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", str(tmp_path / "client-nort"), "--data", "a.csv"]) == 2
    assert f"FOLDER: {tmp_path}/client-nort not found. Name a client's folder" in capsys.readouterr().err


def test_join_says_that_a_folder_is_a_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.toml").touch()
    assert main(["join", str(tmp_path), "--data", "a.csv"]) == 2
    assert f"FOLDER: {tmp_path} is the folder of a server. Run spyker serve" in capsys.readouterr().err


def test_serve_says_that_a_folder_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path / "server-nort")]) == 2
    assert f"FOLDER: {tmp_path}/server-nort not found. Name a server's folder" in capsys.readouterr().err


def test_serve_says_that_a_folder_is_a_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "client.toml").touch()
    assert main(["serve", str(tmp_path)]) == 2
    assert f"FOLDER: {tmp_path} is the folder of a client. Run spyker join" in capsys.readouterr().err
