"""Who may ask the page's server, and what it answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from ring import write_ring

from spyker.dashboard.http_server import DashboardServer, same
from spyker.records import FACTS, RecordWriter

TOKEN = "a-long-enough-word"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = write_ring(tmp_path_factory.mktemp("runs") / "run")
    with DashboardServer([folder], "127.0.0.1", 0) as server:
        heard(server.url)
        yield server.url


def heard(url: str, wanted: str = '"0":[', **more: object) -> str:
    """What the server tells, until it has told what is wanted."""
    with requests.get(f"{url}api/events", stream=True, timeout=200, **more) as answer:  # type: ignore[arg-type]
        assert answer.headers["content-type"].startswith("text/event-stream")
        for text in answer.iter_lines(decode_unicode=True):
            if wanted in text:
                return str(text)
    raise AssertionError("the server has ended")


def test_nothing_runs_in_the_page_but_its_own_files(url: str) -> None:
    for place in ("", "static/app.js", "api/runs", "nothing"):
        headers = requests.get(url + place, timeout=200).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    page = requests.get(url, timeout=200).text
    assert "<script>" not in page
    assert "style=" not in page
    assert "http" not in page.replace("http-equiv", ""), "nothing comes from elsewhere"


def test_it_answers_about_its_runs(url: str) -> None:
    [run] = requests.get(f"{url}api/runs", timeout=200).json()["runs"]
    assert (run["id"], run["label"], run["hInter"]) == (0, "Spyker", 5.0)
    assert requests.get(f"{url}api/runs/0/state?t=1.5", timeout=200).json()["token"] == 1
    assert requests.get(f"{url}api/runs/0/timeline", timeout=200).json()["finished"]
    window = requests.get(f"{url}api/runs/0/window?from=0.5&to=1.5", timeout=200).json()
    assert {"token", "update", "sync", "merge"} <= {event["kind"] for event in window["events"]}
    assert requests.get(f"{url}api/runs/0/window?before=1.5&limit=3", timeout=200).json()["events"]


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("api/runs/7/timeline", 404),
        ("api/runs/0/state?t=soon", 400),
        ("api/runs/0/state?t=nan", 400),
        ("api/runs/0/window?from=0&to=inf", 400),
        ("static/../server.py", 404),
        ("static/%2e%2e%2fserver.py", 404),
        ("static/nothing.js", 404),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, place: str, code: int) -> None:
    assert requests.get(url + place, timeout=200).status_code == code


def test_another_name_for_this_machine_is_refused(url: str) -> None:
    """Or else any web page could read runs, by giving itself our address."""
    assert requests.get(url, headers={"host": "evil.example"}, timeout=200).status_code == 400


def test_with_a_token_only_those_who_know_it_are_let_in(tmp_path: Path) -> None:
    with DashboardServer([write_ring(tmp_path / "run")], "127.0.0.1", 0, TOKEN) as server:
        for wrong in ({}, {"token": "wrong"}, {"token": ""}, {"token": TOKEN[:-1]}, {"token": "ü"}):
            answer = requests.get(f"{server.url}api/runs", params=wrong, timeout=200)
            assert answer.status_code == 401
            assert "Spyker" not in answer.text
        browser = requests.Session()
        first = browser.get(server.url, params={"token": TOKEN}, timeout=200)
        assert first.url == server.url, "the token does not stay in the address"
        assert first.status_code == 200
        assert "httponly" in str(first.history[0].headers["set-cookie"]).lower()
        assert browser.get(f"{server.url}api/runs", timeout=200).status_code == 200
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert requests.get(f"{server.url}api/runs", headers=bearer, timeout=200).status_code == 200


def test_tokens_are_compared_as_a_whole() -> None:
    assert same("abc", "abc")
    assert not same("abd", "abc")
    assert not same("", "abc")


def test_news_of_a_run_that_goes_on_are_told_at_once(tmp_path: Path) -> None:
    write_ring(tmp_path / "whole")
    lines = (tmp_path / "whole" / FACTS).read_bytes().splitlines(keepends=True)
    writer = RecordWriter(tmp_path / "run", 'algorithm = "spyker"\n', at_once=True)
    facts = tmp_path / "run" / FACTS
    facts.write_bytes(b"".join(lines[:5]))
    with DashboardServer([tmp_path / "run"], "127.0.0.1", 0) as server:
        before = json.loads(heard(server.url).removeprefix("data: "))["runs"]["0"]
        with facts.open("ab") as file:
            file.writelines(lines[5:])
        after = json.loads(heard(server.url, '"0":[2').removeprefix("data: "))["runs"]["0"]
        assert before[1] < after[1]
        writer.close({})
        heard(server.url, "true]")
